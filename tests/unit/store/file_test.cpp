// SPDX-License-Identifier: Apache-2.0
// Tiers in files: what is restored, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <map>
#include <thread>

#include "headrace/base/atomic.hpp"
#include "headrace/store/file.hpp"
#include "store/protocol.hpp"
#include "support/store_stage.hpp"

namespace {
/// By how much the clock of the day has jumped.
headrace::Atomic<std::int64_t> jumped_s{0};
}  // namespace

/// Of this program, the library included, in place of that of the C library.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto answer = static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
  // relaxed: only the number.
  if (clock == CLOCK_REALTIME) now->tv_sec += jumped_s.load_relaxed();
  return answer;
}

namespace headrace::store::file_test {
namespace {

using test::block_bytes;
using test::version_of;
using ::testing::HasSubstr;

constexpr std::size_t kBlockBytes = 4096;
constexpr std::size_t kBlocks = 16;

class InFile : public ::testing::Test {
 protected:
  [[nodiscard]] StoreOptions options() const {
    return {.block_bytes = Bytes(kBlockBytes),
            .tiers = {{.capacity = Bytes(kBlocks * kBlockBytes), .path = path_}},
            .checksums = true};
  }
  void open() {
    store_.reset();
    store_ = test::make_store(*engine_, options());
    ASSERT_NE(store_, nullptr);
  }
  void put_some() {
    open();
    for (std::uint64_t i = 0; i < 5; ++i) {
      ASSERT_EQ(store_->put(std::to_string(i), block_bytes(i, i + 1, kBlockBytes)).outcome,
                Outcome::done);
    }
  }
  void overwrite(std::size_t offset, const std::string& text) const {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
  }
  void expect_refused(const StoreOptions& asked, Code code, const std::string& cause) {
    const auto made = Store::make(*engine_, asked);
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(name(made.error().code), name(code)) << made.error().message();
    EXPECT_THAT(made.error().message(), HasSubstr(cause));
  }

  test::Folder folder_;
  const std::string path_ = folder_.file("blocks");
  std::unique_ptr<engine::Engine> engine_ = test::worker_engine();
  std::unique_ptr<Store> store_;
};

TEST_F(InFile, BlocksAreThereAgain) {
  put_some();
  EXPECT_EQ(store_->remove("3"), Outcome::done);
  EXPECT_EQ(store_->put("4", block_bytes(4, 9, 100)).outcome, Outcome::done);
  store_.reset();
  open();
  EXPECT_EQ(store_->keys().size(), 4U);
  EXPECT_EQ(store_->statistics().tiers[0].recovered, 4U);
  EXPECT_EQ(store_->statistics().tiers[0].dropped_torn, 0U);
  std::vector<std::byte> bytes(kBlockBytes);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(store_->get(std::to_string(i), bytes).outcome, Outcome::done);
    EXPECT_EQ(version_of(i, bytes), i + 1);
  }
  EXPECT_EQ(store_->get("4", bytes).byte_count, 100U);
  EXPECT_EQ(version_of(4, std::span(bytes).first(100)), 9U);
  EXPECT_EQ(store_->get("3", bytes).outcome, Outcome::unknown_key);
}

TEST_F(InFile, ACapacityOfNothingTakesThatOfTheFile) {
  put_some();
  store_.reset();
  StoreOptions asked = options();
  asked.tiers[0].capacity = {};
  const auto store = test::make_store(*engine_, asked);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->statistics().tiers[0].capacity_blocks, kBlocks);
  EXPECT_EQ(store->keys().size(), 5U);
}

TEST_F(InFile, TheNewestOfTwoTiersCounts) {
  StoreOptions both = options();
  both.tiers.push_back({.capacity = Bytes(kBlocks * kBlockBytes), .path = folder_.file("second")});
  store_ = test::make_store(*engine_, both);
  ASSERT_EQ(store_->put("a", block_bytes(1, 1, kBlockBytes), 0).outcome, Outcome::done);
  ASSERT_EQ(store_->put("a", block_bytes(1, 2, kBlockBytes), 1).outcome, Outcome::done);
  store_.reset();
  store_ = test::make_store(*engine_, both);
  std::vector<std::byte> bytes(kBlockBytes);
  ASSERT_EQ(store_->get("a", bytes).outcome, Outcome::done);
  EXPECT_EQ(version_of(1, bytes), 2U);
  EXPECT_EQ(store_->keys().size(), 1U);
}

