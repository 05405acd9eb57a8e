// SPDX-License-Identifier: Apache-2.0
// Fails every allocation in turn: a call of the cache succeeds, or throws std::bad_alloc and has no
// effect. A separate executable, as it replaces operator new.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "headrace/cache/cache.hpp"
#include "headrace/platform/memory.hpp"
#include "support/cache_stage.hpp"

namespace {

/// Allocations of this thread that fail: `count` of them, from number `first` on.
struct Failing {
  std::size_t first = std::numeric_limits<std::size_t>::max();
  std::size_t count = 0;
  std::size_t made_count = 0;
  std::size_t failed_count = 0;
};
thread_local constinit Failing failing;

void* allocate(std::size_t byte_count, std::size_t alignment) {
  const std::size_t number = failing.made_count++;
  if (number >= failing.first && number - failing.first < failing.count) {
    ++failing.failed_count;
    throw std::bad_alloc();
  }
  const std::size_t rounded = (byte_count + alignment - 1) / alignment * alignment;
  if (void* const memory = std::aligned_alloc(alignment, rounded)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Out of line, or GCC reports free() in an inlined delete as a mismatch with new.
[[gnu::noinline]] void* operator new(std::size_t byte_count) {
  return allocate(byte_count, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
[[gnu::noinline]] void* operator new(std::size_t byte_count, std::align_val_t alignment) {
  return allocate(byte_count, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace headrace::cache {
namespace {

using test::CacheStage;
using test::StagedMover;

constexpr std::byte kOld{0x11};
constexpr std::byte kNew{0x22};
constexpr std::size_t kPageCount = 10;
constexpr std::size_t kForever = std::numeric_limits<std::size_t>::max();

/// Runs `call` with failing allocations. Returns whether it threw, which only such a failure may
/// cause.
bool throws(std::size_t first, std::size_t count, const std::function<void()>& call) {
  bool threw = false;
  failing = {.first = first, .count = count};
  try {
    call();
  } catch (const std::bad_alloc&) {
    threw = true;
  }
  failing.first = kForever;
  if (threw) {
    EXPECT_GT(failing.failed_count, 0U);
  }
  return threw;
}

/// A cache with room for six pages, of which one is dirty, one pinned and one promised; and the
/// expected content of the pages.
struct Scene {
  Scene() {
    for (std::size_t i = 0; i < 4; ++i) static_cast<void>(cache().access(page(i), hint(i)));
    write(page(1), kNew);
    cache().pin(page(2));
  }
  Cache& cache() { return *stage.cache; }
  [[nodiscard]] std::span<std::byte> page(std::size_t index, std::size_t count = 1) {
    return std::span(source).subspan(index * page_bytes, count * page_bytes);
  }
  static Hint hint(std::size_t index) { return index == 3 ? Hint::after(5) : Hint(); }
  /// Changes `region` through the cache.
  void write(std::span<std::byte> region, std::byte value) {
    const Change change = cache().change(region).value();
    write(change, region, value);
  }
  void write(const Change& change, std::span<std::byte> region, std::byte value) {
    std::fill(change.data().begin(), change.data().end(), value);
    std::fill_n(truth.begin() + (region.data() - source.data()), region.size(), value);
  }
  /// Invariants after any call, whether it succeeded or failed.
  void expect_sound() {
    if (stage.cache == nullptr) {
      EXPECT_TRUE(test::equal(source, truth));
      EXPECT_EQ(stage.memory->live_count(), 0U);
      return;
    }
    for (std::size_t i = 0; i < kPageCount; ++i) {
      const Entry entry = cache().access(page(i));
      entry.wait();
      EXPECT_TRUE(test::equal(entry.data(), std::span(truth).subspan(i * page_bytes, page_bytes)))
          << "page " << i;
    }
    const CacheStatistics before = stage.statistics();
    EXPECT_EQ(before.moves_failed, 0U);
    EXPECT_EQ(before.bytes_cached, stage.memory->bytes_live());
    // No change is left open.
    for (std::size_t i = 0; i < kPageCount; ++i) write(page(i), std::byte(i));
    EXPECT_TRUE(cache().write_back().has_value());
    EXPECT_TRUE(test::equal(source, truth));
    cache().clear();
    EXPECT_EQ(stage.statistics().bytes_cached, 0U);
    EXPECT_EQ(stage.memory->live_count(), 0U);
  }

  const std::size_t page_bytes = platform::page_bytes();
  std::vector<std::byte> source = std::vector<std::byte>(kPageCount * page_bytes, kOld);
  std::vector<std::byte> truth = source;
  CacheStage stage = [this] {
    CacheOptions options;
    options.capacity_per_node = Bytes(6 * page_bytes);
    return CacheStage(StagedMover::Mode::at_once, std::move(options));
  }();
  std::optional<Change> held_change;
  std::optional<Entry> held_entry;
};

struct Call {
  std::string name;
  std::function<void(Scene&)> prepare;
  std::function<void(Scene&)> make;
  /// Must not fail, however little memory there is.
  bool never_throws = false;
};

void PrintTo(const Call& call, std::ostream* stream) {
  *stream << call.name;
}

void nothing(Scene& /*scene*/) {}

void begin_change(Scene& scene) {
  scene.held_change = scene.cache().change(scene.page(1)).value();
  scene.write(*scene.held_change, scene.page(1), std::byte{0x33});
}

const std::array kCalls{
    Call{"Access", nothing,
         [](Scene& scene) { static_cast<void>(scene.cache().access(scene.page(7))); }},
    Call{"AccessThatEvicts", nothing,
         [](Scene& scene) { static_cast<void>(scene.cache().access(scene.page(5, 4))); }},
    Call{"AccessOfALongerRegion", nothing,
         [](Scene& scene) { static_cast<void>(scene.cache().access(scene.page(0, 2))); }},
    Call{"AccessThatReachesOverAChange", nothing,
         [](Scene& scene) { static_cast<void>(scene.cache().access(scene.page(1, 2))); }},
    Call{"AccessWithAPromise", nothing,
         [](Scene& scene) {
           static_cast<void>(scene.cache().access(scene.page(7), Hint::after(9)));
         }},
    Call{"WeakAccess", nothing,
         [](Scene& scene) { static_cast<void>(scene.cache().access_weak(scene.page(0))); }},
    Call{"Pin", nothing, [](Scene& scene) { scene.cache().pin(scene.page(0)); }},
    Call{"Unpin", nothing, [](Scene& scene) { scene.cache().unpin(scene.page(2)); }},
    Call{"ChangeOfWhatIsThere", nothing,
         [](Scene& scene) {
           const Change change = scene.cache().change(scene.page(0)).value();
           scene.write(change, scene.page(0), kNew);
         }},
    Call{"ChangeOfWhatIsNotThere", nothing,
         [](Scene& scene) {
           const Change change = scene.cache().change(scene.page(8)).value();
           scene.write(change, scene.page(8), kNew);
         }},
    Call{"ChangeOfWhatIsChanged", nothing,
         [](Scene& scene) {
           const Change change = scene.cache().change(scene.page(1)).value();
           scene.write(change, scene.page(1), kOld);
         }},
    Call{"ChangeThatReachesOverAnother", nothing,
         [](Scene& scene) {
           const Change change = scene.cache().change(scene.page(1, 2)).value();
           scene.write(change, scene.page(1, 2), kNew);
         }},
    Call{"WriteBack", nothing,
         [](Scene& scene) { EXPECT_TRUE(scene.cache().write_back().has_value()); }},
    Call{
        "WriteBackOfAnEntry",
        [](Scene& scene) { scene.held_entry = scene.cache().access(scene.page(1)); },
        [](Scene& scene) { EXPECT_TRUE(scene.cache().write_back(*scene.held_entry).has_value()); }},
    Call{"Flush", nothing, [](Scene& scene) { scene.cache().flush(); }},
    Call{"Invalidate", nothing, [](Scene& scene) { scene.cache().invalidate(scene.page(2, 3)); },
         true},
    Call{"InvalidateOfWhatIsChanged", nothing,
         [](Scene& scene) {
           scene.cache().invalidate(scene.page(1));
           std::fill_n(scene.truth.begin() + static_cast<std::ptrdiff_t>(scene.page_bytes),
                       scene.page_bytes, kOld);
         },
         true},
    Call{"Clear", nothing, [](Scene& scene) { scene.cache().clear(); }, true},
    Call{"EndOfTheCache", nothing, [](Scene& scene) { scene.stage.cache.reset(); }, true},
    Call{"EndOfAChange", begin_change, [](Scene& scene) { scene.held_change.reset(); }, true},
    Call{"EndOfAChangeWhoseEntryIsGone",
         [](Scene& scene) {
           begin_change(scene);
           scene.cache().clear();
         },
         [](Scene& scene) { scene.held_change.reset(); }, true},
    Call{"EndOfTheLastHandle",
         [](Scene& scene) {
           scene.held_entry = scene.cache().access(scene.page(0));
           scene.cache().clear();
         },
         [](Scene& scene) { scene.held_entry.reset(); }, true},
};

class WantOfMemory : public ::testing::TestWithParam<Call> {};

INSTANTIATE_TEST_SUITE_P(Calls, WantOfMemory, ::testing::ValuesIn(kCalls),
                         [](const auto& call) { return call.param.name; });

TEST_P(WantOfMemory, AtAnyAllocationLeavesTheCacheSound) {
  const Call& call = GetParam();
  // The n-th allocation fails alone, then with all later ones.
  for (const std::size_t count : {std::size_t{1}, kForever}) {
    for (std::size_t first = 0;; ++first) {
      SCOPED_TRACE(::testing::Message() << "allocation " << first << ", then " << count);
      Scene scene;
      call.prepare(scene);
      const bool threw = throws(first, count, [&] { call.make(scene); });
      const bool failed = failing.failed_count > 0;
      EXPECT_FALSE(threw && call.never_throws);
      scene.held_change.reset();
      scene.held_entry.reset();
      scene.expect_sound();
      if (HasFailure()) return;
      if (!failed) break;
    }
  }
}

TEST(WantOfMemory, IsNoneOfAHit) {
  Scene scene;
  static_cast<void>(scene.cache().access(scene.page(0)));
  failing = {};
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_FALSE(scene.cache().access(scene.page(i % 4)).data().empty());
  }
  EXPECT_EQ(failing.made_count, 0U);
  static_cast<void>(scene.cache().access(scene.page(8)));
  EXPECT_GT(failing.made_count, 0U) << "a miss allocates, so allocations are counted";
}

TEST(WantOfMemory, OfLeasesThrowsAndLeavesTheCacheSound) {
  Scene scene;
  std::vector<Entry> handles;
  handles.reserve(std::size_t{1} << 20U);
  // Each needs a separate slot; more than this thread has ever held at once.
  while (handles.size() < handles.capacity()) {
    if (throws(0, kForever, [&] { handles.push_back(scene.cache().access(scene.page(0))); })) break;
  }
  ASSERT_LT(handles.size(), handles.capacity());
  // A miss needs one, too, among other resources: none may leak.
  for (std::size_t first = 0;; ++first) {
    if (!throws(first, 1, [&] { static_cast<void>(scene.cache().access(scene.page(7))); }) &&
        failing.failed_count == 0) {
      break;
    }
  }
  handles.clear();
  scene.expect_sound();
}

TEST(WantOfMemory, WhileAPolicyThrowsIsCountedAll) {
  CacheOptions options;
  options.placement = [](const PlacementContext&) -> std::optional<NodeId> {
    throw std::runtime_error("the test says so");
  };
  options.observer = [](const Event&) { throw std::runtime_error("the test says so"); };
  CacheStage stage(StagedMover::Mode::at_once, std::move(options));
  const std::vector<std::byte> source(64);
  static_cast<void>(stage.cache->access(source));
  static_cast<void>(throws(0, kForever, [&] { static_cast<void>(stage.cache->access(source)); }));
  EXPECT_EQ(stage.statistics().policy_errors, 4U);
}

}  // namespace
}  // namespace headrace::cache
