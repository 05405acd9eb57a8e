// SPDX-License-Identifier: Apache-2.0
// Copy variants, kernels of fills and compares, profiles, and their measurement. Variants and
// profiles are text here; the library parses them.

#include <array>
#include <bit>
#include <tuple>

#include "bindings.hpp"
#include "headrace/copy/profile.hpp"
#include "headrace/lab/kernel_moves.hpp"
#include "headrace/lab/meter.hpp"

namespace headrace::python {
namespace {

/// A meter and the generated code of the variants measured with it; or a meter of the kernels for
/// fills or comparisons.
///
/// Threading: confined; the GIL is released while it measures.
class MeterHandle {
 public:
  MeterHandle(copy::lab::Meter meter, std::optional<bool> fills)
      : meter_(std::move(meter)), fills_(fills) {}

  /// A subject is "libc" (memmove, through the PLT), the text of a variant, or two variants
  /// separated by " | ": for cached and for uncached bytes. The first of the two may be "libc". All
  /// but "libc" are called as in use, short lengths through an entry. Of kernels: "libc" or a name.
  std::vector<double> measure_round(const std::vector<std::string>& subjects, std::size_t bytes_min,
                                    std::size_t bytes_max, const std::string& temperature,
                                    bool aligned, std::size_t thread_count) {
    if (!fills_) generate(subjects, bytes_max);
    std::vector<copy::Move> chosen;
    for (const std::string& subject : subjects) {
      chosen.push_back(fills_ ? kernel_of(subject) : subjects_.at(key_of(subject, bytes_max)));
    }
    const auto parsed = value_of(parse_name<copy::lab::Temperature>(temperature, "temperature"));
    const GilReleased released;
    return value_of(meter_.measure_round(chosen, {.bytes_min = bytes_min,
                                                  .bytes_max = bytes_max,
                                                  .temperature = parsed,
                                                  .aligned = aligned,
                                                  .thread_count = thread_count}));
  }
  [[nodiscard]] std::vector<std::string> kernels() const {
    std::vector<std::string> names;
    const auto add = [&names](auto kernel) {
      if (copy::lab::kernel_move(kernel) != nullptr) names.emplace_back(copy::name(kernel));
    };
    if (fills_.value()) {
      for (std::size_t i = 0; i < copy::kFillKernelCount; ++i) add(copy::FillKernel(i));
    } else {
      for (std::size_t i = 0; i < copy::kCompareKernelCount; ++i) add(copy::CompareKernel(i));
    }
    return names;
  }
  /// Returns ticks_min and ticks_max.
  [[nodiscard]] std::optional<std::pair<std::uint32_t, std::uint32_t>> find_cold_probe() {
    const auto found = meter_.find_cold_probe();
    if (!found) return std::nullopt;
    return std::pair(found->ticks_min, found->ticks_max);
  }
  [[nodiscard]] std::optional<double> find_wide_cost() { return meter_.find_wide_cost(); }
  /// From now on, subjects of two variants choose between them by this probe.
  void use_cold_probe(std::uint32_t ticks_min, std::uint32_t ticks_max) {
    probe_ = {.ticks_min = ticks_min, .ticks_max = ticks_max};
  }

 private:
  static copy::Routine parse_routine(const std::string& text) {
    constexpr std::string_view kOr = " | ";
    const std::size_t bar = text.find(kOr);
    if (bar == std::string::npos) return {.warm = value_of(copy::parse_variant(text)), .cold = {}};
    const copy::Variant cold = value_of(copy::parse_variant(text.substr(bar + kOr.size())));
    const std::string warm = text.substr(0, bar);
    if (warm == "libc") return {.warm = {}, .cold = cold};
    return {.warm = value_of(copy::parse_variant(warm)), .cold = cold};
  }

  using Key = std::pair<std::string, std::size_t>;

  /// Short copies are called through an entry for their class; for longer ones its compares do not
  /// matter, and the class is 0.
  static Key key_of(const std::string& subject, std::size_t byte_count) {
    constexpr std::size_t kByEntryBytesMax = 2048;
    return {subject, byte_count <= kByEntryBytesMax ? std::bit_ceil(byte_count) : 0};
  }

  /// The function of a subject, as a profile with it alone would have it.
  copy::Move entry_for(const copy::Routine& routine, copy::Move move, std::size_t bytes_max) {
    const std::array<copy::Range, 2> ranges{
        {{.bytes_max = bytes_max / 2},
         {.bytes_max = bytes_max,
          .move = move,
          .variant = routine.cold ? std::nullopt : routine.warm}}};
    codes_.push_back(value_of(copy::GeneratedCode::make_entry(ranges)));
    return codes_.back().moves().front();
  }

