// SPDX-License-Identifier: Apache-2.0
// Detection of dead processes: a live one must never be reported dead, as it would lose its
// resources.
#include "emu/platform/process.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace headrace::emu::platform {
namespace {

constexpr std::uint32_t kAllBits = 30;

class Child {
 public:
  Child() : process_id_(::fork()) {
    if (process_id_ == 0) {
      ::alarm(600);
      while (true) ::pause();
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { end(); }
  void end() {
    if (process_id_ <= 0) return;
    ::kill(process_id_, SIGKILL);
    ::waitpid(process_id_, nullptr, 0);
    process_id_ = 0;
  }
  [[nodiscard]] std::int32_t process_id() const { return process_id_; }

 private:
  pid_t process_id_;
};

/// Prevents opening files for its lifetime.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &former_);
    const rlimit none{0, former_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &former_); }

 private:
  rlimit former_{};
};

TEST(Process, is_dead_once_it_has_ended_or_another_one_has_its_number) {
  Child child;
  const std::int32_t process_id = child.process_id();
  const std::uint64_t started = start_time(process_id);
  EXPECT_EQ(life_of(process_id, started, kAllBits), Life::running);
  EXPECT_EQ(life_of(process_id, started + 1, kAllBits), Life::dead);
  child.end();
  EXPECT_EQ(life_of(process_id, started, kAllBits), Life::dead);
}

TEST(Process, is_not_dead_because_we_cannot_look) {
  Child child;
  const std::int32_t process_id = child.process_id();
  const std::uint64_t started = start_time(process_id);
  Life living = Life::dead;
  Life ended = Life::running;
  {
    const NoDescriptors none;
    living = life_of(process_id, started, kAllBits);
    child.end();
    ended = life_of(process_id, started, kAllBits);
  }
  EXPECT_EQ(living, Life::running);
  EXPECT_EQ(ended, Life::dead);
}

}  // namespace
}  // namespace headrace::emu::platform
