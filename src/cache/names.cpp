// SPDX-License-Identifier: Apache-2.0
// What evictions and events are called.
#include "headrace/cache/cache.hpp"

namespace headrace::cache {

std::string_view name(Eviction eviction) {
  switch (eviction) {
    case Eviction::fifo:
      return "fifo";
    case Eviction::clock:
      return "clock";
    case Eviction::lru:
      return "lru";
    case Eviction::s3_fifo:
      return "s3_fifo";
  }
  return "unknown";
}

std::string_view name(EventKind kind) {
  switch (kind) {
    case EventKind::hit:
      return "hit";
    case EventKind::miss:
      return "miss";
    case EventKind::not_placed:
      return "not_placed";
    case EventKind::refused:
      return "refused";
    case EventKind::weak_hit:
      return "weak_hit";
    case EventKind::weak_miss:
      return "weak_miss";
    case EventKind::moved:
      return "moved";
    case EventKind::move_failed:
      return "move_failed";
    case EventKind::evicted:
      return "evicted";
    case EventKind::dropped:
      return "dropped";
    case EventKind::written_back:
      return "written_back";
  }
  return "unknown";
}

}  // namespace headrace::cache
