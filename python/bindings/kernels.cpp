// SPDX-License-Identifier: Apache-2.0
// Measures fill and compare kernels; profiles name them (copy.cpp).

#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "headrace/lab/kernel_moves.hpp"
#include "headrace/lab/meter.hpp"

namespace headrace::python {
namespace {

/// A meter of fill or of compare kernels.
///
/// Threading: confined; the GIL is released while it measures.
class KernelMeter {
 public:
  KernelMeter(copy::lab::Meter meter, bool fills) : meter_(std::move(meter)), fills_(fills) {}

  [[nodiscard]] std::vector<std::string> kernels() const {
    std::vector<std::string> names;
    const auto add = [&names](auto kernel) {
      if (copy::lab::kernel_move(kernel) != nullptr) names.emplace_back(copy::name(kernel));
    };
    if (fills_) {
      for (std::size_t i = 0; i < copy::kFillKernelCount; ++i) add(copy::FillKernel(i));
    } else {
      for (std::size_t i = 0; i < copy::kCompareKernelCount; ++i) add(copy::CompareKernel(i));
    }
    return names;
  }

  /// A subject is "libc" or a kernel.
  std::vector<double> measure_round(const std::vector<std::string>& subjects,
                                    const copy::lab::Conditions& conditions) {
    std::vector<copy::Move> chosen;
    for (const std::string& subject : subjects) chosen.push_back(move_of(subject));
    const GilReleased released;
    return value_of(meter_.measure_round(chosen, conditions));
  }
  [[nodiscard]] std::uint64_t batch_count() const { return meter_.batch_count(); }

 private:
  template <typename Kernel>
  static copy::Move move_of(const std::optional<Kernel>& kernel, const std::string& subject) {
    const copy::Move move = kernel ? copy::lab::kernel_move(*kernel) : nullptr;
    if (move != nullptr) return move;
    throw Failed{Error{Code::unsupported, 0, "measure '" + subject + "'",
                       "there is no such kernel, or it does not run here",
                       "use those that kernels() names"}};
  }
  [[nodiscard]] copy::Move move_of(const std::string& subject) const {
    if (subject == "libc")
      return fills_ ? copy::lab::libc_fill_move() : copy::lab::libc_compare_move();
    if (fills_) return move_of(find_name<copy::FillKernel>(subject), subject);
    return move_of(find_name<copy::CompareKernel>(subject), subject);
  }

  copy::lab::Meter meter_;
  bool fills_;
};

}  // namespace

void bind_kernels(nb::module_& module) {
  nb::class_<KernelMeter>(module, "KernelMeter", "Measures fills or comparisons.")
      .def_static(
          "make",
          [](std::size_t pool_bytes, bool fills, std::uint64_t seed) {
            GilReleased released;
            return KernelMeter(value_of(copy::lab::Meter::make(
                                   {.pool_bytes = pool_bytes, .seed = seed, .alike = true})),
                               fills);
          },
          "pool_bytes"_a, "fills"_a, "seed"_a)
      .def("kernels", &KernelMeter::kernels, "Names of the kernels that run on this machine.")
      .def(
          "measure_round",
          [](KernelMeter& meter, const std::vector<std::string>& subjects, std::size_t bytes_min,
             std::size_t bytes_max, const std::string& temperature, bool aligned,
             std::size_t thread_count) {
            return meter.measure_round(
                subjects, {.bytes_min = bytes_min,
                           .bytes_max = bytes_max,
                           .temperature = temperature == "cold" ? copy::lab::Temperature::cold
                                                                : copy::lab::Temperature::hot,
                           .aligned = aligned,
                           .thread_count = thread_count});
          },
          "subjects"_a, nb::kw_only(), "bytes_min"_a, "bytes_max"_a, "temperature"_a, "aligned"_a,
          "thread_count"_a, "Nanoseconds per call of each subject, measured once each.")
      .def("batch_count", &KernelMeter::batch_count);
}

}  // namespace headrace::python
