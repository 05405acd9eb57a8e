// SPDX-License-Identifier: Apache-2.0
// Runs a model in the checker and prints how many interleavings were explored. Shared by all
// models; contains none of the code under test.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <streambuf>
#include <string>
#include <type_traits>
#include <typeinfo>

#include "headrace/base/relacy.hpp"

namespace headrace::test {

/// Extent of the exploration: full with two threads; with three threads, which would take too long,
/// every interleaving with a bounded number of preemptions. What takes seconds is long_full:
/// bounded if HEADRACE_MODEL_PREEMPTIONS is set, as in 'make test', otherwise full, as in 'make
/// check'.
struct Search {
  // Types, since each scheduler is compiled for each model that uses it.
  static constexpr struct Full {
  } full{};
  static constexpr struct LongFull {
  } long_full{};
  static constexpr struct Bounded {
  } bounded{};
};

inline unsigned preemption_max() {
  const char* const text = std::getenv("HEADRACE_MODEL_PREEMPTIONS");
  return text == nullptr ? 3U : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

/// Keeps the beginning of the output. Does not allocate: the checker would treat memory freed while
/// it reports as part of the simulation.
class Report : public std::streambuf {
 public:
  Report() { setp(text_.data(), text_.data() + text_.size()); }
  [[nodiscard]] std::string text() const { return {pbase(), pptr()}; }

 protected:
  int_type overflow(int_type written) override { return traits_type::not_eof(written); }

 private:
  std::array<char, 8192> text_{};
};

/// As rl::simulate, which compiles every scheduler.
template <typename Model, template <rl::thread_id_t> typename Scheduler>
bool simulate(rl::test_params& parameters) {
  using Chosen = Scheduler<Model::params::thread_count>;
  parameters.test_name = typeid(Model).name();
  rl::ostringstream state;
  if (rl::run_test<Model, Chosen>(parameters, state, false) == rl::test_result_success) return true;
  // Again, with a history.
  parameters.initial_state = parameters.final_state = state.str();
  parameters.collect_history = true;
  rl::ostringstream again;
  rl::run_test<Model, Chosen>(parameters, again, true);
  return false;
}

/// Explores the model and prints the number of interleavings.
template <typename Model, typename Extent>
void explore(const char* name, Extent, unsigned preemptions = preemption_max()) {
  rl::test_params parameters;
  constexpr bool kLong = std::is_same_v<Extent, Search::LongFull>;
  if (kLong) preemptions = 4;
  Report report;
  std::ostream out(&report);
  const bool is_full = std::is_same_v<Extent, Search::Full> ||
                       (kLong && std::getenv("HEADRACE_MODEL_PREEMPTIONS") == nullptr);
  parameters.search_type = is_full ? rl::sched_full : rl::sched_bound;
  parameters.context_bound = preemptions;
  parameters.output_stream = &out;
  parameters.progress_stream = &out;
  bool passed = false;
  if constexpr (!std::is_same_v<Extent, Search::Bounded>) {
    if (is_full) passed = simulate<Model, rl::full_search_scheduler>(parameters);
  }
  if constexpr (!std::is_same_v<Extent, Search::Full>) {
    if (!is_full) passed = simulate<Model, rl::context_bound_scheduler>(parameters);
  }
  const std::string how =
      is_full ? "all of them" : "all with " + std::to_string(preemptions) + " preemptions";
  const auto count = static_cast<unsigned long long>(parameters.stop_iteration);
  if (passed) {
    std::printf("model: %s: %llu interleavings, %s\n", name, count, how.c_str());
  } else {
    std::printf("model: %s: fails in interleaving %llu\n", name, count);
  }
  std::fflush(stdout);
  EXPECT_TRUE(passed) << report.text();
  EXPECT_GT(parameters.stop_iteration, 1U);
}

}  // namespace headrace::test