TEST_F(InFile, AfterARestartOfTheMachineNoBlockWithoutItsDataIsServed) {
  const std::string crashed = folder_.file("crashed");
  const std::size_t data = detail::head_of(kBlockBytes, kBlocks, "").value().data_offset;
  for (const bool checksums : {false, true}) {
    for (const Durability reopened : {Durability::process, Durability::power}) {
      StoreOptions asked = options();
      asked.checksums = checksums;
      asked.tiers[0].durability = Durability::process;
      store_ = test::make_store(*engine_, asked);
      for (std::uint64_t i = 0; i < 4; ++i) {
        ASSERT_EQ(store_->put(std::to_string(i), block_bytes(i, 1, kBlockBytes)).outcome,
                  Outcome::done);
      }
      store_.reset();
      // The disk as the machine may leave it: the headers are there, the data of two blocks is not.
      std::filesystem::copy_file(path_, crashed, std::filesystem::copy_options::overwrite_existing);
      std::fstream file(crashed, std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(static_cast<std::streamoff>(data));
      file.write(std::string(2 * kBlockBytes, '\0').data(), 2 * kBlockBytes);
      file.close();
      asked.tiers[0].path = crashed;
      asked.tiers[0].durability = reopened;
      for (int again = 0; again < 2; ++again) {  // Nor when it is opened a second time.
        store_ = test::make_store(*engine_, asked);
        ASSERT_NE(store_, nullptr);
        EXPECT_EQ(store_->keys().size(), checksums ? 2U : 0U);
        EXPECT_EQ(store_->statistics().tiers[0].dropped_torn, again != 0  ? 0U
                                                              : checksums ? 2U
                                                                          : 4U);
        for (const std::string& key : store_->keys()) {
          std::vector<std::byte> bytes(kBlockBytes);
          ASSERT_EQ(store_->get(key, bytes).outcome, Outcome::done);
          EXPECT_EQ(version_of(std::stoull(key), bytes), 1U);
        }
        store_.reset();
      }
      std::filesystem::remove(path_);
    }
  }
}

TEST_F(InFile, TheDurabilityMayChangeAtEachOpening) {
  put_some();
  for (const Durability durability :
       {Durability::process, Durability::process, Durability::power, Durability::power}) {
    store_.reset();
    StoreOptions asked = options();
    asked.tiers[0].durability = durability;
    store_ = test::make_store(*engine_, asked);
    ASSERT_NE(store_, nullptr);
    EXPECT_EQ(store_->keys().size(), 5U) << name(durability);
  }
}

TEST_F(InFile, ASecondStoreOnTheFileIsRefused) {
  open();
  expect_refused(options(), Code::capacity_exceeded, "has it open");
  StoreOptions twice = options();
  twice.tiers[0].path = folder_.file("other");
  twice.tiers.push_back(twice.tiers[0]);
  expect_refused(twice, Code::capacity_exceeded, "has it open");
}

TEST_F(InFile, WhatIsNoStoreIsRefused) {
  put_some();
  store_.reset();
  StoreOptions other = options();
  other.block_bytes = Bytes(2 * kBlockBytes);
  other.tiers[0].capacity = Bytes(2 * kBlocks * kBlockBytes);
  expect_refused(other, Code::invalid_argument, "it was made for 16 blocks of 4096 bytes");
  other = options();
  other.tiers[0].capacity = Bytes(2 * kBlocks * kBlockBytes);
  expect_refused(other, Code::invalid_argument, "it was made for");

  const std::uintmax_t whole = std::filesystem::file_size(path_);
  std::filesystem::resize_file(path_, whole - 1);
  expect_refused(options(), Code::corrupt_data, "was made with");
  std::filesystem::resize_file(path_, 10);
  expect_refused(options(), Code::corrupt_data, "too short");
  std::filesystem::resize_file(path_, whole);
  expect_refused(options(), Code::corrupt_data, "its head is damaged");
  overwrite(0, "not a store");
  expect_refused(options(), Code::corrupt_data, "not a store");
  other = options();
  other.tiers[0].path = folder_.file("");
  expect_refused(other, Code::invalid_argument, "folder");
  other.tiers[0].path = folder_.file("absent/file");
  expect_refused(other, Code::not_found, "absent");
  other.tiers[0] = {.path = folder_.file("absent")};
  expect_refused(other, Code::not_found, "no capacity");
}

TEST_F(InFile, AnotherVersionIsRefused) {
  put_some();
  store_.reset();
  for (const char version : {'\x03', '\x05'}) {
    overwrite(8, std::string{version, '\0', '\0', '\0'});
    expect_refused(options(), Code::version_mismatch, "remove it, or name another file");
  }
}

TEST_F(InFile, ADiskWithoutRoomIsRefused) {
  StoreOptions asked = options();
  asked.block_bytes = mib(1);
  asked.tiers[0].capacity = Bytes(std::uint64_t{1} << 49U);
  expect_refused(asked, Code::capacity_exceeded, "blocks");
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(InFile, OnAReadOnlyMountIsRefusedButCanBeInspected) {
  put_some();
  store_.reset();
  const std::string folder = std::filesystem::path(path_).parent_path();
  if (::mount(folder.c_str(), folder.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    GTEST_SKIP() << "mounts are not permitted here";
  }
  ASSERT_EQ(::mount(nullptr, folder.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr),
            0);
  const auto made = Store::make(*engine_, options());
  const auto found = inspect_file(path_, true);
  ASSERT_EQ(::umount2(folder.c_str(), MNT_DETACH), 0);
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().message(), HasSubstr(path_));
  EXPECT_THAT(made.error().message(), HasSubstr("Read-only file system"));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->entries.size(), 5U);
}

TEST_F(InFile, WorksBesideThousandsOfOpenDescriptors) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit more{.rlim_cur = std::max<rlim_t>(before.rlim_cur, 4096),
                    .rlim_max = std::max<rlim_t>(before.rlim_max, 4096)};
  if (::setrlimit(RLIMIT_NOFILE, &more) != 0) GTEST_SKIP() << "at most 4096 are not permitted";
  std::vector<int> opened;
  for (int i = 0; i < 2000; ++i) opened.push_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_GT(opened.back(), 2000);
  put_some();
  std::vector<std::byte> bytes(kBlockBytes);
  EXPECT_EQ(store_->get("3", bytes).outcome, Outcome::done);
  EXPECT_EQ(version_of(3, bytes), 4U);
  EXPECT_GT(store_->event_descriptor().value(), 2000);
  store_.reset();
  for (const int each : opened) ::close(each);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(InFile, AClockThatJumpsEndsNoTransferAndReturnsNoOlderBlock) {
  constexpr std::int64_t kYears = std::int64_t{10} * 365 * 86400;
  std::vector<std::byte> bytes(kBlockBytes);
  std::uint64_t version = 0;
  for (const std::int64_t jump : {kYears, -kYears, std::int64_t{0}}) {
    jumped_s.store_relaxed(jump);  // Only the number.
    open();
    for (const std::int64_t meanwhile : {jump, -jump}) {
      jumped_s.store_relaxed(meanwhile);  // As above.
      const auto now = std::chrono::system_clock::now();
      // Else the library sees no jump either.
      EXPECT_LT(std::abs(std::chrono::system_clock::to_time_t(now) - ::time(nullptr) - meanwhile),
                60);
      ASSERT_EQ(store_->put("k", block_bytes(1, ++version, kBlockBytes)).outcome, Outcome::done);
      ASSERT_EQ(store_->get("k", bytes).outcome, Outcome::done);
      EXPECT_EQ(version_of(1, bytes), version);
    }
    open();
    ASSERT_EQ(store_->get("k", bytes).outcome, Outcome::done);
    EXPECT_EQ(version_of(1, bytes), version);
  }
}

TEST_F(InFile, AKeyOfTheLongestLengthIsThereAgain) {
  open();
  const std::string key(kKeyBytesMax, 'k');
  EXPECT_EQ(store_->put("", block_bytes(1, 1, kBlockBytes)).outcome, Outcome::bad_key);
  EXPECT_EQ(store_->put(key + 'k', block_bytes(1, 1, kBlockBytes)).outcome, Outcome::bad_key);
  ASSERT_EQ(store_->put(key, block_bytes(1, 1, kBlockBytes)).outcome, Outcome::done);
  store_.reset();
  open();
  EXPECT_EQ(store_->keys(), std::vector<std::string>{key});
}

TEST_F(InFile, ATornEntryIsDropped) {
  put_some();
  store_.reset();
  // Slots are allocated from the first on.
  overwrite(detail::kHeadBytes + 256 + 40, "\xff");
  open();
  EXPECT_EQ(store_->statistics().tiers[0].dropped_torn, 1U);
  EXPECT_EQ(store_->keys().size(), 4U);
}

TEST_F(InFile, AFlippedByteIsFoundByTheChecksum) {
  put_some();
  store_.reset();
  const std::size_t data = detail::head_of(kBlockBytes, kBlocks, "").value().data_offset;
  overwrite(data + kBlockBytes + 1000, "\xff\xff\xff");
  open();
  std::size_t corrupt = 0;
  std::vector<std::byte> bytes(kBlockBytes);
  for (int i = 0; i < 5; ++i) {
    const Outcome outcome = store_->get(std::to_string(i), bytes).outcome;
    if (outcome == Outcome::corrupt) ++corrupt;
    EXPECT_TRUE(outcome == Outcome::done || outcome == Outcome::corrupt);
  }
  EXPECT_EQ(corrupt, 1U);
  EXPECT_EQ(store_->statistics().corrupt, 1U);
  EXPECT_EQ(store_->keys().size(), 4U);
}

TEST_F(InFile, AChecksumIsComparedWhateverTheOption) {
  put_some();
  store_.reset();
  const std::size_t data = detail::head_of(kBlockBytes, kBlocks, "").value().data_offset;
  overwrite(data + kBlockBytes + 1000, "\xff\xff\xff");
  StoreOptions asked = options();
  asked.checksums = false;
  store_ = test::make_store(*engine_, asked);
  std::vector<std::byte> bytes(kBlockBytes);
  EXPECT_EQ(store_->get("1", bytes).outcome, Outcome::corrupt);
  EXPECT_EQ(store_->get("2", bytes).outcome, Outcome::done);
}

TEST_F(InFile, CanBeInspectedWithoutAChange) {
  put_some();
  EXPECT_EQ(inspect_file(path_, false).error().code, Code::capacity_exceeded);  // It is open.
  store_.reset();
  const std::size_t data = detail::head_of(kBlockBytes, kBlocks, "").value().data_offset;
  overwrite(data + kBlockBytes + 1000, "\xff\xff\xff");
  overwrite(detail::kHeadBytes + 256 * 2 + 40, "\xff");
  const auto load = [&] {
    std::ifstream file(path_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string before = load();
  const auto found = inspect_file(path_, true);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(load(), before);
  EXPECT_EQ(found->block_bytes, kBlockBytes);
  EXPECT_EQ(found->capacity_blocks, kBlocks);
  EXPECT_EQ(found->with_checksum, 4U);
  std::map<EntryState, std::size_t> states;
  for (const FileEntry& entry : found->entries) ++states[entry.state];
  EXPECT_EQ(states[EntryState::whole], 3U);
  EXPECT_EQ(states[EntryState::corrupt], 1U);
  EXPECT_EQ(states[EntryState::torn], 1U);
  std::filesystem::resize_file(path_, 100);
  EXPECT_EQ(inspect_file(path_, true).error().code, Code::corrupt_data);
}

TEST_F(InFile, OnADiskIsReadPastThePageCacheIfThatIsPossible) {
  open();
  const std::string access = store_->statistics().tiers[0].access;
  EXPECT_TRUE(access.starts_with("io_uring") || access.starts_with("a pool of threads")) << access;
}

TEST_F(InFile, ACopyThatDiffersFromItsChecksumSparesTheOthers) {
  StoreOptions both = options();
  both.promote_after = 1;
  both.tiers.push_back({.capacity = Bytes(kBlocks * kBlockBytes), .path = folder_.file("second")});
  store_ = test::make_store(*engine_, both);
  ASSERT_EQ(store_->put("a", block_bytes(1, 1, kBlockBytes), 1).outcome, Outcome::done);
  std::vector<std::byte> bytes(kBlockBytes);
  ASSERT_EQ(store_->get("a", bytes).outcome, Outcome::done);
  while (store_->statistics().tiers[0].promotions == 0) std::this_thread::yield();
  const std::size_t data = detail::head_of(kBlockBytes, kBlocks, "").value().data_offset;
  overwrite(data + 1000, "\xff\xff\xff");
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(store_->get("a", bytes).outcome, Outcome::done);
    EXPECT_EQ(version_of(1, bytes), 1U);
  }
  EXPECT_EQ(store_->statistics().corrupt, 1U);
  store_.reset();
  store_ = test::make_store(*engine_, both);
  ASSERT_EQ(store_->get("a", bytes).outcome, Outcome::done);
  EXPECT_EQ(version_of(1, bytes), 1U);
}

TEST_F(InFile, ATruncatedFileEndsTransfersByName) {
  put_some();
  std::filesystem::resize_file(path_, 4096);
  std::vector<std::byte> bytes(kBlockBytes);
  EXPECT_EQ(store_->get("1", bytes).outcome, Outcome::io_failed);
  EXPECT_EQ(store_->put("new", bytes).outcome, Outcome::io_failed);
  EXPECT_GE(store_->statistics().failed, 2U);
}

TEST_F(InFile, ADeletedOrReplacedFileAcknowledgesNoPut) {
  for (const Durability durability : {Durability::power, Durability::process}) {
    for (const bool is_replaced : {false, true}) {
      StoreOptions asked = options();
      asked.tiers[0].durability = durability;
      store_ = test::make_store(*engine_, asked);
      const std::vector<std::byte> bytes = block_bytes(1, 1, kBlockBytes);
      ASSERT_EQ(store_->put("1", bytes).outcome, Outcome::done);
      if (is_replaced) {
        std::ofstream(path_ + ".new") << "another";
        std::filesystem::rename(path_ + ".new", path_);
      } else {
        std::filesystem::remove(path_);
      }
      EXPECT_EQ(store_->put("2", bytes).outcome, Outcome::io_failed);
      EXPECT_FALSE(store_->statistics().tiers[0].is_healthy);
      EXPECT_EQ(store_->statistics().tiers[0].blocks_lost, 0U);
      store_.reset();
      std::filesystem::remove(path_);
    }
  }
}

class ABlockThatCannotBeRead : public InFile, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Mapped, ABlockThatCannotBeRead, ::testing::Bool());

TEST_P(ABlockThatCannotBeRead, IsNotMoved) {
  // A page of a mapped file that is gone reads as zeros; of another file, not at all.
  if (GetParam()) ::setenv("PMEM2_FORCE_GRANULARITY", "CACHE_LINE", 1);
  // Two files. The first is full, and loses the page of its last slot, the next to be moved down.
  StoreOptions asked = options();
  asked.checksums = false;
  asked.tiers.push_back(asked.tiers[0]);
  asked.tiers[1].path = folder_.file("below");
  store_ = test::make_store(*engine_, asked);
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    ASSERT_EQ(store_->put(std::to_string(i), block_bytes(i, 1, kBlockBytes)).outcome,
              Outcome::done);
  }
  store_.reset();  // Writes the headers in the log to the table.
  const detail::Head head = detail::head_of(kBlockBytes, kBlocks, "").value();
  std::vector<std::byte> last(detail::kSlotHeaderBytes);
  std::ifstream file(path_, std::ios::binary);
  file.seekg(detail::kHeadBytes + (kBlocks - 1) * detail::kSlotHeaderBytes);
  file.read(reinterpret_cast<char*>(last.data()), detail::kSlotHeaderBytes);
  detail::SlotHeader header;
  ASSERT_EQ(detail::read_slot(last.data(), kBlocks, kBlockBytes, header), detail::SlotState::whole);
  const std::string victim(header.key_text());
  store_ = test::make_store(*engine_, asked);
  ASSERT_NE(store_, nullptr);
  std::vector<std::byte> bytes(kBlockBytes);
  std::vector<std::string> keys = store_->keys();
  for (const std::string& key : keys) {
    if (key != victim) static_cast<void>(store_->get(key, bytes));
  }
  std::filesystem::resize_file(path_, head.file_bytes - kBlockBytes);
  Outcome outcome = Outcome::done;
  for (int i = 0; i < 100 && outcome == Outcome::done; ++i) {
    outcome = store_->put("new " + std::to_string(i), bytes).outcome;
  }
  EXPECT_EQ(outcome, Outcome::io_failed);  // The page was read.
  store_.reset();
  const auto below =
      test::make_store(*engine_, {.block_bytes = asked.block_bytes, .tiers = {asked.tiers[1]}});
  ASSERT_NE(below, nullptr);
  const BlockEnd end = below->get(victim, bytes);
  if (end.outcome != Outcome::unknown_key) {
    EXPECT_EQ(version_of(std::stoull(victim), bytes), 1U);
  }
  ::unsetenv("PMEM2_FORCE_GRANULARITY");
}

