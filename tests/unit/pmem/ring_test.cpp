// SPDX-License-Identifier: Apache-2.0
// Rings in files: persistence, attaching, and invalid input.
#include "headrace/pmem/ring.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "headrace/base/random.hpp"
#include "ring_file.hpp"
#include "ring_layout.hpp"
#include "support/seed.hpp"

namespace headrace::pmem {
namespace {

using ::testing::HasSubstr;

TEST_F(RingFile, KeepsEntriesInOrderOverManyLapsAndAttachments) {
  make(kib(16));
  Random random(test::seed());
  std::deque<std::pair<std::uint64_t, std::vector<std::byte>>> there;
  std::uint64_t ordinal = 0;
  for (int life = 0; life < 40; ++life) {
    Result<Producer> producer = Producer::attach(path_, quick());
    ASSERT_TRUE(producer.has_value()) << producer.error().message();
    Result<Consumer> consumer = Consumer::attach(path_, quick());
    ASSERT_TRUE(consumer.has_value()) << consumer.error().message();
    EXPECT_EQ(producer->next_ordinal(), ordinal);
    EXPECT_EQ(producer->recovered().entry_count, there.size());
    EXPECT_EQ(producer->recovered().generation, static_cast<std::uint64_t>(life) + 1);
    std::size_t lent_count = 0;
    for (int step = 0; step < 60; ++step) {
      if (random.chance(1, 2)) {
        const std::vector<std::byte> bytes =
            bytes_of(ordinal, random.below(producer->entry_bytes_max() + 1));
        const Enqueue outcome = producer->enqueue(bytes);
        if (outcome == Enqueue::full) continue;
        ASSERT_EQ(outcome, Enqueue::done);
        there.emplace_back(ordinal++, bytes);
        continue;
      }
      Entry entry;
      const Next outcome = consumer->next(entry);
      if (lent_count == there.size()) {
        ASSERT_EQ(outcome, Next::empty);
      } else {
        ASSERT_EQ(outcome, Next::entry);
        EXPECT_EQ(entry.ordinal, there[lent_count].first);
        EXPECT_TRUE(std::ranges::equal(entry.bytes, there[lent_count].second));
        ++lent_count;
      }
      if (random.chance(1, 3)) {
        consumer->acknowledge();
        there.erase(there.begin(), there.begin() + static_cast<std::ptrdiff_t>(lent_count));
        lent_count = 0;
      }
    }
  }
  const Result<RingState> state = inspect_ring(path_);
  ASSERT_TRUE(state.has_value()) << state.error().message();
  EXPECT_EQ(state->entry_count, there.size());
  EXPECT_FALSE(state->has_producer);
}

TEST_F(RingFile, TakesEveryLengthUpToTheLimitAndNoMore) {
  make(kib(4));
  Result<Producer> producer = Producer::attach(path_, quick());
  Result<Consumer> consumer = Consumer::attach(path_, quick());
  ASSERT_TRUE(producer.has_value() && consumer.has_value());
  for (std::size_t byte_count = 0; byte_count <= producer->entry_bytes_max(); ++byte_count) {
    const std::vector<std::byte> bytes = bytes_of(byte_count, byte_count);
    ASSERT_EQ(producer->enqueue(bytes), Enqueue::done) << byte_count;
    Entry entry;
    ASSERT_EQ(consumer->next(entry), Next::entry);
    ASSERT_TRUE(std::ranges::equal(entry.bytes, bytes)) << byte_count;
    consumer->acknowledge();
  }
  EXPECT_EQ(producer->enqueue(bytes_of(0, producer->entry_bytes_max() + 1)), Enqueue::too_large);
}

TEST_F(RingFile, ABatchIsThereAsAWholeAndAFullRingTakesNothing) {
  make(kib(16));
  Result<Producer> producer = Producer::attach(path_, quick());
  ASSERT_TRUE(producer.has_value());
  const std::vector<std::byte> bytes = bytes_of(1, 400);
  const std::vector<std::span<const std::byte>> batch(4, bytes);
  std::uint64_t count = 0;
  while (producer->enqueue_all(batch) == Enqueue::done) count += 4;
  EXPECT_EQ(producer->enqueue_all(batch), Enqueue::full);
  EXPECT_GE(count, 24U);
  EXPECT_EQ(producer->next_ordinal(), count);
  const std::vector<std::span<const std::byte>> too_many(100, bytes);
  EXPECT_EQ(producer->enqueue_all(too_many), Enqueue::too_large);
  EXPECT_EQ(inspect_ring(path_)->entry_count, count);
}

TEST_F(RingFile, WhatWasLentAndNotAcknowledgedComesAgain) {
  make();
  {
    Result<Producer> producer = Producer::attach(path_, quick());
    ASSERT_TRUE(producer.has_value());
    for (std::uint64_t i = 0; i < 3; ++i) {
      ASSERT_EQ(producer->enqueue(bytes_of(i, 10)), Enqueue::done);
    }
    Result<Consumer> consumer = Consumer::attach(path_, quick());
    Entry entry;
    ASSERT_EQ(consumer->next(entry), Next::entry);
    consumer->acknowledge();
    ASSERT_EQ(consumer->next(entry), Next::entry);
  }
  Result<Consumer> consumer = Consumer::attach(path_, quick());
  EXPECT_EQ(consumer->recovered().entry_count, 2U);
  Entry entry;
  ASSERT_EQ(consumer->next(entry), Next::entry);
  EXPECT_EQ(entry.ordinal, 1U);
}

TEST_F(RingFile, AnOrdinaryFileWorksAndSaysThatItIsNotPersistentMemory) {
  make();
  Result<Producer> producer = Producer::attach(path_);
  ASSERT_TRUE(producer.has_value()) << producer.error().message();
  EXPECT_EQ(producer->enqueue(bytes_of(0, 100)), Enqueue::done);
  EXPECT_FALSE(producer->is_persistent_memory());
  EXPECT_THAT(producer->note(), HasSubstr("NOT persistent memory"));
}

TEST_F(RingFile, EachRoleIsTakenOnce) {
  make();
  const Result<Producer> producer = Producer::attach(path_, quick());
  ASSERT_TRUE(producer.has_value());
  const Result<Producer> other = Producer::attach(path_, quick());
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, Code::capacity_exceeded);
  EXPECT_THAT(other.error().message(), HasSubstr("process " + std::to_string(::getpid())));
  const Result<Consumer> consumer = Consumer::attach(path_, quick());
  ASSERT_TRUE(consumer.has_value());
  EXPECT_FALSE(Consumer::attach(path_, quick()).has_value());
  EXPECT_TRUE(inspect_ring(path_)->has_producer);
}

TEST_F(RingFile, ARoleThatAnotherProcessHasIsFreeWhenThatIsKilled) {
  make();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const Result<Consumer> consumer = Consumer::attach(path_, quick());
    if (!consumer.has_value() || ::write(ends[1], "c", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char ready = 0;
  ASSERT_EQ(::read(ends[0], &ready, 1), 1);
  const Result<Consumer> refused = Consumer::attach(path_, quick());
  EXPECT_TRUE(inspect_ring(path_)->has_consumer);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::capacity_exceeded);
  EXPECT_THAT(refused.error().message(), HasSubstr("process " + std::to_string(child)));
  EXPECT_TRUE(Consumer::attach(path_, quick()).has_value());
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(RingFile, NothingIsMadeWhereSomethingIs) {
  std::ofstream(path_) << "precious";
  const Result<void> made = make_ring(path_);
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, Code::invalid_argument);
  EXPECT_EQ(contents(), "precious");
  EXPECT_EQ(make_ring(folder_ + "/none/ring").error().code, Code::not_found);
  EXPECT_EQ(make_ring(folder_ + "/small", {.capacity = Bytes(100)}).error().code,
            Code::invalid_argument);
}

TEST_F(RingFile, AFullDiskIsToldAndLeavesNothingBehind) {
  // A file size limit stands for a full disk.
  struct rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const struct rlimit small{.rlim_cur = 1U << 20U, .rlim_max = before.rlim_max};
  ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Result<void> made = make_ring(path_, {.capacity = mib(8)});
  ::setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, Code::capacity_exceeded) << made.error().message();
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(RingFile, FilesThatAreNoRingsAreRefusedAndStayAsTheyAre) {
  expect_refused(Code::not_found, "no such file");
  std::ofstream(path_) << "short";
  expect_refused(Code::corrupt_data, "5 bytes");
  std::filesystem::resize_file(path_, 0);
  expect_refused(Code::corrupt_data, "0 bytes");
  std::filesystem::resize_file(path_, 65537);
  expect_refused(Code::corrupt_data, "not a multiple of the block size");
  std::filesystem::resize_file(path_, 65536);
  expect_refused(Code::corrupt_data, "not a ring");
}

TEST_F(RingFile, AFolderAndAPipeAreRefused) {
  EXPECT_EQ(Producer::attach(folder_).error().code, Code::invalid_argument);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(Producer::attach(path_).error().code, Code::invalid_argument);
}

TEST_F(RingFile, OtherByteOrdersVersionsAndDamagedHeadsAreRefused) {
  make();
  const std::string sound = contents();
  overwrite(0, std::string(sound.rend() - 8, sound.rend()));
  expect_refused(Code::version_mismatch, "other byte order");
  overwrite(0, sound.substr(0, 8));
  overwrite(12, std::string_view("\x02\0\0\0", 4));
  expect_refused(Code::version_mismatch, "version 2");
  overwrite(12, sound.substr(12, 4));
  overwrite(40, "x");
  expect_refused(Code::corrupt_data, "superblock is damaged");
  overwrite(40, sound.substr(40, 1));
  ASSERT_EQ(contents(), sound);
  std::filesystem::resize_file(path_, sound.size() - 4096);
  expect_refused(Code::corrupt_data, "was made with");
}

TEST_F(RingFile, ADamagedEntryIsToldAndNotSkipped) {
  make();
  {
    Result<Producer> producer = Producer::attach(path_, quick());
    for (std::uint64_t i = 0; i < 4; ++i) {
      ASSERT_EQ(producer->enqueue(bytes_of(i, 600)), Enqueue::done);
    }
  }
  // In the second one, which has three blocks like the others. Without the producer's position, as
  // after a power failure.
  overwrite(768, std::string(8, '\0'));
  overwrite(kHeadBytes + 768 + 300, "damage");
  expect_refused(Code::corrupt_data, "entry 1");
}

TEST_F(RingFile, AnEntryThatIsDamagedWhileAttachedIsReportedAgainAndNeverSkipped) {
  make();
  Result<Producer> producer = Producer::attach(path_, quick());
  Result<Consumer> consumer = Consumer::attach(path_, quick());
  ASSERT_EQ(producer->enqueue(bytes_of(0, 600)), Enqueue::done);
  const std::string sound = contents().substr(kHeadBytes + 300, 6);
  overwrite(kHeadBytes + 300, "damage");
  Entry entry;
  for (int tries = 0; tries < 5; ++tries) EXPECT_EQ(consumer->next(entry), Next::damaged);
  overwrite(kHeadBytes + 300, sound);
  EXPECT_EQ(consumer->next(entry), Next::entry);
  EXPECT_EQ(entry.ordinal, 0U);
}

TEST_F(RingFile, AForkedChildIsRefusedAndChangesNothing) {
  make(kib(64));
  AttachOptions options = quick();
  options.acknowledgement = Acknowledgement::lazy;
  Result<Producer> producer = Producer::attach(path_, options);
  std::optional<Result<Consumer>> consumer = Consumer::attach(path_, options);
  ASSERT_TRUE(producer.has_value() && consumer->has_value());
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(producer->enqueue(bytes_of(i, 40)), Enqueue::done);
  }
  Entry entry;
  ASSERT_EQ((*consumer)->next(entry), Next::entry);
  const std::string before = contents();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    Entry seen;
    const bool refused = producer->enqueue(bytes_of(9, 40)) == Enqueue::forked &&
                         (*consumer)->next(seen) == Next::forked && seen.bytes.empty();
    (*consumer)->acknowledge();
    consumer.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(contents(), before);
  EXPECT_EQ(producer->enqueue(bytes_of(3, 40)), Enqueue::done);
  ASSERT_EQ((*consumer)->next(entry), Next::entry);
  EXPECT_EQ(entry.ordinal, 1U);
}

/// A child that lives until it is destroyed, and does not exec. The constructor returns when fork()
/// has returned in the child, which gives its roles in rings up before.
///
/// Threading: owned.
class IdleChild {
 public:
  IdleChild() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    id_ = ::fork();
    char byte = 0;
    if (id_ == 0) {
      static_cast<void>(::write(ends[1], &byte, 1));
      ::alarm(60);
      for (;;) ::pause();
    }
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
    for (const int end : ends) ::close(end);
  }
  IdleChild(const IdleChild&) = delete;
  IdleChild& operator=(const IdleChild&) = delete;
  ~IdleChild() {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }

