// SPDX-License-Identifier: Apache-2.0
// Profiles as JSON, and their search path. nlohmann-json and its exceptions stay in this file.
#include "headrace/copy/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "default_kernels.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/base/units.hpp"
#include "headrace/platform/cpu.hpp"
#include "headrace/platform/descriptor.hpp"
#include "headrace/platform/process.hpp"
#include "headrace/platform/ticks.hpp"

namespace headrace::copy {
namespace {

/// For reading: finds members in logarithmic time, as a file may have any number.
using Json = nlohmann::json;
/// For writing: keeps the order of members.
using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kSchemaName = "headrace-copy-profile";
constexpr std::uint64_t kClassBytesMax = std::uint64_t{1} << 62U;
constexpr std::size_t kVendorLengthMax = 64;
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

Failure corrupt(std::string cause) {
  return fail(Code::corrupt_data, "read the copy profile", std::move(cause), kRemedy);
}

/// The member of an object; null if there is none.
const Json& member(const Json& object, const char* key) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}

bool read(const Json& object, const char* key, bool& value) {
  const Json& found = member(object, key);
  if (found.is_boolean()) value = found.get<bool>();
  return found.is_boolean();
}

bool read(const Json& object, const char* key, std::uint64_t& value) {
  const Json& found = member(object, key);
  if (found.is_number_unsigned()) value = found.get<std::uint64_t>();
  return found.is_number_unsigned();
}

bool read(const Json& object, const char* key, std::uint32_t& value) {
  std::uint64_t wide = 0;
  const bool fits = read(object, key, wide) && wide <= UINT32_MAX;
  if (fits) value = static_cast<std::uint32_t>(wide);
  return fits;
}

bool read(const Json& object, const char* key, std::string& value, std::size_t length_max) {
  const Json& found = member(object, key);
  const auto* const text = found.get_ptr<const std::string*>();
  if (text == nullptr || text->size() > length_max) return false;
  value = *text;
  return true;
}

bool read_machine(const Json& json, Fingerprint& machine) {
  return read(json, "vendor", machine.vendor, kVendorLengthMax) &&
         read(json, "family", machine.family) && read(json, "model", machine.model) &&
         read(json, "stepping", machine.stepping) && read(json, "avx2", machine.avx2) &&
         read(json, "avx512", machine.avx512) && read(json, "erms", machine.erms) &&
         read(json, "l1d_bytes", machine.l1d_bytes) && read(json, "l2_bytes", machine.l2_bytes) &&
         read(json, "l3_bytes", machine.l3_bytes);
}

OrderedJson to_json_value(const Fingerprint& machine) {
  return {{"vendor", machine.vendor},     {"family", machine.family},
          {"model", machine.model},       {"stepping", machine.stepping},
          {"avx2", machine.avx2},         {"avx512", machine.avx512},
          {"erms", machine.erms},         {"l1d_bytes", machine.l1d_bytes},
          {"l2_bytes", machine.l2_bytes}, {"l3_bytes", machine.l3_bytes}};
}

Result<std::uint64_t> read_bytes_max(const Json& json) {
  std::uint64_t bytes_max = 0;
  if (!read(json, "bytes_max", bytes_max) || bytes_max < 2 || bytes_max > kClassBytesMax ||
      !std::has_single_bit(bytes_max)) {
    return corrupt("the bytes_max of a class is not a power of two from 2 on");
  }
  return bytes_max;
}

Result<SizeClass> read_class(const Json& json) {
  HEADRACE_TAKE(bytes_max, read_bytes_max(json));
  SizeClass made{.bytes_max = *bytes_max, .variant = {}};
  for (const auto& [key, variant] :
       {std::pair{"variant", &made.variant}, {kColdVariant, &made.cold_variant}}) {
    const Json& found = member(json, key);
    if (found.is_null()) continue;
    const auto* const text = found.get_ptr<const std::string*>();
    if (text == nullptr) {
      return corrupt(fmt::format("the {} of class {} is not a string", key, made.bytes_max));
    }
    const auto parsed = parse_variant(*text);
    if (!parsed) {
      return corrupt(fmt::format("in class {}: {}", made.bytes_max, parsed.error().cause));
    }
    *variant = *parsed;
  }
  return made;
}

template <typename Kernel>
Result<KernelClass<Kernel>> read_kernel_class(const Json& json) {
  HEADRACE_TAKE(bytes_max, read_bytes_max(json));
  KernelClass<Kernel> made{.bytes_max = *bytes_max, .kernel = {}};
  const Json& found = member(json, "kernel");
  if (found.is_null()) return made;
  const auto* const text = found.get_ptr<const std::string*>();
  if (text != nullptr) made.kernel = find_name<Kernel>(*text);
  if (!made.kernel) {
    return corrupt(fmt::format("in class {}: there is no such kernel", made.bytes_max));
  }
  return made;
}

/// Reads a list of classes, which must be in ascending order.
template <typename Class, typename Read>
Result<void> read_classes(const Json& list, std::string_view name, Read read_one,
                          std::vector<Class>& classes) {
  if (!list.is_array() || list.size() > kClassCount) {
    return corrupt(fmt::format("its {} are not a list, or too many", name));
  }
  for (const Json& entry : list) {
    HEADRACE_TAKE(made, read_one(entry));
    if (!classes.empty() && made->bytes_max <= classes.back().bytes_max) {
      return corrupt(fmt::format("its {} are not in ascending order", name));
    }
    classes.push_back(*made);
  }
  return {};
}

/// Reads the fills and comparisons, which are optional.
Result<void> read_kernels(const Json& json, Profile& profile) {
  if (const Json& list = member(json, kFills); !list.is_null()) {
    if (auto done = read_classes(list, kFills, read_kernel_class<FillKernel>, profile.fills); !done)
      return done;
  }
  if (const Json& list = member(json, kComparisons); !list.is_null()) {
    return read_classes(list, kComparisons, read_kernel_class<CompareKernel>, profile.comparisons);
  }
  return {};
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
  if (auto fills = check_kernels(profile.fills, fill_of); !fills) return fills;
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

/// Returns false if the probe is invalid, or missing though a class needs it.
bool read_cold_probe(const Json& json, Profile& profile) {
  if (json.is_null()) {
    return std::ranges::none_of(
        profile.classes, [](const SizeClass& each) { return each.cold_variant.has_value(); });
  }
  ColdProbe probe;
  if (!read(json, "ticks_min", probe.ticks_min) || !read(json, "ticks_max", probe.ticks_max) ||
      probe.ticks_min == 0 || probe.ticks_min >= probe.ticks_max || probe.ticks_max > kTicksMax) {
    return false;
  }
  profile.cold_probe = probe;
  return true;
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
  if (json.is_discarded()) return corrupt("it is not valid JSON (truncated?)");
  const Json& schema = member(json, "schema");
  std::string schema_name;
  if (!read(schema, "name", schema_name, kVendorLengthMax) || schema_name != kSchemaName) {
    return corrupt("it is not a copy profile");
  }
  std::uint64_t version = 0;
  if (!read(schema, "version", version)) return corrupt("it has no version");
  if (version != kProfileVersion) {
    return fail(
        Code::version_mismatch, "read the copy profile",
        fmt::format("it has version {} and this program reads {}", version, kProfileVersion),
        kRemedy);
  }
  Profile profile;
  if (!read_machine(member(json, "machine"), profile.machine)) {
    return corrupt("its 'machine' is missing or invalid");
  }
  if (auto done = read_classes(member(json, "classes"), "classes", read_class, profile.classes);
      !done) {
    return fail(std::move(done.error()));
  }
  HEADRACE_TRY(read_kernels(json, profile));
  if (!read_cold_probe(member(json, kColdProbe), profile)) {
    return corrupt(fmt::format("its {} is missing or invalid", kColdProbe));
  }
  if (const Json& least = member(json, kDsaBytesMin); !least.is_null()) {
    if (!least.is_number_unsigned() || least.get<std::uint64_t>() == 0) {
      return corrupt(fmt::format("its {} is not a positive length", kDsaBytesMin));
    }
    profile.dsa_bytes_min = least.get<std::uint64_t>();
  }
  if (const Json& cost = member(json, kWideCost); !cost.is_null()) {
    if (!cost.is_number() || cost.get<double>() <= 0 || cost.get<double>() > kWideCostMax) {
      return corrupt(fmt::format("its {} is not a positive factor", kWideCost));
    }
    profile.wide_cost = cost.get<double>();
  }
  return profile;
}

std::string to_json(const Profile& profile) {
  OrderedJson json;
  json["schema"] = {{"name", kSchemaName}, {"version", kProfileVersion}};
  json["machine"] = to_json_value(profile.machine);
  json["classes"] = OrderedJson::array();
  for (const SizeClass& each : profile.classes) {
    OrderedJson entry = {{"bytes_max", each.bytes_max}, {"variant", nullptr}};
    if (each.variant) entry["variant"] = to_text(*each.variant);
    if (each.cold_variant) entry[kColdVariant] = to_text(*each.cold_variant);
    json["classes"].push_back(std::move(entry));
  }
  const auto add_kernels = [&json](const char* key, const auto& classes) {
    for (const auto& each : classes) {
      OrderedJson entry = {{"bytes_max", each.bytes_max}, {"kernel", nullptr}};
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
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
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
