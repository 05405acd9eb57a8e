// SPDX-License-Identifier: Apache-2.0
// Outcomes and placements as texts.
#include <array>
#include <string>

#include "headrace/message/queue.hpp"
#include "headrace/platform/line_flush.hpp"

namespace headrace::message {
namespace {

constexpr std::array kPlacements = {Placement::cache, Placement::demote, Placement::memory,
                                    Placement::header};

}  // namespace

std::string_view name(Outcome outcome) {
  switch (outcome) {
    case Outcome::done:
      return "done";
    case Outcome::empty:
      return "empty";
    case Outcome::full:
      return "full";
    case Outcome::too_large:
      return "too_large";
    case Outcome::timed_out:
      return "timed_out";
    case Outcome::closed:
      return "closed";
    case Outcome::peer_lost:
      return "peer_lost";
    case Outcome::replaced:
      return "replaced";
    case Outcome::damaged:
      return "damaged";
    case Outcome::forked:
      return "forked";
  }
  return "unknown";
}

std::string_view name(Placement placement) {
  switch (placement) {
    case Placement::cache:
      return "cache";
    case Placement::demote:
      return "demote";
    case Placement::memory:
      return "memory";
    case Placement::header:
      return "header";
  }
  return "unknown";
}

Result<Placement> parse_placement(std::string_view text) {
  std::string names;
  for (const Placement each : kPlacements) {
    if (name(each) == text) return each;
    names += (names.empty() ? "" : ", ") + std::string(name(each));
  }
  return fail(Code::invalid_argument, "place messages as '" + std::string(text) + "'",
              "there is no such placement", "use one of " + names);
}

bool has_placement(Placement placement) {
  return placement != Placement::demote || platform::has_line_demote();
}

}  // namespace headrace::message