  void generate(const std::vector<std::string>& subjects, std::size_t bytes_max) {
    std::vector<copy::Routine> routines;
    std::vector<Key> keys;
    for (const std::string& subject : subjects) {
      const Key key = key_of(subject, bytes_max);
      if (subject == "libc") {
        subjects_[key] = copy::libc_move();
      } else if (!subjects_.contains(key)) {
        routines.push_back(parse_routine(subject));
        keys.push_back(key);
      }
    }
    if (routines.empty()) return;
    codes_.push_back(value_of(copy::GeneratedCode::make(routines, probe_)));
    const std::vector<copy::Move> moves(codes_.back().moves().begin(), codes_.back().moves().end());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      subjects_[keys[i]] =
          keys[i].second == 0 ? moves[i] : entry_for(routines[i], moves[i], keys[i].second);
    }
  }

  template <typename Kernel>
  static copy::Move move_of(const std::optional<Kernel>& kernel, const std::string& subject) {
    const copy::Move move = kernel ? copy::lab::kernel_move(*kernel) : nullptr;
    if (move != nullptr) return move;
    throw Failed{Error{Code::unsupported, 0, "measure '" + subject + "'",
                       "there is no such kernel, or it does not run here",
                       "use those that kernels() names"}};
  }
  [[nodiscard]] copy::Move kernel_of(const std::string& subject) const {
    if (subject == "libc")
      return *fills_ ? copy::lab::libc_fill_move() : copy::lab::libc_compare_move();
    if (*fills_) return move_of(find_name<copy::FillKernel>(subject), subject);
    return move_of(find_name<copy::CompareKernel>(subject), subject);
  }

  copy::lab::Meter meter_;
  std::optional<bool> fills_;  ///< Of a meter of kernels.
  copy::ColdProbe probe_;
  std::vector<copy::GeneratedCode> codes_;
  /// By name and class.
  std::map<Key, copy::Move> subjects_;
};

}  // namespace

void bind_copy(nb::module_& module) {
  nb::class_<MeterHandle>(module, "CopyMeter")
      .def_static(
          "make",
          [](std::size_t pool_bytes, std::size_t last_level_bytes, std::uint64_t seed) {
            const GilReleased released;
            return MeterHandle(
                value_of(copy::lab::Meter::make({.pool_bytes = pool_bytes,
                                                 .last_level_bytes = last_level_bytes,
                                                 .seed = seed})),
                std::nullopt);
          },
          "pool_bytes"_a, "last_level_bytes"_a, "seed"_a)
      .def_static(
          "of_kernels",
          [](std::size_t pool_bytes, bool fills, std::uint64_t seed) {
            const GilReleased released;
            return MeterHandle(value_of(copy::lab::Meter::make(
                                   {.pool_bytes = pool_bytes, .seed = seed, .alike = true})),
                               fills);
          },
          "pool_bytes"_a, "fills"_a, "seed"_a, "A meter of fills, or of comparisons.")
      .def("kernels", &MeterHandle::kernels, "Names of the kernels that run on this machine.")
      .def("measure_round", &MeterHandle::measure_round, "subjects"_a, nb::kw_only(), "bytes_min"_a,
           "bytes_max"_a, "temperature"_a, "aligned"_a, "thread_count"_a,
           "Nanoseconds per call of each subject, measured once each.")
      .def("find_cold_probe", &MeterHandle::find_cold_probe,
           "Minimum and maximum ticks to load a byte from memory; None if unknown.")
      .def("find_wide_cost", &MeterHandle::find_wide_cost, nb::call_guard<GilReleased>(),
           "Factor by which a single copy through 64-byte registers is slower than one of many; "
           "None without such registers.")
      .def("use_cold_probe", &MeterHandle::use_cold_probe, "ticks_min"_a, "ticks_max"_a,
           "Ticks by which a subject of two variants chooses between them.");

  module.def(
      "copy_variants",
      [](std::size_t byte_count) {
        std::vector<std::string> texts;
        for (const copy::Variant& variant : copy::variants_for(byte_count)) {
          texts.push_back(copy::to_text(variant));
        }
        return texts;
      },
      "byte_count"_a, "The search grid for copies of at least this many bytes.");
  module.def(
      "copy_machine_text", [] { return copy::to_text(copy::this_machine()); },
      "This machine, as profiles identify it.");
  module.def(
      "empty_copy_profile",
      [] { return copy::to_json({.machine = copy::this_machine(), .classes = {}}); },
      "A profile of this machine without classes.");
  module.def(
      "use_copy_profile",
      [](const std::string& text) {
        value_of(copy::use_profile(value_of(copy::parse_profile(text))));
      },
      "text"_a, "Use this profile for copies.");
  module.def(
      "use_copy_profile_file",
      [](const std::string& path) {
        const Result<void> used = copy::use_profile(value_of(copy::load_profile(path)));
        if (!used) throw Failed{copy::of_profile(path, used.error())};
      },
      "path"_a, "Use the profile in this file for copies; errors name the file.");
  module.def("use_no_copy_profile", &copy::use_no_profile);
  module.def("default_copy_profile_path", &copy::default_profile_path);
  module.def(
      "use_default_copy_profile",
      [] {
        const copy::ProfileReport& report = copy::use_default_profile();
        return std::tuple(report.used, report.path, report.note);
      },
      "Whether the profile of this user is used, its path, and a sentence.");
}

}  // namespace headrace::python
