// SPDX-License-Identifier: Apache-2.0
// At a limit of the system (mappings, address space, threads, memory of a node) calls are refused
// with a name, nothing is lost, and what was taken is given back: mappings, pages and files are
// counted before and after HEADRACE_LIMITS_OPERATIONS operations of a cache, a store and an engine
// ('make soak': a million).
//
// Each limit is reached in a process of its own.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/random.hpp"
#include "headrace/cache/cache.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/platform/wait.hpp"
#include "headrace/store/store.hpp"
#include "support/seed.hpp"
#include "support/taken.hpp"

namespace headrace {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t operations() {
  const char* const given = std::getenv("HEADRACE_LIMITS_OPERATIONS");
  return given != nullptr ? std::stoull(given) : 8'000;
}

const topo::Machine& machine() {
  static const topo::Machine kMachine = topo::discover({.find_movers = false}).value();
  return kMachine;
}
NodeId node() {
  return machine().nodes.front().id;
}

Result<std::unique_ptr<engine::Engine>> make_engine() {
  return engine::Engine::make(
      machine(), {.threads_per_node = 1, .nodes = {node()}, .devices = {.use = false}});
}
Result<std::unique_ptr<store::Store>> make_store(engine::Engine& engine, Bytes capacity) {
  return store::Store::make(
      engine, {.block_bytes = Bytes(kPage), .tiers = {{.capacity = capacity, .node = node()}}});
}

/// Uses of a cache, a store and an engine at random, and what they must find.
class Scene {
 public:
  Scene() {
    for (std::size_t i = 0; i < source_.size(); ++i)
      source_[i] = static_cast<std::byte>(i * 7 / kPage);
    cache::CacheOptions options;
    options.placement = cache::placement::on(node());
    options.capacity_per_node = mib(128);
    cache_ = std::move(cache::Cache::make(machine(), *engine_, std::move(options)).value());
  }
  void work(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      try {
        use(random_.below(4));
      } catch (const std::bad_alloc&) {
        ++refused_;  // Without effect, as the calls promise.
      }
    }
  }
  /// Since the last call.
  std::size_t refused() { return std::exchange(refused_, 0); }
  engine::Engine& engine() { return *engine_; }

 private:
  void use(std::uint64_t what) {
    if (what == 0) {
      const std::string key = std::to_string(random_.below(put_.size()));
      const std::size_t number = std::stoul(key);
      std::vector<std::byte> block(kPage, static_cast<std::byte>(random_.below(256)));
      if (random_.chance(1, 2)) {
        const store::Outcome end = store_->put(key, block).outcome;
        EXPECT_EQ(end, store::Outcome::done) << "in memory that the store has";
        put_[number] = block.front();
      } else if (put_[number]) {
        EXPECT_EQ(store_->get(key, block).outcome, store::Outcome::done);
        EXPECT_EQ(block.back(), *put_[number]);
      }
      return;
    }
    const std::size_t page_count = 1 + random_.below(random_.chance(1, 8) ? 1024 : 64);
    const std::size_t first = random_.below(source_.size() / kPage - page_count) * kPage;
    const auto region = std::span(source_).subspan(first, page_count * kPage);
    const cache::Entry entry = cache_->access(region);
    entry.wait();
    if (!entry.cached()) ++refused_;
    ASSERT_EQ(entry.data().size(), region.size());
    EXPECT_EQ(entry.data().front(), region.front());
    EXPECT_EQ(entry.data().back(), region.back());
    held_[random_.below(held_.size())] = entry;
  }

  Random random_{test::seed()};
  std::vector<std::byte> source_ = std::vector<std::byte>(std::size_t{64} << 20U);
  std::unique_ptr<engine::Engine> engine_ = std::move(make_engine().value());
  std::unique_ptr<store::Store> store_ = std::move(make_store(*engine_, mib(1)).value());
  std::unique_ptr<cache::Cache> cache_;
  std::array<std::optional<std::byte>, 64> put_{};
  std::array<std::optional<cache::Entry>, 16> held_;
  std::size_t refused_ = 0;
};

/// Something that limits the process, and what it is certain to refuse.
struct Limit {
  std::function<void()> set;
  std::function<void()> lift;
  bool refuses_memory = false;
  bool refuses_threads = false;
};

/// Returns whether it was refused, which must be said by name.
template <typename Make>
bool is_refused(const Make& make) {
  try {
    const auto made = make();
    if (made.has_value()) return false;
    const Error& error = made.error();
    EXPECT_TRUE(error.code == Code::out_of_memory || error.code == Code::unsupported)
        << error.message();
    EXPECT_FALSE(error.remedy.empty()) << error.message();
  } catch (const std::bad_alloc&) {
  }
  return true;
}

