// SPDX-License-Identifier: Apache-2.0
// The crash check of our own rings, and of a gallery of broken ones that it has to catch.
// Not for your structures: those are recorded and explored directly (recorder.hpp).
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

/// Something that can be checked.
struct CheckSubject {
  std::string name;     ///< "optimised", "naive-missing-flush".
  std::string summary;  ///< What it is, or what is wrong with it.
  bool sound = true;    ///< Part of the library; else of the gallery.
};
/// The four rings first, then the gallery.
[[nodiscard]] const std::vector<CheckSubject>& check_subjects();

struct CheckOptions {
  /// Entries that are enqueued while the recorder runs; more were before.
  std::size_t entry_count = 6;
  /// States tried at one moment (ExploreOptions).
  std::uint64_t states_per_moment_max = 1024;
  std::uint64_t seed = 1;
  /// Stop at the first bad state; else count them all.
  bool stop_at_first = true;
  /// Told the share that is done, now and then; may be empty. Returns false to stop.
  std::function<bool(double)> progress = {};
};

struct CheckReport {
  std::uint64_t states_tried = 0;
  std::uint64_t states_bad = 0;
  std::uint64_t moments = 0;
  std::uint64_t moments_exhaustive = 0;
  std::uint64_t runs = 0;            ///< Recordings: the other end's steps come at other moments.
  std::uint64_t second_crashes = 0;  ///< States after which it went on and power failed again.
  std::string first_bad;             ///< The report on it; empty if there is none.
  Waste waste;                       ///< Of one recording.
};

/// Runs the ring under the recorder and tries the states that a crash could leave.
///
/// Each state is recovered; every entry whose enqueue had returned and every one that was lent must
/// be there, whole and in order, no other; nothing that was not acknowledged may be gone. Then it
/// goes on from there: a new entry, and, for a sample, everything again with a second crash.
///
/// Fails: not_found, naming the subjects; invalid_argument for no entries or more than 1000.
[[nodiscard]] Result<CheckReport> check_subject(std::string_view name,
                                                const CheckOptions& options = {});

}  // namespace headrace::pmem::lab
