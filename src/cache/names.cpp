// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/names.hpp"

#include "headrace/cache/cache.hpp"

namespace headrace::cache {
namespace {

constexpr auto kEvictions = make_names<Eviction>({
    {Eviction::lru, "lru"},
    {Eviction::s3_fifo, "s3_fifo"},
});
constexpr auto kEventKinds = make_names<EventKind>({
    {EventKind::hit, "hit"},
    {EventKind::miss, "miss"},
    {EventKind::not_placed, "not_placed"},
    {EventKind::refused, "refused"},
    {EventKind::weak_hit, "weak_hit"},
    {EventKind::weak_miss, "weak_miss"},
    {EventKind::moved, "moved"},
    {EventKind::move_failed, "move_failed"},
    {EventKind::evicted, "evicted"},
    {EventKind::dropped, "dropped"},
    {EventKind::written_back, "written_back"},
});

}  // namespace

std::string_view name(Eviction eviction) {
  return kEvictions.text(eviction);
}

std::string_view name(EventKind kind) {
  return kEventKinds.text(kind);
}

}  // namespace headrace::cache