 private:
  pid_t id_ = 0;
};

TEST_F(RingFile, ARoleThatWasGivenUpIsFreeAlthoughAForkedChildLives) {
  make();
  std::optional<Producer> producer = Producer::attach(path_).value();
  std::optional<Consumer> consumer = Consumer::attach(path_).value();
  const IdleChild child;
  EXPECT_EQ(producer->enqueue(bytes_of(1, 40)), Enqueue::done);
  EXPECT_FALSE(Producer::attach(path_).has_value());
  producer.reset();
  consumer.reset();
  EXPECT_TRUE(Producer::attach(path_).has_value());
  EXPECT_TRUE(Consumer::attach(path_).has_value());
}

TEST_F(RingFile, ARoleOfAKilledProcessIsFreeAlthoughItsChildLives) {
  make();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    const Result<Producer> producer = Producer::attach(path_);
    // The child gives the role up before fork() returns in it, and says so afterwards.
    const pid_t child = ::fork() == 0 ? ::getpid() : 0;
    if (child != 0) static_cast<void>(::write(ends[1], &child, sizeof(child)));
    ::close(ends[1]);
    ::alarm(60);
    for (;;) ::pause();
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_EQ(::kill(child, 0), 0);
  const Result<Producer> producer = Producer::attach(path_);
  EXPECT_TRUE(producer.has_value()) << producer.error().message();
  ::kill(child, SIGKILL);
  for (const int end : ends) ::close(end);
}

