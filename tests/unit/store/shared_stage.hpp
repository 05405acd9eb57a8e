// SPDX-License-Identifier: Apache-2.0
// A fixture for tests of shared stores: servers in this process and in others, and clients.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "headrace/store/shared.hpp"
#include "support/store_stage.hpp"

#if defined(__SANITIZE_THREAD__)
/// The servers in other processes are forked, and have threads.
extern "C" [[gnu::visibility("default"), gnu::used]] inline const char* __tsan_default_options() {
  return "die_after_fork=0";
}
#endif

namespace headrace::store {

using test::block_bytes;
using test::version_of;

inline constexpr std::size_t kBlockBytes = 4096;
inline constexpr std::size_t kBlocks = 64;

class Shared : public ::testing::Test {
 protected:
  [[nodiscard]] ServeOptions options() const {
    return {.socket = folder_.file("socket"),
            .store = {.block_bytes = Bytes(kBlockBytes),
                      .tiers = {{.capacity = Bytes(kBlocks * kBlockBytes)}}},
            .clients_max = 4};
  }
  void serve(const ServeOptions& options) {
    auto made = Server::make(*engine_, options);
    ASSERT_TRUE(made.has_value()) << made.error().message();
    server_ = std::move(*made);
  }
  void serve() { serve(options()); }
  [[nodiscard]] std::unique_ptr<Store> client(const ConnectOptions& chosen = {}) const {
    auto made = connect(*engine_, folder_.file("socket"), chosen);
    EXPECT_TRUE(made.has_value()) << made.error().message();
    return made ? std::move(*made) : nullptr;
  }
  /// A server in another process: the test's own has no thread yet.
  [[nodiscard]] pid_t serve_elsewhere() const { return serve_elsewhere(options()); }
  [[nodiscard]] static pid_t serve_elsewhere(const ServeOptions& options) {
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto engine = test::worker_engine();
      const auto server = Server::make(*engine, options);
      if (!server || ::write(ready[1], "r", 1) != 1) ::_exit(1);
      while (true) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    return child;
  }
  static void kill(pid_t process) {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
  static Outcome put(Store& store, std::uint64_t key, std::uint64_t version) {
    return store.put(std::to_string(key), block_bytes(key, version, kBlockBytes)).outcome;
  }
  /// Its version; 0 if there is none.
  static std::uint64_t get(Store& store, std::uint64_t key) {
    std::vector<std::byte> bytes(kBlockBytes);
    const BlockEnd end = store.get(std::to_string(key), bytes);
    if (end.outcome != Outcome::done) return 0;
    EXPECT_TRUE(version_of(key, bytes).has_value()) << "key " << key << " has wrong bytes";
    return version_of(key, bytes).value_or(0);
  }
  /// Keys from `first` to before `last` that are there.
  static std::size_t count(Store& store, std::uint64_t first, std::uint64_t last) {
    std::size_t found = 0;
    for (; first < last; ++first) found += store.length(std::to_string(first)) ? 1U : 0U;
    return found;
  }
  void make_engine() { engine_ = test::worker_engine(); }

  const test::Folder folder_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Server> server_;
};

}  // namespace headrace::store