void use_up_to(const Limit& limit) {
  const auto run = [&](std::size_t count) {
    Scene scene;
    limit.set();
    scene.work(count);
    if (limit.refuses_memory) {
      EXPECT_GT(scene.refused(), 0U);
    }
    for (std::size_t i = 0; i < std::min<std::size_t>(1 + count / 100, 1000); ++i) {
      const bool has_no_memory = is_refused([&] { return make_store(scene.engine(), mib(64)); });
      const bool has_no_thread = is_refused(make_engine);
      EXPECT_TRUE(has_no_memory || !limit.refuses_memory);
      EXPECT_TRUE(has_no_thread || !limit.refuses_threads);
    }
    limit.lift();
    // A full node is not asked at each access.
    scene.work(1000);
    static_cast<void>(scene.refused());
    scene.work(1000);
    EXPECT_EQ(scene.refused(), 0U) << "after the limit";
  };
  run(2000);
  const test::Taken before;
  run(operations());
  const test::Taken after;
  std::printf("%zu operations: %llu mappings, %llu pages before; %llu, %llu after\n", operations(),
              static_cast<unsigned long long>(before.mappings),
              static_cast<unsigned long long>(before.pages),
              static_cast<unsigned long long>(after.mappings),
              static_cast<unsigned long long>(after.pages));
  EXPECT_LE(after.mappings, before.mappings + 8) << "of the heaps of threads";
  EXPECT_LE(after.pages, before.pages + 8192) << "as above";
  EXPECT_EQ(after.files, before.files);
}

void in_child(const std::function<void()>& body) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator ends the process when memory is refused";
#endif
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    std::fflush(stdout);
    ::_exit(::testing::Test::HasFailure() ? 1 : ::testing::Test::IsSkipped() ? 77 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "see above";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

void set_limit(__rlimit_resource resource, rlim_t most) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(resource, &limit), 0);
  limit.rlim_cur = std::min(most, limit.rlim_max);
  ASSERT_EQ(::setrlimit(resource, &limit), 0);
}

TEST(Limits, OfMappings) {
  in_child([] {
    std::size_t count = 0;
    std::ifstream("/proc/sys/vm/max_map_count") >> count;
    if (count > 1'000'000) GTEST_SKIP() << "vm.max_map_count is " << count;
    void* all = nullptr;
    const auto set = [&] {
      all = ::mmap(nullptr, count * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      for (std::size_t i = 1; i < count; i += 2) {
        if (::mprotect(static_cast<std::byte*>(all) + i * kPage, kPage, PROT_READ) != 0) return;
      }
      FAIL() << "the process may have more mappings than the system says";
    };
    use_up_to({.set = set, .lift = [&] { ::munmap(all, count * kPage); }});
  });
}

TEST(Limits, OfTheAddressSpace) {
  in_child([] {
    const auto set = [] {
      std::uint64_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      set_limit(RLIMIT_AS, (pages << 12U) + (4U << 20U));
    };
    use_up_to(
        {.set = set, .lift = [] { set_limit(RLIMIT_AS, RLIM_INFINITY); }, .refuses_memory = true});
  });
}

TEST(Limits, OfThreads) {
  in_child([] {
    // Root is exempt.
    const bool is_root = ::geteuid() == 0;
    ASSERT_TRUE(!is_root || ::setresuid(65534, 65534, 65534) == 0);
    use_up_to({.set = [] { set_limit(RLIMIT_NPROC, 0); },
               .lift = [] { set_limit(RLIMIT_NPROC, RLIM_INFINITY); },
               .refuses_threads = true});
  });
}

/// The kernel's file with the free memory of the node is covered by one of the test's, which the
/// process alone sees.
TEST(Limits, OfANodeWithoutFreeMemory) {
  namespace fs = std::filesystem;
  const fs::path shown =
      fs::temp_directory_path() / ("headrace-meminfo-" + std::to_string(::getpid()));
  in_child([&] {
    const std::string real =
        "/sys/devices/system/node/node" + std::to_string(node().value()) + "/meminfo";
    const auto show = [&](const char* free_kib) {
      std::ofstream(shown) << "Node 0 MemFree: " << free_kib << " kB\n";
      platform::sleep(std::chrono::milliseconds(20));  // What was seen is stale then.
    };
    show("8388608");
    if ((::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(shown.c_str(), real.c_str(), nullptr, MS_BIND, nullptr) != 0) {
      GTEST_SKIP() << "this process may not mount";
    }
    use_up_to(
        {.set = [&] { show("0"); }, .lift = [&] { show("8388608"); }, .refuses_memory = true});
  });
  fs::remove(shown);
}

}  // namespace
}  // namespace headrace
