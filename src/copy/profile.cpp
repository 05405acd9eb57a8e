// SPDX-License-Identifier: Apache-2.0
// Profiles as JSON, and their search path.
#include "headrace/copy/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "default_kernels.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/base/units.hpp"
#include "headrace/json/field.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/descriptor.hpp"
#include "headrace/platform/process.hpp"
#include "headrace/platform/ticks.hpp"

namespace headrace::copy {
namespace {

using json::Field;
using json::Json;

constexpr std::string_view kSchemaName = "headrace-copy-profile";
constexpr std::uint64_t kClassBytesMax = std::uint64_t{1} << 62U;
constexpr const char* kDsaBytesMin = "dsa_bytes_min";
constexpr const char* kWideCost = "wide_cost";
/// Above any real cost.
constexpr double kWideCostMax = 1e6;
constexpr const char* kColdVariant = "cold_variant";
constexpr const char* kColdProbe = "cold_probe";
constexpr const char* kFills = "fills";
constexpr const char* kComparisons = "comparisons";
/// Some tenths of a millisecond: no load takes that long.
constexpr std::uint32_t kTicksMax = std::uint32_t{1} << 20U;
constexpr const char* kRemedy = "make it again with 'headrace tune'";

Fingerprint read_machine(const Field& field) {
  return {.vendor = field["vendor"].text(),
          .family = field["family"].index(),
          .model = field["model"].index(),
          .stepping = field["stepping"].index(),
          .avx2 = field["avx2"].truth(),
          .avx512 = field["avx512"].truth(),
          .erms = field["erms"].truth(),
          .l1d_bytes = field["l1d_bytes"].number(UINT64_MAX),
          .l2_bytes = field["l2_bytes"].number(UINT64_MAX),
          .l3_bytes = field["l3_bytes"].number(UINT64_MAX)};
}

Json to_json_value(const Fingerprint& machine) {
  return {{"vendor", machine.vendor},     {"family", machine.family},
          {"model", machine.model},       {"stepping", machine.stepping},
          {"avx2", machine.avx2},         {"avx512", machine.avx512},
          {"erms", machine.erms},         {"l1d_bytes", machine.l1d_bytes},
          {"l2_bytes", machine.l2_bytes}, {"l3_bytes", machine.l3_bytes}};
}

/// Reads a list of classes, which must be in ascending order.
template <typename Class, typename ReadRest>
void read_classes(const Field& list, std::vector<Class>& classes, const ReadRest& read_rest) {
  for (const Field& field : list.elements(kClassCount)) {
    const Field limit = field["bytes_max"];
    Class made;
    made.bytes_max = limit.number(kClassBytesMax, 2);
    if (!std::has_single_bit(made.bytes_max)) limit.refuse("is not a power of two", {});
    if (!classes.empty() && made.bytes_max <= classes.back().bytes_max) {
      limit.refuse("is not in ascending order", {});
    }
    read_rest(field, made);
    classes.push_back(std::move(made));
  }
}

void read_variant(const Field& field, std::optional<Variant>& variant) {
  if (!field.is_present()) return;
  const auto parsed = parse_variant(field.text());
  if (!parsed) return field.refuse("is not a variant: " + parsed.error().cause, {});
  variant = *parsed;
}

template <typename Kernel>
void read_kernels(const Field& list, std::vector<KernelClass<Kernel>>& classes) {
  read_classes(list, classes, [](const Field& field, KernelClass<Kernel>& made) {
    if (field["kernel"].is_present()) made.kernel = field["kernel"].enumerator<Kernel>();
  });
}

ColdProbe read_cold_probe(const Field& field) {
  ColdProbe probe;
  probe.ticks_max = static_cast<std::uint32_t>(field["ticks_max"].number(kTicksMax, 2));
  probe.ticks_min = static_cast<std::uint32_t>(field["ticks_min"].number(probe.ticks_max - 1, 1));
  return probe;
}

Result<void> check_machine(const Profile& profile) {
  const Fingerprint here = this_machine();
  if (profile.machine == here) return {};
  return fail(Code::hardware_absent, "use the copy profile",
              fmt::format("it is for another machine: {}; this one: {}", to_text(profile.machine),
                          to_text(here)),
              "make one for this machine with 'headrace tune'");
}

/// Fails if this processor or build lacks one of the kernels.
template <typename Kernel, typename FunctionOf>
Result<void> check_kernels(const std::vector<KernelClass<Kernel>>& classes,
                           FunctionOf function_of) {
  for (const KernelClass<Kernel>& each : classes) {
    if (!each.kernel || function_of(*each.kernel) != nullptr) continue;
    return fail(Code::unsupported, "use the copy profile",
                fmt::format("this build has no kernel {}", name(*each.kernel)), kRemedy);
  }
  return {};
}

Result<void> check_kernels(const Profile& profile) {
  if (auto checked = check_kernels(profile.fills, fill_of); !checked) return checked;
  return check_kernels(profile.comparisons, first_difference_of);
}

template <typename Function, typename Kernel, typename FunctionOf>
void choose_kernels(const std::vector<KernelClass<Kernel>>& classes, FunctionOf function_of,
                    Dispatch<Function>& table) {
  for (std::size_t i = 0; i < kClassCount; ++i) {
    // Longer lengths use the last class.
    const bool longer = !classes.empty() && i > class_of(classes.back().bytes_max);
    const auto found = longer ? classes.end() - 1 : std::ranges::find_if(classes, [i](auto& each) {
      return class_of(each.bytes_max) == i;
    });
    const bool named = found != classes.end() && found->kernel;
    table.choose(i, named ? function_of(*found->kernel) : table.fallback());
  }
}

/// Keeps code for the life of the process: a thread may be executing it.
void keep(GeneratedCode code) HEADRACE_REQUIRES(detail::profile_mutex()) {
  static auto* const kKept = new std::vector<GeneratedCode>;
  kKept->push_back(std::move(code));
}

/// Lengths in which `rep movsb`, by which the C library copies them on many processors, may crawl.
constexpr std::size_t kGuardedBytesMin = std::size_t{4} << 10U;  // End of a class, as the next.
constexpr std::size_t kGuardedBytesMax = std::size_t{1} << 20U;

/// Whether `move` crawls if the target lies a few bytes after the source within a page: on a Zen 3
/// `rep movsb` takes 30 times as long for distances of 1 to 31 bytes, which two buffers of whole
/// pages have that malloc returned one after the other.
///
/// Cost: some 20 microseconds.
bool crawls(Move move) {
  if (!platform::may_read_ticks()) return false;
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kCopied = 2 * kPage;
  constexpr int kTries = 4;
  constexpr int kSlower = 4;
  std::vector<std::byte> room(6 * kPage);
  std::byte* const source =
      room.data() + kPage - reinterpret_cast<std::uintptr_t>(room.data()) % kPage;
  const auto fastest = [&](std::size_t distance) {
    std::uint64_t least = UINT64_MAX;
    for (int i = 0; i < kTries; ++i) {
      const std::uint64_t begin = platform::ticks();
      move(source + kCopied + distance, source, kCopied);
      least = std::min(least, platform::ticks() - begin);
    }
    return least;
  };
  static_cast<void>(fastest(0));  // Page faults.
  return fastest(16) > kSlower * fastest(0);
}

/// The guard of the profile used last.
constinit Atomic<Move> guard_in_use{nullptr};

/// Generated functions, and the entry that leads to them; nothing if the fallback serves all.
struct Moves {
  GeneratedCode code;
  Move guard = nullptr;
  std::optional<GeneratedCode> entry;
};

/// Generates the functions of the profile and puts them into `chosen`, which is no other thread's.
Result<Moves> generate(const Profile& profile, Dispatch<Move>& chosen) {
  HEADRACE_TRY(check_machine(profile));
  const bool probes = profile.cold_probe && platform::may_read_ticks();
  std::vector<Routine> routines;
  routines.reserve(profile.classes.size());
  for (const SizeClass& each : profile.classes) {
    routines.push_back({.warm = each.variant, .cold = probes ? each.cold_variant : std::nullopt});
  }
  bool guards = can_run(Variant{}) && crawls(chosen.fallback());
  const auto make = [&] {
    return GeneratedCode::make(routines, profile.cold_probe.value_or(ColdProbe{}),
                               chosen.fallback(), guards);
  };
  auto code = make();
  if (!code && std::exchange(guards, false)) code = make();  // The fallback stays, however slow.
  if (!code) return fail(code.error().within("use the copy profile"));
  std::size_t next = 0;
  for (const SizeClass& each : profile.classes) {
    const bool guarded = each.bytes_max >= kGuardedBytesMin && each.bytes_max <= kGuardedBytesMax;
    Move move = code->moves()[next++];
    if (guards && !guarded && move == code->moves().back()) move = chosen.fallback();
    const std::size_t first = class_of(each.bytes_max);
    chosen.choose(first, move);
    if (&each != &profile.classes.back()) continue;
    // The last class serves longer copies too. Length zero is in the last row of the table;
    // generated functions pass it to the fallback.
    for (std::size_t i = first; i < kClassCount; ++i) chosen.choose(i, move);
  }
  Moves moves{.code = std::move(*code), .guard = nullptr, .entry = {}};
  if (guards) moves.guard = moves.code.moves().back();
  const std::vector<Range> ranges = detail::ranges_of(profile, chosen);
  if (std::ranges::any_of(ranges, [](const Range& each) { return each.move != nullptr; })) {
    auto entry = GeneratedCode::make_entry(ranges, chosen.fallback());
    if (!entry) return fail(entry.error().within("use the copy profile"));
    moves.entry = std::move(*entry);
  }
  return moves;
}

void choose_moves(Moves moves, const Dispatch<Move>& chosen, Dispatch<Move>& dispatch)
    HEADRACE_REQUIRES(detail::profile_mutex()) {
  const Move entered = moves.entry ? moves.entry->moves().front() : dispatch.fallback();
  keep(std::move(moves.code));
  guard_in_use.store_relaxed(moves.guard);  // For reports.
  if (moves.entry) keep(std::move(*moves.entry));
  for (std::size_t i = 0; i < kClassCount; ++i)
    dispatch.choose(i, chosen.function_for(std::size_t{2} << i));
  // Last: it leads to the others.
  dispatch.choose_entry(entered);
}

}  // namespace

std::vector<Range> detail::ranges_of(const Profile& profile, const Dispatch<Move>& chosen) {
  std::vector<Range> ranges;
  for (const SizeClass& each : profile.classes) {
    const std::size_t before = ranges.empty() ? 0 : ranges.back().bytes_max;
    if (before < each.bytes_max / 2) ranges.push_back({.bytes_max = each.bytes_max / 2});
    const copy::Move move = chosen.function_for(each.bytes_max);
    ranges.push_back({.bytes_max = each.bytes_max,
                      .move = move == chosen.fallback() ? nullptr : move,
                      .variant = each.cold_variant ? std::nullopt : each.variant});
  }
  if (!ranges.empty()) ranges.push_back({.bytes_max = SIZE_MAX, .move = ranges.back().move});
  return ranges;
}

Profile detail::untuned_profile() {
  Profile profile;
  profile.machine = this_machine();
  // The last class serves longer copies, too: by the fallback.
  for (std::size_t bytes_max = kGuardedBytesMin; bytes_max <= 2 * kGuardedBytesMax; bytes_max *= 2)
    profile.classes.push_back({.bytes_max = bytes_max, .variant = {}});
  return profile;
}

Move detail::latest_guard() {
  return guard_in_use.load_relaxed();  // For reports.
}

std::string_view detail::note_of_guard() {
  if (latest_guard() == nullptr) return {};
  return ", except from 2 KiB to 1 MiB where its 'rep movsb' crawls";
}

Mutex& detail::profile_mutex() {
  // Never destroyed: a thread may use a profile until the process has ended.
  static auto* const kMutex = new Mutex;
  return *kMutex;
}

Error of_profile(const std::string& path, Error error) {
  error.tried = fmt::format("use the copy profile '{}'", path);
  return error;
}

Fingerprint this_machine() {
  const platform::CpuIdentity& identity = platform::cpu_identity();
  const platform::CpuFeatures& features = platform::cpu_features();
  return {.vendor = identity.vendor,
          .family = identity.family,
          .model = identity.model,
          .stepping = identity.stepping,
          .avx2 = features.avx2,
          .avx512 = features.avx512,
          .erms = features.erms,
          .l1d_bytes = identity.l1d_bytes,
          .l2_bytes = identity.l2_bytes,
          .l3_bytes = identity.l3_bytes};
}

std::string to_text(const Fingerprint& machine) {
  const char* const vectors = machine.avx512 ? "AVX-512" : machine.avx2 ? "AVX2" : "SSE";
  return fmt::format("{} family {} model {} stepping {}, {}, L2 {}, L3 {}",
                     machine.vendor.empty() ? "unknown" : machine.vendor, machine.family,
                     machine.model, machine.stepping, vectors, to_text(Bytes(machine.l2_bytes)),
                     to_text(Bytes(machine.l3_bytes)));
}

Result<Profile> parse_profile(std::string_view text) {
  if (text.size() > kProfileBytesMax) {
    return fail(Code::capacity_exceeded, "read the copy profile",
                fmt::format("it has more than {}", to_text(Bytes(kProfileBytesMax))), kRemedy);
  }
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    return fail(Code::corrupt_data, "read the copy profile", "it is not valid JSON (truncated?)",
                kRemedy);
  }
  Field::State state{.tried = "read the copy profile", .remedy = kRemedy};
  const Field root(state, &json, "");
  json::check_schema(root["schema"], kSchemaName, kProfileVersion);
  if (state.error) return fail(std::move(*state.error));
  Profile profile;
  profile.machine = read_machine(root["machine"]);
  if (!root["classes"].is_present()) root["classes"].refuse("is missing", {});
  read_classes(root["classes"], profile.classes, [](const Field& field, SizeClass& made) {
    read_variant(field["variant"], made.variant);
    read_variant(field[kColdVariant], made.cold_variant);
  });
  read_kernels(root[kFills], profile.fills);
  read_kernels(root[kComparisons], profile.comparisons);
  const auto has_cold = [](const SizeClass& each) { return each.cold_variant.has_value(); };
  if (root[kColdProbe].is_present() || std::ranges::any_of(profile.classes, has_cold)) {
    profile.cold_probe = read_cold_probe(root[kColdProbe]);
  }
  if (const Field least = root[kDsaBytesMin]; least.is_present()) {
    profile.dsa_bytes_min = least.number(UINT64_MAX, 1);
  }
  if (const Field cost = root[kWideCost]; cost.is_present()) {
    profile.wide_cost = cost.figure(kWideCostMax);
  }
  if (state.error) return fail(std::move(*state.error));
  return profile;
}