TEST_F(InFile, AFullFileMakesRoomInTheBackground) {
  open();
  for (std::uint64_t i = 0; i < 200; ++i) {
    ASSERT_EQ(store_->put(std::to_string(i), block_bytes(i, 1, kBlockBytes)).outcome,
              Outcome::done);
  }
  const std::size_t count = store_->keys().size();
  EXPECT_LE(count, kBlocks);
  EXPECT_GE(count, kBlocks - 4);
}

// --- What is written when -----------------------------------------------------------------------

class MemoryAboveAFile : public InFile {
 protected:
  void open_with(std::optional<std::uint32_t> unwritten_max) {
    StoreOptions both = options();
    both.tiers.insert(both.tiers.begin(),
                      {.capacity = Bytes(kBlocks * kBlockBytes), .unwritten_max = unwritten_max});
    store_.reset();
    store_ = test::make_store(*engine_, both);
    ASSERT_NE(store_, nullptr);
  }
  void put(std::uint64_t key) {
    EXPECT_EQ(store_->put(std::to_string(key), block_bytes(key, 1, kBlockBytes)).outcome,
              Outcome::done);
  }
  [[nodiscard]] std::size_t in_file() const { return store_->statistics().tiers[1].blocks; }
};

TEST_F(MemoryAboveAFile, WritesAPutThroughBeforeItEnds) {
  open_with(0);
  for (std::uint64_t key = 0; key < 5; ++key) {
    put(key);
    EXPECT_EQ(in_file(), key + 1);
  }
  EXPECT_EQ(store_->statistics().tiers[0].blocks, 5U);  // And keeps it.
  put(3);
  EXPECT_EQ(store_->statistics().blocks, 5U);
  store_.reset();
  open();
  EXPECT_EQ(store_->keys().size(), 5U);
}

