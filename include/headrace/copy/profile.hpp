// SPDX-License-Identifier: Apache-2.0
// Profiles: files that name the best copy for each length on one kind of machine; no code in them.
// Not for finding it: the tuner does.
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
inline constexpr std::size_t kProfileBytesMax = std::size_t{64} << 10U;

/// The machines that a profile is valid for: equal processors with equal caches.
///
/// Threading: immutable.
struct Fingerprint {
  std::string vendor;  ///< CPUID's: "GenuineIntel".
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

/// The variants that serve the lengths in (bytes_max / 2, bytes_max].
struct SizeClass {
  std::uint64_t bytes_max = 0;     ///< A power of two, 2 or more.
  std::optional<Variant> variant;  ///< Nothing is the C library's memmove.
  /// Serves copies whose bytes are not in the caches; nothing is `variant`.
  std::optional<Variant> cold_variant = {};
};

/// The kernel that fills or compares the lengths in (bytes_max / 2, bytes_max].
template <typename Kernel>
struct KernelClass {
  std::uint64_t bytes_max = 0;   ///< As in SizeClass.
  std::optional<Kernel> kernel;  ///< Nothing is the C library's memset or memcmp.
};

/// Threading: immutable.
struct Profile {
  Fingerprint machine;
  /// Ascending. The last one serves longer copies too; memmove serves lengths of no class.
  std::vector<SizeClass> classes;
  /// How copies detect that bytes are not in the caches. Required if a class has a cold_variant.
  std::optional<ColdProbe> cold_probe = {};
  /// As `classes`, for set_bytes and first_difference.
  std::vector<KernelClass<FillKernel>> fills = {};
  std::vector<KernelClass<CompareKernel>> comparisons = {};
  /// Shortest length from which on a DSA together with a processor was faster than the processor
  /// alone. Nothing: not measured, or at no length.
  std::optional<std::uint64_t> dsa_bytes_min = {};
  /// Slowdown factor of a single copy of a page through registers of 64 bytes that have not been
  /// used for a while (Meter::find_wide_cost); nothing if not measured.
  std::optional<double> wide_cost = {};
};

/// Fails: corrupt_data if the text is no profile or has impossible values; version_mismatch;
///        capacity_exceeded beyond kProfileBytesMax. Safe on untrusted text.
[[nodiscard]] HEADRACE_API Result<Profile> parse_profile(std::string_view text);
[[nodiscard]] HEADRACE_API std::string to_json(const Profile& profile);
/// Fails: as parse_profile; not_found, permission_denied or io_failed.
[[nodiscard]] HEADRACE_API Result<Profile> load_profile(const std::string& path);

/// Adds the profile's path to an error of use_profile.
[[nodiscard]] HEADRACE_API Error of_profile(const std::string& path, Error error);

/// Generates the functions that the profile names and puts them into `dispatch`. Classes that it
/// does not name return to the fallback. Functions in use before stay in memory, because a thread
/// may be executing them.
///
/// If the process may not read the time-stamp counter, the cold variants are left out. A process
/// that disables it later (PR_SET_TSC, seccomp's strict mode) must use a profile without cold
/// variants, or none.
///
/// Threading: shared; of two concurrent calls, all tables hold the profile of the later one.
/// Fails: hardware_absent if the profile is for another machine; permission_denied if the process
///        may not make memory executable; unsupported. On failure nothing has changed.
[[nodiscard]] HEADRACE_API Result<void> use_profile(const Profile& profile,
                                                    Dispatch<Move>& dispatch);
/// The same for fills and comparisons.
///
/// Threading: as use_profile.
/// Fails: hardware_absent; unsupported if this build lacks a kernel. On failure nothing has
/// changed.
[[nodiscard]] HEADRACE_API Result<void> use_kernels(const Profile& profile, Dispatch<Fill>& fills,
                                                    Dispatch<FirstDifference>& comparisons);
/// Both, for the tables of move_bytes, copy_bytes, set_bytes and first_difference.
[[nodiscard]] HEADRACE_API Result<void> use_profile(const Profile& profile);
/// Makes those tables use the C library's functions again.
HEADRACE_API void use_no_profile();

/// Result of the search for a profile.
struct ProfileReport {
  bool used = false;
  std::string path;  ///< The path searched; empty if none.
  std::string note;  ///< One sentence.
  /// The profile's, if it is used.
  std::optional<std::uint64_t> dsa_bytes_min = {};
};

/// Path of this user's profile: $HEADRACE_PROFILE, else $XDG_CONFIG_HOME/headrace/copy.json, else
/// ~/.config/headrace/copy.json. Empty if HEADRACE_PROFILE is "none", if there is no home
/// directory, and in a program with more privileges than its user (setuid).
[[nodiscard]] HEADRACE_API std::string default_profile_path();

/// Loads this user's profile and uses it, on the first call; engine::Engine::make calls it. If the
/// file is absent, broken or for another machine, memmove stays in use, and the note says why.
///
/// Threading: shared.
/// Returns: the report of the first call.
HEADRACE_API const ProfileReport& use_default_profile();

}  // namespace headrace::copy
