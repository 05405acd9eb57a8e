// SPDX-License-Identifier: Apache-2.0
// Names of outcomes and placements.
#include <optional>
#include <string>

#include "headrace/base/names.hpp"
#include "headrace/message/queue.hpp"
#include "headrace/platform/line_flush.hpp"

namespace headrace::message {
namespace {

constexpr auto kOutcomes = make_names<Outcome>({
    {Outcome::done, "done"},
    {Outcome::empty, "empty"},
    {Outcome::full, "full"},
    {Outcome::too_large, "too_large"},
    {Outcome::timed_out, "timed_out"},
    {Outcome::closed, "closed"},
    {Outcome::peer_lost, "peer_lost"},
    {Outcome::replaced, "replaced"},
    {Outcome::damaged, "damaged"},
    {Outcome::forked, "forked"},
});

constexpr auto kPlacements = make_names<Placement>({
    {Placement::cache, "cache"},
    {Placement::demote, "demote"},
    {Placement::memory, "memory"},
    {Placement::header, "header"},
});

}  // namespace

std::string_view name(Outcome outcome) {
  return kOutcomes.text(outcome);
}

std::string_view name(Placement placement) {
  return kPlacements.text(placement);
}

Result<Placement> parse_placement(std::string_view text) {
  if (const std::optional<Placement> found = kPlacements.find(text)) return *found;
  return fail(Code::invalid_argument, "place messages as '" + std::string(text) + "'",
              "there is no such placement", "use one of " + kPlacements.list());
}

bool has_placement(Placement placement) {
  return placement != Placement::demote || platform::has_line_demote();
}

}  // namespace headrace::message