TEST_F(MemoryAboveAFile, LeavesAtMostTheBoundUnwritten) {
  open_with(3);
  for (std::uint64_t key = 0; key < 12; ++key) {
    put(key);
    EXPECT_GE(in_file() + 4, key + 1);
  }
  while (in_file() != 12) std::this_thread::yield();
}

TEST_F(MemoryAboveAFile, WritesTheRestWhenFlushed) {
  open_with(std::nullopt);
  for (std::uint64_t key = 0; key < 5; ++key) put(key);
  EXPECT_EQ(in_file(), 0U);
  for (const std::size_t expected : {5U, 0U}) {
    const Transfer flush = store_->flush();
    flush.wait();
    EXPECT_TRUE(flush.all_done());
    EXPECT_EQ(flush.ends().size(), expected);
  }
  EXPECT_EQ(store_->statistics().tiers[0].blocks, 5U);
  store_.reset();
  open();
  EXPECT_EQ(store_->keys().size(), 5U);
}

// --- Headers whose stores wait -------------------------------------------------------------------

/// A page that cannot be written for a while, as during its write-back. One at a time.
class BusyPage {
 public:
  /// Of the mapping of the file at `path`.
  BusyPage(const std::string& path, std::size_t offset) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find(path) == std::string::npos) continue;
      page_ = reinterpret_cast<std::byte*>(std::stoull(line, nullptr, 16)) + offset;
      break;
    }
    if (page_ == nullptr) std::abort();
    busy_ = this;
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, &before_);
    ::mprotect(page_, 4096, PROT_READ);
  }
  BusyPage(const BusyPage&) = delete;
  BusyPage& operator=(const BusyPage&) = delete;
  ~BusyPage() {
    release();
    ::sigaction(SIGSEGV, &before_, nullptr);
  }
  /// Until a thread waits for the page.
  [[nodiscard]] bool wait_until_stored_to() const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (waiting_.load_relaxed() == 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
    return waiting_.load_relaxed() != 0;
  }
  void release() {
    ::mprotect(page_, 4096, PROT_READ | PROT_WRITE);
    is_free_.store_relaxed(true);
    while (waiting_.load_relaxed() != 0) std::this_thread::yield();
  }

 private:
  static void on_fault(int /*number*/, siginfo_t* info, void* /*context*/) {
    const auto* const at = static_cast<std::byte*>(info->si_addr);
    if (at < busy_->page_ || at >= busy_->page_ + 4096) std::abort();
    busy_->waiting_.fetch_add_relaxed(1);
    while (!busy_->is_free_.load_relaxed()) ::sched_yield();
    busy_->waiting_.fetch_sub_relaxed(1);
  }
  static inline BusyPage* busy_ = nullptr;
  std::byte* page_ = nullptr;
  struct sigaction before_{};
  // Relaxed: the page fault orders nothing, and neither do they.
  Atomic<bool> is_free_{false};
  Atomic<int> waiting_{0};
};

