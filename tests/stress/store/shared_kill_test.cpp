// SPDX-License-Identifier: Apache-2.0
// A server of a store and two clients in other processes, of which one after the other is killed:
// every acknowledged block in the file is there, none is torn, and none is older than what was
// acknowledged before its get. HEADRACE_KILLS is their number, 12 by default.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <thread>

#include "headrace/base/atomic.hpp"
#include "headrace/base/clock.hpp"
#include "headrace/store/shared.hpp"
#include "support/seed.hpp"
#include "support/store_stage.hpp"

namespace headrace::store::shared_kill_test {
namespace {

using test::block_bytes;
using test::version_of;

constexpr std::uint64_t kKeys = 24;
constexpr std::uint64_t kClients = 2;
constexpr std::size_t kBlockBytes = 8192;

/// In memory that outlives the processes. A key is put by one client; the others get it.
struct Notes {
  std::array<Atomic<std::uint64_t>, kKeys> begun;
  std::array<Atomic<std::uint64_t>, kKeys> acknowledged;
  Atomic<std::uint64_t> puts;
  Atomic<std::uint64_t> gets;
  Atomic<std::uint64_t> closed;
  Atomic<std::uint64_t> slow;  ///< Calls above a second: many on a loaded machine.
};

Notes& make_notes() {
  void* const mapped =
      ::mmap(nullptr, sizeof(Notes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) std::abort();
  return *new (mapped) Notes;
}

int serve(const test::Folder& folder) {
  const auto engine = test::worker_engine();
  const auto server =
      Server::make(*engine, {.socket = folder.file("socket"),
                             .store = {.block_bytes = Bytes(kBlockBytes),
                                       .tiers = {{.capacity = Bytes(64 * kBlockBytes)},
                                                 {.capacity = Bytes(160 * kBlockBytes),
                                                  .path = folder.file("blocks")}}}});
  if (!server) {
    std::fprintf(stderr, "%s\n", server.error().message().c_str());
    return 3;
  }
  while (true) ::pause();
}

/// Ends only if something is wrong.
int use(const test::Folder& folder, Notes& notes, std::uint64_t me, std::uint64_t seed) {
  const auto engine = test::worker_engine();
  std::unique_ptr<Store> store;
  Random random(seed);
  std::vector<std::byte> bytes(kBlockBytes);
  while (true) {
    while (store == nullptr) {
      auto made = connect(*engine, folder.file("socket"));
      if (made) store = std::move(*made);
      // The server, or a client that was killed, is ending.
      if (!made && made.error().code != Code::not_found &&
          made.error().code != Code::capacity_exceeded) {
        std::fprintf(stderr, "%s\n", made.error().message().c_str());
        return 4;
      }
    }
    bool is_closed = false;
    const std::uint64_t key = random.below(kKeys);
    const std::string name = std::to_string(key);
    const auto begin = steady_clock().now();
    if (key % kClients == me && random.below(2) == 0) {
      const std::uint64_t change = notes.begun[key].load_relaxed() + 1;  // relaxed: mine.
      // edge: test-kill-history (release)
      notes.begun[key].store_release(change);
      const auto block = block_bytes(key, change, 16 + random.below(kBlockBytes - 15));
      const Outcome outcome = store->put(name, block, 1).outcome;
      // edge: test-kill-history (release)
      if (outcome == Outcome::done) notes.acknowledged[key].store_release(change);
      is_closed = outcome == Outcome::closed;
      if (outcome != Outcome::done && !is_closed) {
        std::fprintf(stderr, "a put is %s\n", std::string(headrace::store::name(outcome)).c_str());
        return 5;
      }
      (outcome == Outcome::done ? notes.puts : notes.closed).fetch_add_relaxed(1);  // A count.
    } else {
      // edge: test-kill-history (acquire)
      const std::uint64_t first = notes.acknowledged[key].load_acquire();
      const BlockEnd end = store->get(name, bytes);
      // edge: test-kill-history (acquire)
      const std::uint64_t last = notes.begun[key].load_acquire();
      const auto seen = version_of(key, std::span(bytes).first(end.byte_count));
      is_closed = end.outcome == Outcome::closed;
      const bool is_right = end.outcome == Outcome::done
                                ? seen.has_value() && *seen >= first && *seen <= last
                                : end.outcome == Outcome::closed ||
                                      (end.outcome == Outcome::unknown_key && first == 0);
      if (!is_right) {
        std::fprintf(stderr, "key %d is %s, version %d, acknowledged %d, begun %d\n",
                     static_cast<int>(key), std::string(headrace::store::name(end.outcome)).c_str(),
                     static_cast<int>(seen.value_or(0)), static_cast<int>(first),
                     static_cast<int>(last));
        return 6;
      }
      (end.outcome != Outcome::closed ? notes.gets : notes.closed).fetch_add_relaxed(1);
    }
    if (steady_clock().now() - begin > std::chrono::milliseconds(1500)) {
      notes.slow.fetch_add_relaxed(1);  // A count.
    }
    if (is_closed && random.below(2) == 0) store.reset();  // Otherwise it connects again.
  }
}

TEST(SharedStoreKill, AcknowledgedBlocksAreThereAndNoneIsTornOrOld) {
  const char* const text = std::getenv("HEADRACE_KILLS");
  const int kills = text == nullptr ? 12 : std::atoi(text);
  const test::Folder folder;
  Notes& notes = make_notes();
  Random random(test::seed());
  std::array<pid_t, 1 + kClients> processes{};
  const auto start = [&](std::size_t which) {
    const std::uint64_t seed = random();
    processes[which] = ::fork();
    if (processes[which] == 0) {
      ::_exit(which == 0 ? serve(folder) : use(folder, notes, which - 1, seed));
    }
  };
  for (std::size_t which = 0; which < processes.size(); ++which) start(which);
  // relaxed, here and below: counts.
  const auto progress = [&] { return notes.puts.load_relaxed() + notes.gets.load_relaxed(); };
  for (int i = 0; i <= kills && !::testing::Test::HasFailure(); ++i) {
    const std::uint64_t wanted = progress() + 1 + random.below(300);
    while (progress() < wanted && !::testing::Test::HasFailure()) {
      for (const pid_t process : processes) {
        EXPECT_EQ(::waitpid(process, nullptr, WNOHANG), 0) << "a process has ended by itself";
      }
      std::this_thread::yield();
    }
    if (i == kills) break;
    const std::size_t which = static_cast<std::size_t>(i) % processes.size();
    ::kill(processes[which], SIGKILL);
    ::waitpid(processes[which], nullptr, 0);
    start(which);
  }
  for (const pid_t process : processes) {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
  std::printf("%d kills: %llu puts, %llu gets, %llu closed, %llu calls above 1.5 s\n", kills,
              static_cast<unsigned long long>(notes.puts.load_relaxed()),
              static_cast<unsigned long long>(notes.gets.load_relaxed()),
              static_cast<unsigned long long>(notes.closed.load_relaxed()),
              static_cast<unsigned long long>(notes.slow.load_relaxed()));
}

}  // namespace
}  // namespace headrace::store::shared_kill_test
