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

#include "headrace/base/relacy.hpp"

namespace headrace::test {

/// Extent of the exploration: full with two threads; with three threads, which would take too long,
/// every interleaving with a bounded number of preemptions. What takes seconds is long_full:
/// bounded if HEADRACE_MODEL_PREEMPTIONS is set, as in 'make test', otherwise full, as in 'make
/// check'.
enum class Search : std::uint8_t { full, long_full, bounded };

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

/// Explores the model and prints the number of interleavings.
template <typename Model>
void explore(const char* name, Search search, unsigned preemptions = preemption_max()) {
  rl::test_params parameters;
  if (search == Search::long_full) preemptions = 4;
  Report report;
  std::ostream out(&report);
  const bool is_full =
      search == Search::full ||
      (search == Search::long_full && std::getenv("HEADRACE_MODEL_PREEMPTIONS") == nullptr);
  parameters.search_type = is_full ? rl::sched_full : rl::sched_bound;
  parameters.context_bound = preemptions;
  parameters.output_stream = &out;
  parameters.progress_stream = &out;
  const bool passed = rl::simulate<Model>(parameters);
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
