// SPDX-License-Identifier: Apache-2.0
// headrace.h out of memory or threads: no function may end the program. A separate executable, as
// it replaces operator new.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "headrace.h"
#include "headrace/topo/machine.hpp"

namespace {

/// Per thread: allocations that succeed before all further ones fail.
thread_local std::size_t succeed_count = ~std::size_t{0};
thread_local bool has_failed = false;

bool may_succeed() {
  if (succeed_count == 0) {
    has_failed = true;
    return false;
  }
  --succeed_count;
  return true;
}

}  // namespace

// Out of line, or GCC reports free() in an inlined delete as a mismatch with new.
[[gnu::noinline]] void* operator new(std::size_t byte_count) {
  void* const memory = may_succeed() ? std::malloc(byte_count) : nullptr;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t byte_count, const std::nothrow_t&) noexcept {
  return may_succeed() ? std::malloc(byte_count) : nullptr;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace headrace {
namespace {

/// Calls `function` with memory for `first` allocations, then for one more each time until it
/// succeeds. Returns that number.
template <typename Function>
std::size_t with_ever_more_memory(Function function, std::size_t first = 0) {
  for (std::size_t count = first;; ++count) {
    succeed_count = count;
    has_failed = false;
    function();
    const std::size_t left = succeed_count;
    succeed_count = ~std::size_t{0};
    if (!has_failed) return count - left;
  }
}

TEST(CInterface, SurvivesThatThereIsNoMemoryLeft) {
  headrace_engine_options options{};
  options.struct_size = sizeof options;
  options.threads_per_node = 1;
  options.no_devices = true;
  headrace_error error{};
  headrace_engine* engine = headrace_engine_make(&options, &error);
  ASSERT_NE(engine, nullptr) << error.text;
  headrace_mover mover{};
  headrace_device_statistics device{};
  headrace_kind_statistics kind{};
  EXPECT_EQ(with_ever_more_memory([&] {
              EXPECT_EQ(headrace_mover_count(engine), 1U);
              EXPECT_TRUE(headrace_mover_info(engine, 0, &mover));
              EXPECT_NE(headrace_note(engine, 0), nullptr);
              EXPECT_TRUE(headrace_engine_kind_statistics(engine, HEADRACE_KIND_COPY, &kind));
              EXPECT_EQ(headrace_engine_statistics(engine).jobs_submitted, 0U);
              EXPECT_GT(headrace_engine_thresholds(engine).synchronous_bytes, 0U);
            }),
            0U)
      << "none of these asks for memory";
  std::size_t told_count = 0;
  EXPECT_GT(with_ever_more_memory(
                [&] { told_count += headrace_mover_statistics(engine, 0, &device) ? 1 : 0; }),
            0U);
  EXPECT_EQ(told_count, 1U);
  headrace_engine_free(engine);

  // Excludes the discovery of the machine: out of memory, libstdc++'s directory_iterator ends the
  // program there.
  std::size_t discovery_count = 1'000'000;
  discovery_count = with_ever_more_memory(
      [] { EXPECT_TRUE(topo::discover({.find_movers = false}).has_value()); }, discovery_count);
  std::size_t refused_count = 0;
  with_ever_more_memory(
      [&] {
        error = {};
        engine = headrace_engine_make(&options, &error);
        if (engine == nullptr) {
          EXPECT_STREQ(error.code, "out_of_memory");
          EXPECT_NE(std::strstr(error.text, "no memory left"), nullptr);
          ++refused_count;
        }
        headrace_engine_free(engine);
      },
      discovery_count);
  EXPECT_GT(refused_count, 10U);
}

TEST(CInterface, SurvivesThatThereIsNoThreadLeft) {
  pthread_attr_t usual;
  pthread_attr_t huge;
  ASSERT_EQ(::pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(::pthread_attr_init(&huge), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&huge, std::size_t{1} << 46U), 0);
  ASSERT_EQ(::pthread_setattr_default_np(&huge), 0);
  headrace_error error{};
  headrace_engine* const engine = headrace_engine_make(nullptr, &error);
  ASSERT_EQ(::pthread_setattr_default_np(&usual), 0);
  EXPECT_EQ(engine, nullptr);
  EXPECT_STREQ(error.code, "unsupported");
  EXPECT_NE(std::strstr(error.text, "worker"), nullptr) << error.text;
}

}  // namespace
}  // namespace headrace