std::string to_json(const Profile& profile) {
  Json json;
  json["schema"] = {{"name", kSchemaName}, {"version", kProfileVersion}};
  json["machine"] = to_json_value(profile.machine);
  json["classes"] = Json::array();
  for (const SizeClass& each : profile.classes) {
    Json entry = {{"bytes_max", each.bytes_max}, {"variant", nullptr}};
    if (each.variant) entry["variant"] = to_text(*each.variant);
    if (each.cold_variant) entry[kColdVariant] = to_text(*each.cold_variant);
    json["classes"].push_back(std::move(entry));
  }
  const auto add_kernels = [&json](const char* key, const auto& classes) {
    for (const auto& each : classes) {
      Json entry = {{"bytes_max", each.bytes_max}, {"kernel", nullptr}};
      if (each.kernel) entry["kernel"] = std::string(name(*each.kernel));
      json[key].push_back(std::move(entry));
    }
  };
  add_kernels(kFills, profile.fills);
  add_kernels(kComparisons, profile.comparisons);
  if (profile.cold_probe) {
    json[kColdProbe] = {{"ticks_min", profile.cold_probe->ticks_min},
                        {"ticks_max", profile.cold_probe->ticks_max}};
  }
  if (profile.dsa_bytes_min) json[kDsaBytesMin] = *profile.dsa_bytes_min;
  if (profile.wide_cost) json[kWideCost] = *profile.wide_cost;
  // Replaces invalid UTF-8 instead of throwing.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Profile> load_profile(const std::string& path) {
  const auto text = platform::load_file(path, kProfileBytesMax);
  if (!text) return fail(of_profile(path, text.error()));
  auto profile = parse_profile(*text);
  if (!profile) return fail(of_profile(path, profile.error()));
  return profile;
}

