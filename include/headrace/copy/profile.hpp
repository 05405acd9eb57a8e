// SPDX-License-Identifier: Apache-2.0
// Profiles: which copy is best for which length on which machine, as a file without code in it.
// Not for finding that out: that is the tuner's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"
#include "headrace/copy/dispatch.hpp"
#include "headrace/copy/fill_compare.hpp"
#include "headrace/copy/variant.hpp"

namespace headrace::copy {

inline constexpr int kProfileVersion = 1;
inline constexpr std::size_t kProfileBytesMax = std::size_t{1} << 20U;

/// What a profile is valid for: equal processors with equal caches.
///
/// Threading: immutable.
struct Fingerprint {
  std::string vendor;  ///< As CPUID says it: "GenuineIntel".
  std::uint32_t family = 0;
  std::uint32_t model = 0;
  std::uint32_t stepping = 0;
  bool avx2 = false;
  bool avx512 = false;
  bool erms = false;
  std::uint64_t l1d_bytes = 0;  ///< 0 is unknown.
  std::uint64_t l2_bytes = 0;
  std::uint64_t l3_bytes = 0;

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};
[[nodiscard]] HEADRACE_API Fingerprint this_machine();
/// Text such as "GenuineIntel family 6 model 85 stepping 7, AVX-512, L2 1 MiB, L3 35.8 MiB".
[[nodiscard]] HEADRACE_API std::string to_text(const Fingerprint& machine);

/// What serves the lengths in (bytes_max / 2, bytes_max].
struct SizeClass {
  std::uint64_t bytes_max = 0;     ///< A power of two, 2 or more.
  std::optional<Variant> variant;  ///< Nothing is the C library's memmove.
  /// What serves those whose bytes are not in the caches; nothing is `variant`.
  std::optional<Variant> cold_variant = {};
};

/// Which kernel fills or compares the lengths in (bytes_max / 2, bytes_max].
template <typename Kernel>
struct KernelClass {
  std::uint64_t bytes_max = 0;   ///< As in SizeClass.
  std::optional<Kernel> kernel;  ///< Nothing is the C library's memset or memcmp.
};

/// Threading: immutable.
struct Profile {
  Fingerprint machine;
  /// Ascending. The last one serves longer copies too; a length of no class is memmove's.
  std::vector<SizeClass> classes;
  /// How it is known that bytes are not in the caches. There is one if a class has a cold_variant.
  std::optional<ColdProbe> cold_probe = {};
  /// As `classes`, of set_bytes and first_difference.
  std::vector<KernelClass<FillKernel>> fills = {};
  std::vector<KernelClass<CompareKernel>> comparisons = {};
  /// From how many bytes on a DSA together with a processor was faster than the processor alone.
  /// Nothing: not measured, or nowhere.
  std::optional<std::uint64_t> dsa_bytes_min = {};
  /// How many times as long a single copy of a page takes through registers of 64 bytes that have
  /// not been used for a while (Meter::find_wide_cost); nothing if it has not been measured.
  std::optional<double> wide_cost = {};
};

/// Fails: corrupt_data if the text is no profile or has impossible values; version_mismatch;
///        capacity_exceeded beyond kProfileBytesMax. Never crashes, whatever the text.
[[nodiscard]] HEADRACE_API Result<Profile> parse_profile(std::string_view text);
[[nodiscard]] HEADRACE_API std::string to_json(const Profile& profile);
/// Fails: as parse_profile; not_found, permission_denied or io_failed.
[[nodiscard]] HEADRACE_API Result<Profile> load_profile(const std::string& path);

/// The error of use_profile, with the file that the profile came from.
[[nodiscard]] HEADRACE_API Error of_profile(const std::string& path, Error error);

/// Generates the functions that the profile names and puts them into `dispatch`. Classes that it
/// does not name go back to the fallback. Functions that were in use before stay in memory, because
/// a thread may be executing them.
///
/// Where the process may not read the time-stamp counter, the cold variants are left out. A process
/// that forbids it later (PR_SET_TSC, seccomp's strict mode) must use a profile without them, or
/// none.
///
/// Threading: shared; of two calls at the same time, all tables hold the profile of the later one.
/// Fails: hardware_absent if the profile is another machine's; permission_denied where memory may
///        not be made executable; unsupported. On failure nothing has changed.
[[nodiscard]] HEADRACE_API Result<void> use_profile(const Profile& profile, Dispatch& dispatch);
/// The same for fills and comparisons.
///
/// Threading: as use_profile.
/// Fails: hardware_absent; unsupported if this build lacks a kernel. On failure nothing has
/// changed.
[[nodiscard]] HEADRACE_API Result<void> use_kernels(const Profile& profile,
                                                    KernelTable<Fill>& fills,
                                                    KernelTable<FirstDifference>& comparisons);
/// Both, for the tables of move_bytes, copy_bytes, set_bytes and first_difference.
[[nodiscard]] HEADRACE_API Result<void> use_profile(const Profile& profile);
/// Makes these use the C library's functions again.
HEADRACE_API void use_no_profile();

/// What came of the search for a profile.
struct ProfileReport {
  bool used = false;
  std::string path;  ///< Where it was looked for; empty if nowhere.
  std::string note;  ///< One sentence.
  /// Of the profile, if it is used.
  std::optional<std::uint64_t> dsa_bytes_min = {};
};

/// Where the profile of this user lies: $HEADRACE_PROFILE, else
/// $XDG_CONFIG_HOME/headrace/copy.json, else ~/.config/headrace/copy.json. Empty if
/// HEADRACE_PROFILE is "none", if there is no home, and in a program that has more rights than its
/// user (setuid).
[[nodiscard]] HEADRACE_API std::string default_profile_path();

/// Looks for the profile of this user and uses it, the first time it is called;
/// engine::Engine::make calls it. A file that is absent, broken or of another machine leaves
/// memmove in use: the note says so.
///
/// Threading: shared.
/// Returns: what came of it, the same every time.
HEADRACE_API const ProfileReport& use_default_profile();

}  // namespace headrace::copy