TEST_F(RingFile, AFileThatMayOnlyBeReadCanBeLookedAt) {
  make();
  std::filesystem::permissions(folder_, std::filesystem::perms::all);
  std::filesystem::permissions(path_, std::filesystem::perms(0444));
  const std::string before = contents();
  // Nothing is read-only for root: runs as another user.
  const bool was_root = ::geteuid() == 0;
  if (was_root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const Result<Producer> producer = Producer::attach(path_);
  const Result<Consumer> consumer = Consumer::attach(path_);
  const Result<RingState> state = inspect_ring(path_);
  if (was_root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  ASSERT_FALSE(producer.has_value());
  ASSERT_FALSE(consumer.has_value());
  EXPECT_EQ(producer.error().code, Code::permission_denied);
  EXPECT_EQ(consumer.error().code, Code::permission_denied);
  EXPECT_TRUE(state.has_value()) << state.error().message();
  EXPECT_EQ(contents(), before);
}

/// Runs a child in a private file system of `byte_count` bytes as its current folder.
///
/// Returns: the child's output; nothing if this system does not permit such a file system.
template <typename Work>
std::optional<std::string> on_a_small_disk(std::size_t byte_count, const Work& work) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const auto put = [](const char* path, const std::string& text) { std::ofstream(path) << text; };
    const uid_t user = ::geteuid();
    const gid_t group = ::getegid();
    if (::unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0) ::_exit(77);
    if (user != 0) {
      put("/proc/self/setgroups", "deny");
      put("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");
      put("/proc/self/gid_map", "0 " + std::to_string(group) + " 1");
    }
    const std::string options = "size=" + std::to_string(byte_count);
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/mnt", "tmpfs", 0, options.c_str()) != 0 || ::chdir("/mnt") != 0) {
      ::_exit(77);
    }
    const std::string said = work();
    ::_exit(::write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0
                                                                                            : 1);
  }
  ::close(ends[1]);
  std::string said;
  std::array<char, 4096> chunk{};
  for (;;) {
    const ssize_t count = ::read(ends[0], chunk.data(), chunk.size());
    if (count <= 0) break;
    said.append(chunk.data(), static_cast<std::size_t>(count));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return std::nullopt;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  return said;
}

