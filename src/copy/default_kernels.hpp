// SPDX-License-Identifier: Apache-2.0
// The tables behind set_bytes and first_difference, the mutex of the code that fills them, and the
// ranges of an entry.
#pragma once

#include <vector>

#include "headrace/base/mutex.hpp"
#include "headrace/copy/fill_compare.hpp"
#include "headrace/copy/profile.hpp"

namespace headrace::copy::detail {

[[nodiscard]] Dispatch<Fill>& default_fills();
[[nodiscard]] Dispatch<FirstDifference>& default_comparisons();
/// The ranges of an entry for a profile whose functions are in `chosen`.
[[nodiscard]] std::vector<Range> ranges_of(const Profile& profile, const Dispatch<Move>& chosen);
/// A profile without variants: with it only the copies in which the C library crawls are replaced.
[[nodiscard]] Profile untuned_profile();
/// The guard (GeneratedCode::make) of the profile used last; null if it has none.
[[nodiscard]] Move latest_guard();
/// Says that there is one.
[[nodiscard]] std::string_view note_of_guard();
/// Held while a profile is put into the tables, so that they never mix two profiles. Copies do not
/// take it.
[[nodiscard]] Mutex& profile_mutex();

}  // namespace headrace::copy::detail