TEST_F(InFile, ALookUpDoesNotWaitForTheStoreOfAHeader) {
  StoreOptions both = options();
  both.tiers.insert(both.tiers.begin(), {.capacity = Bytes(kBlocks * kBlockBytes)});
  // As on persistent memory, which is mapped.
  ::setenv("PMEM2_FORCE_GRANULARITY", "CACHE_LINE", 1);
  store_ = test::make_store(*engine_, both);
  ::unsetenv("PMEM2_FORCE_GRANULARITY");
  ASSERT_EQ(store_->statistics().tiers[1].access, "mapped");
  const std::vector<std::byte> bytes = block_bytes(1, 1, kBlockBytes);
  const std::pair<const char*, std::function<void()>> changes[] = {
      {"a removal", [&] { store_->remove("a"); }},
      {"a put into the file", [&] { static_cast<void>(store_->put("c", bytes, 1)); }},
      {"a put into memory", [&] { static_cast<void>(store_->put("b", bytes, 0)); }},
      {"the removal of all", [&] { store_->clear(); }},
  };
  for (const auto& [what, change] : changes) {
    for (const char* const key : {"a", "b"}) {
      ASSERT_EQ(store_->put(key, bytes, 1).outcome, Outcome::done);
    }
    BusyPage page(path_, detail::kHeadBytes);
    std::thread changing(change);
    EXPECT_TRUE(page.wait_until_stored_to()) << what;
    std::future<std::optional<std::size_t>> found =
        std::async(std::launch::async, [&] { return store_->length("b"); });
    EXPECT_EQ(found.wait_for(std::chrono::seconds(5)), std::future_status::ready) << what;
    page.release();
    changing.join();
  }
}

}  // namespace
}  // namespace headrace::store::file_test