TEST_F(RingFile, OnAFullDiskNothingIsMadeAndNothingIsLost) {
  make(kib(64));
  {
    Result<Producer> producer = Producer::attach(path_, quick());
    ASSERT_EQ(producer->enqueue(bytes_of(0, 100)), Enqueue::done);
  }
  const std::string sound = contents();
  const std::optional<std::string> said = on_a_small_disk(256U << 10U, [&]() -> std::string {
    std::string report;
    const Result<void> made = make_ring("large", {.capacity = mib(1)});
    report += made.has_value() ? "made" : name(made.error().code);
    report += std::filesystem::exists("large") ? ", there" : "";
    // A sparse copy of a ring, without room for the rest of it.
    constexpr std::size_t kCopied = 8192;
    std::ofstream("ring", std::ios::binary) << sound.substr(0, kCopied);
    std::filesystem::resize_file("ring", sound.size());
    std::ofstream filler("filler", std::ios::binary);
    while (filler << std::string(4096, 'x') << std::flush) {
    }
    const Result<Producer> producer = Producer::attach("ring", quick());
    report += producer.has_value() ? ", attached" : ", " + std::string(name(producer.error().code));
    // With a caller's mapping: unavailable pages are reported, without a signal.
    Result<Mapping> mapping = Mapping::map("ring", quick().map);
    if (!mapping.has_value()) return report + ", not mapped";
    Medium medium = mapping->medium();
    medium.store(mapping->bytes().data() + kCopied, bytes_of(1, 4096));
    report += ", " + std::string(name(mapping->fault()));
    mapping = Mapping::map("ring", quick().map);
    report += std::memcmp(mapping->bytes().data(), sound.data(), kCopied) == 0 ? ", same" : "";
    return report;
  });
  if (!said.has_value()) GTEST_SKIP() << "no disk of one's own: namespaces are not permitted";
  EXPECT_EQ(*said, "capacity_exceeded, capacity_exceeded, lost, same");
}