Result<void> use_profile(const Profile& profile, Dispatch<Move>& dispatch) {
  Dispatch chosen(dispatch.fallback());
  HEADRACE_TAKE(moves, generate(profile, chosen));
  const Lock lock(detail::profile_mutex());
  choose_moves(std::move(*moves), chosen, dispatch);
  return {};
}

Result<void> use_kernels(const Profile& profile, Dispatch<Fill>& fills,
                         Dispatch<FirstDifference>& comparisons) {
  if (auto ours = check_machine(profile); !ours) return ours;
  if (auto there = check_kernels(profile); !there) return there;
  const Lock lock(detail::profile_mutex());
  choose_kernels(profile.fills, fill_of, fills);
  choose_kernels(profile.comparisons, first_difference_of, comparisons);
  return {};
}

Result<void> use_profile(const Profile& profile) {
  // Everything that can fail comes first, so that a failure changes nothing.
  if (auto there = check_kernels(profile); !there) return there;
  Dispatch chosen(detail::default_dispatch.fallback());
  HEADRACE_TAKE(moves, generate(profile, chosen));
  const Lock lock(detail::profile_mutex());
  choose_moves(std::move(*moves), chosen, detail::default_dispatch);
  choose_kernels(profile.fills, fill_of, detail::default_fills());
  choose_kernels(profile.comparisons, first_difference_of, detail::default_comparisons());
  return {};
}

