// SPDX-License-Identifier: Apache-2.0
// Crash check of the library's rings, and of a gallery of broken rings that it must catch. Not for
// other structures: record and explore those directly (recorder.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/pmem/recorder.hpp"

namespace headrace::pmem::lab {

/// A ring that can be checked.
struct CheckSubject {
  std::string name;     ///< "optimised", "naive-missing-flush".
  std::string summary;  ///< Description, or what is wrong with it.
  bool sound = true;    ///< True for rings of the library, false for the gallery.
};
/// The four rings first, then the gallery.
[[nodiscard]] const std::vector<CheckSubject>& check_subjects();

struct CheckOptions {
  /// Entries enqueued while the recorder runs, after a warm-up.
  std::size_t entry_count = 6;
  /// States tried per moment (ExploreOptions).
  std::uint64_t states_per_moment_max = 1024;
  std::uint64_t seed = 1;
  /// Stop at the first bad state; else count them all.
  bool stop_at_first = true;
  /// Called now and then with the share done; return false to stop. May be empty.
  std::function<bool(double)> progress = {};
};

struct CheckReport {
  std::uint64_t states_tried = 0;
  std::uint64_t states_bad = 0;
  std::uint64_t moments = 0;
  std::uint64_t moments_exhaustive = 0;
  std::uint64_t runs = 0;            ///< Recordings; the other end's timing differs.
  std::uint64_t second_crashes = 0;  ///< States continued until power failed again.
  std::string first_bad;             ///< Report on the first bad state; empty if there is none.
  Waste waste;                       ///< Of one recording.
};

/// Runs the ring under the recorder and tries the states that a crash could leave.
///
/// Each state is recovered. Every entry whose enqueue had returned or that was lent must be
/// present, whole and in order, and no entry that was never enqueued; only acknowledged entries may
/// be gone. Then the ring continues with a new entry and, for a sample of states, with a second
/// crash.
///
/// Fails: not_found, naming the subjects; invalid_argument for no entries or more than 1000.
[[nodiscard]] Result<CheckReport> check_subject(std::string_view name,
                                                const CheckOptions& options = {});

}  // namespace headrace::pmem::lab