TEST_F(RingFile, ADeviceThatIsNoPersistentMemoryIsRefused) {
  for (const char* const path : {"/dev/null", "/dev/zero"}) {
    const Result<Producer> producer = Producer::attach(path);
    const Result<void> made = make_ring(path);
    ASSERT_FALSE(producer.has_value());
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(producer.error().code, Code::invalid_argument) << producer.error().message();
    EXPECT_EQ(made.error().code, producer.error().code) << made.error().message();
    EXPECT_THAT(made.error().message(), HasSubstr("it is a device"));
  }
}

TEST_F(RingFile, AFileThatIsTruncatedWhileMappedIsToldAndEndsNothing) {
  make(mib(1));
  Result<Producer> producer = Producer::attach(path_, quick());
  Result<Consumer> consumer = Consumer::attach(path_, quick());
  ASSERT_EQ(producer->enqueue(bytes_of(0, 100)), Enqueue::done);
  std::filesystem::resize_file(path_, 0);
  EXPECT_EQ(producer->enqueue(bytes_of(1, 100)), Enqueue::lost);
  EXPECT_EQ(producer->enqueue(bytes_of(2, 100)), Enqueue::lost);
  Entry entry;
  EXPECT_EQ(consumer->next(entry), Next::lost);
}

TEST_F(RingFile, AnEntryWhosePageWentIsNotThereAfterwards) {
  make(kib(64));
  const std::uintmax_t file_bytes = std::filesystem::file_size(path_);
  {
    Result<Producer> producer = Producer::attach(path_, quick());
    ASSERT_EQ(producer->enqueue(bytes_of(0, 100)), Enqueue::done);
    // The next entry begins in a page that stays, and ends in one that is removed.
    std::filesystem::resize_file(path_, 2 * kHeadBytes);
    EXPECT_EQ(producer->enqueue(bytes_of(1, 6000)), Enqueue::lost);
  }
  std::filesystem::resize_file(path_, file_bytes);
  Result<Consumer> consumer = Consumer::attach(path_, quick());
  ASSERT_TRUE(consumer.has_value()) << consumer.error().message();
  Entry entry;
  ASSERT_EQ(consumer->next(entry), Next::entry);
  EXPECT_TRUE(std::ranges::equal(entry.bytes, bytes_of(0, 100)));
  EXPECT_EQ(consumer->next(entry), Next::empty);
}

TEST_F(RingFile, ARingOfPositionsIsRefusedWithWhatToDo) {
  make();
  // The head that an older version wrote, with its checksum.
  detail::Superblock superblock;
  const std::string sound = contents();
  std::memcpy(&superblock, sound.data(), sizeof(superblock));
  superblock.layout = detail::kPositions;
  superblock.checksum = detail::checksum_of(superblock);
  overwrite(0, {reinterpret_cast<const char*>(&superblock), sizeof(superblock)});
  expect_refused(Code::version_mismatch, "with the version of Headrace that made it");
  EXPECT_EQ(salvage_ring(path_, [](const Entry&) {}).error().code, Code::version_mismatch);
}