void use_no_profile() {
  const Lock lock(detail::profile_mutex());
  detail::default_dispatch.choose_fallback();
  detail::default_fills().choose_fallback();
  detail::default_comparisons().choose_fallback();
}

std::string default_profile_path() {
  if (const auto named = platform::trusted_variable("HEADRACE_PROFILE")) {
    return *named == "none" ? std::string() : *named;
  }
  if (const auto config = platform::trusted_variable("XDG_CONFIG_HOME")) {
    return *config + "/headrace/copy.json";
  }
  if (const auto home = platform::trusted_variable("HOME")) {
    return *home + "/.config/headrace/copy.json";
  }
  return {};
}

const ProfileReport& use_default_profile() {
  static const ProfileReport kReport = [] {
    ProfileReport report;
    report.path = default_profile_path();
    if (report.path.empty()) {
      report.note = "no profile path: copies use the C library";
      return report;
    }
    const auto profile = load_profile(report.path);
    const Result<void> used = profile ? use_profile(*profile) : Result<void>(fail(profile.error()));
    if (!used) {
      static_cast<void>(use_profile(detail::untuned_profile()));
      const Error problem = profile ? of_profile(report.path, used.error()) : used.error();
      report.note =
          problem.code == Code::not_found
              ? fmt::format("there is no profile '{}': copies use the C library", report.path)
              : problem.message();
      report.note += detail::note_of_guard();
      return report;
    }
    report.used = true;
    report.dsa_bytes_min = profile->dsa_bytes_min;
    report.note = fmt::format("copies are tuned by the profile '{}'", report.path);
    return report;
  }();
  return kReport;
}

}  // namespace headrace::copy