/// Runs `work` in a child that is killed by SIGKILL after it has written `byte_count` bytes to a
/// pipe.
template <typename Work>
std::string run_until_killed(std::size_t byte_count, const Work& work) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    work(ends[1]);
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string got;
  std::array<char, 4096> chunk{};
  bool killed = false;
  for (;;) {
    const ssize_t count = ::read(ends[0], chunk.data(), chunk.size());
    if (count <= 0) break;
    got.append(chunk.data(), static_cast<std::size_t>(count));
    if (!killed && got.size() >= byte_count) {
      ::kill(child, SIGKILL);
      killed = true;
    }
  }
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return got;
}

TEST_F(RingFile, LosesAndDoublesNothingWhenProducersAndConsumersAreKilled) {
  make(kib(64));
  Random random(test::seed());
  const AttachOptions options = quick();
  std::uint64_t acknowledged = 0;  // As reported by the children.
  std::uint64_t enqueued = 0;
  for (int round = 0; round < 8; ++round) {
    const std::string told = run_until_killed(1 + random.below(100), [&](int out) {
      Result<Producer> producer = Producer::attach(path_, options);
      if (!producer.has_value()) ::_exit(1);
      for (;;) {
        const std::uint64_t ordinal = producer->next_ordinal();
        const Enqueue outcome = producer->enqueue(bytes_of(ordinal, ordinal % 2000));
        if (outcome != Enqueue::done) ::_exit(0);
        if (::write(out, "e", 1) != 1) ::_exit(1);
      }
    });
    enqueued += told.size();
    Result<RingState> state = inspect_ring(path_);
    ASSERT_TRUE(state.has_value()) << state.error().message();
    const std::uint64_t end = state->first_ordinal + state->entry_count;
    EXPECT_GE(end, enqueued);
    EXPECT_LE(end, enqueued + 1);  // One whose enqueue had not returned, or was not yet reported.
    enqueued = end;

    const std::string taken = run_until_killed(1 + random.below(100), [&](int out) {
      Result<Consumer> consumer = Consumer::attach(path_, options);
      if (!consumer.has_value()) ::_exit(1);
      Entry entry;
      while (consumer->next(entry) == Next::entry) {
        if (!std::ranges::equal(entry.bytes, bytes_of(entry.ordinal, entry.ordinal % 2000))) {
          ::_exit(1);
        }
        consumer->acknowledge();
        if (::write(out, "a", 1) != 1) ::_exit(1);
      }
    });
    acknowledged += taken.size();
    state = inspect_ring(path_);
    ASSERT_TRUE(state.has_value()) << state.error().message();
    EXPECT_GE(state->first_ordinal, acknowledged);
    EXPECT_LE(state->first_ordinal, acknowledged + 1);
    acknowledged = state->first_ordinal;
    EXPECT_FALSE(state->has_producer || state->has_consumer);
  }
  EXPECT_GT(acknowledged, 0U);
}

TEST_F(RingFile, TwoProcessesPassEntriesOnWhileBothAreAtWork) {
  make(kib(64));
  constexpr std::uint64_t kCount = 20'000;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    Result<Producer> producer = Producer::attach(path_, quick());
    if (!producer.has_value()) ::_exit(1);
    while (producer->next_ordinal() < kCount) {
      const std::uint64_t ordinal = producer->next_ordinal();
      if (producer->enqueue(bytes_of(ordinal, ordinal % 700)) == Enqueue::full) {
        std::this_thread::yield();
      }
    }
    ::_exit(0);
  }
  AttachOptions options = quick();
  options.acknowledgement = Acknowledgement::lazy;
  Result<Consumer> consumer = Consumer::attach(path_, options);
  ASSERT_TRUE(consumer.has_value()) << consumer.error().message();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (std::uint64_t expected = 0; expected < kCount;) {
    Entry entry;
    const Next outcome = consumer->next(entry);
    if (outcome == Next::empty) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(outcome, Next::entry);
    ASSERT_EQ(entry.ordinal, expected);
    ASSERT_TRUE(std::ranges::equal(entry.bytes, bytes_of(expected, expected % 700)));
    consumer->acknowledge();
    ++expected;
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace headrace::pmem
