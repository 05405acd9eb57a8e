// SPDX-License-Identifier: Apache-2.0
// Tiers on disks that fail: each block ends by its own outcome, and a disk that hangs delays no
// other tier. The disk is a file system with faults on demand (bench/store/faults).
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <fstream>
#include <future>
#include <thread>

#include "headrace/platform/block_io.hpp"
#include "store/layout.hpp"
#include "store/tier.hpp"
#include "support/store_stage.hpp"

namespace headrace::store {
namespace {

using std::chrono::milliseconds;
using test::block_bytes;
using test::version_of;

constexpr std::size_t kBlockBytes = 8192;
constexpr std::size_t kBlocks = 16;
/// Deadline of tests that wait for it. Opening takes longer on a machine with much else to do.
constexpr milliseconds kShort{500};

template <typename Condition>
bool becomes(const Condition& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  return condition();
}

std::size_t this_thread_hash() {
  return std::hash<std::thread::id>()(std::this_thread::get_id());
}

/// Requests of blocks side by side, each of which must succeed.
class Requests {
 public:
  Requests(const platform::SharedFile& file, platform::BlockIo::Options options) {
    options.ended = [](void* context, std::span<platform::BlockRequest* const> ended) noexcept {
      // acq_rel: a thread that sees the count may read and free the requests.
      auto& self = *static_cast<Requests*>(context);
      self.ended_by_.store_relaxed(this_thread_hash());  // Read after the count.
      self.ended_.fetch_add_acq_rel(ended.size());
    };
    options.context = this;
    auto made = platform::BlockIo::make(file, options);
    EXPECT_TRUE(made.has_value()) << made.error().message();
    io_ = std::move(*made);
    std::cout << io_->note() << '\n';
  }
  /// Returns the memory of the requests, which begins with `bytes`.
  std::vector<std::byte> run(platform::BlockRequest::Action action,
                             const std::vector<std::byte>& bytes) {
    const std::unique_ptr<std::byte, decltype(&std::free)> memory(
        static_cast<std::byte*>(std::aligned_alloc(4096, bytes.size())), &std::free);
    const std::span<std::byte> all(memory.get(), bytes.size());
    if (action == platform::BlockRequest::Action::write) std::ranges::copy(bytes, all.begin());
    std::vector<platform::BlockRequest> requests(bytes.size() / kBlockBytes);
    std::vector<platform::BlockRequest*> submitted;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].action = action;
      requests[i].offset = i * kBlockBytes;
      requests[i].bytes = all.subspan(i * kBlockBytes, kBlockBytes);
      submitted.push_back(&requests[i]);
    }
    const std::size_t before = ended_.load_relaxed();
    io_->submit(submitted);
    EXPECT_TRUE(becomes([&] { return ended_.load_acquire() == before + submitted.size(); }));
    for (const auto& request : requests) EXPECT_EQ(request.os_errno, 0);
    return {all.begin(), all.end()};
  }
  /// Reads the first block by a thread that waits for it, or that ends at once. Returns the thread
  /// that noticed the end, relative to that one; nothing if the file system has no such reads.
  std::optional<bool> ended_by_caller(bool waits, const std::vector<std::byte>& expected) {
    const std::unique_ptr<std::byte, decltype(&std::free)> memory(
        static_cast<std::byte*>(std::aligned_alloc(4096, kBlockBytes)), &std::free);
    platform::BlockRequest request{.bytes = {memory.get(), kBlockBytes}};
    const std::size_t before = ended_.load_relaxed();
    const auto is_read = [&] { return ended_.load_acquire() != before; };
    bool is_possible = false;
    std::size_t hash = 0;
    std::thread caller([&] {
      hash = this_thread_hash();
      is_possible = io_->try_read(request);
      while (waits && !is_read()) {
        platform::BlockIo::wait_for_reads(*io_->state(), std::chrono::seconds(1));
      }
    });
    caller.join();
    if (!is_possible) return std::nullopt;
    EXPECT_TRUE(becomes(is_read));
    EXPECT_EQ(request.os_errno, 0);
    EXPECT_TRUE(std::ranges::equal(request.bytes, std::span(expected).first(kBlockBytes)));
    return ended_by_.load_relaxed() == hash;  // As above.
  }

 private:
  Atomic<std::size_t> ended_{0};
  Atomic<std::size_t> ended_by_{0};
  std::unique_ptr<platform::BlockIo> io_;
};

/// Starts the file system, which shows `folder`/real at `folder`/mount.
pid_t mount_faulty(const test::Folder& folder) {
  const std::string real = folder.file("real");
  const std::string mount = folder.file("mount");
  std::filesystem::create_directory(real);
  std::filesystem::create_directory(mount);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(HEADRACE_FAULT_FS, HEADRACE_FAULT_FS, real.c_str(), mount.c_str(), nullptr);
    ::_exit(127);
  }
  return child;
}

class OnFaultyDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    child_ = mount_faulty(folder_);
    if (!becomes([&] {
          return ::waitpid(child_, nullptr, WNOHANG) != 0 ||
                 std::filesystem::exists(mount_ + "/.faults");
        }) ||
        !std::filesystem::exists(mount_ + "/.faults")) {
      GTEST_SKIP() << "FUSE file systems cannot be mounted here";
    }
  }
  void TearDown() override {
    set_faults("");
    store_.reset();
    ::umount2(mount_.c_str(), MNT_DETACH);
    ::kill(child_, SIGTERM);
    ::waitpid(child_, nullptr, 0);
  }

  void set_faults(const std::string& text) const {
    std::ofstream(mount_ + "/.faults") << text << '\n';
  }
  /// Of the data of slots from `first` to before `last`.
  void set_fault(const std::string& fault, std::size_t first, std::size_t last) const {
    const detail::Head head = detail::head_of(kBlockBytes, kBlocks, "").value();
    set_faults(fault + ' ' + std::to_string(head.data_offset + (first - 1) * kBlockBytes) + ' ' +
               std::to_string(head.data_offset + (last - 1) * kBlockBytes));
  }
  /// What precedes the data cannot be written.
  void refuse_headers() const {
    const detail::Head head = detail::head_of(kBlockBytes, kBlocks, "").value();
    set_faults("write 5 0 " + std::to_string(head.data_offset));
  }
  [[nodiscard]] StoreOptions options(milliseconds deadline = milliseconds(20'000)) const {
    return {.block_bytes = Bytes(kBlockBytes),
            .tiers = {{.capacity = Bytes(kBlocks * kBlockBytes),
                       .path = mount_ + "/blocks",
                       .deadline = deadline}}};
  }
  void open(const StoreOptions& asked) {
    store_.reset();
    store_ = test::make_store(*engine_, asked);
    ASSERT_NE(store_, nullptr);
  }
  [[nodiscard]] Outcome put(std::uint64_t key, std::size_t tier = 0) {
    return store_->put(std::to_string(key), block_bytes(key, 1, kBlockBytes), tier).outcome;
  }
  [[nodiscard]] Outcome get(std::uint64_t key) {
    std::vector<std::byte> bytes(kBlockBytes);
    const Outcome outcome = store_->get(std::to_string(key), bytes).outcome;
    if (outcome == Outcome::done) {
      EXPECT_EQ(version_of(key, bytes), 1U);
    }
    return outcome;
  }
  [[nodiscard]] TierStatistics tier(std::size_t i = 0) { return store_->statistics().tiers[i]; }

  test::Folder folder_;
  const std::string mount_ = folder_.file("mount");
  std::unique_ptr<engine::Engine> engine_ = test::worker_engine();
  std::unique_ptr<Store> store_;
  pid_t child_ = -1;
};

TEST_F(OnFaultyDisk, OneUnreadableBlockIsLostAndTheOthersAreServed) {
  open(options());
  for (std::uint64_t key = 0; key < 6; ++key) ASSERT_EQ(put(key), Outcome::done);
  set_fault("read 5", 1, 2);
  std::size_t failed = 0;
  for (std::uint64_t key = 0; key < 6; ++key) {
    const Outcome outcome = get(key);
    if (outcome == Outcome::io_failed) ++failed;
    EXPECT_TRUE(outcome == Outcome::done || outcome == Outcome::io_failed) << name(outcome);
  }
  EXPECT_EQ(failed, 1U);
  EXPECT_TRUE(tier().is_healthy);
  set_faults("");
  // Its slot is not used again.
  for (std::uint64_t key = 100; key < 140; ++key) ASSERT_EQ(put(key), Outcome::done);
  EXPECT_EQ(tier().blocks_lost, 1U);
}

TEST_F(OnFaultyDisk, WhatCouldNotBeReadIsThereAgainWhenTheDiskIs) {
  open(options());
  for (std::uint64_t key = 1; key < 4; ++key) ASSERT_EQ(put(key), Outcome::done);
  set_fault("read 5", 1, kBlocks + 1);
  for (std::uint64_t key = 1; key < 4; ++key) EXPECT_EQ(get(key), Outcome::io_failed);
  set_faults("");
  // Its place may be bad: until the next opening nothing is read from it.
  EXPECT_EQ(get(1), Outcome::unknown_key);
  EXPECT_TRUE(store_->keys().empty());
  EXPECT_EQ(store_->remove("2"), Outcome::done);
  const std::vector<std::byte> later = block_bytes(3, 2, kBlockBytes);
  EXPECT_EQ(store_->put("3", later).outcome, Outcome::done);
  open(options());
  EXPECT_EQ(get(1), Outcome::done);
  EXPECT_EQ(get(2), Outcome::unknown_key);
  std::vector<std::byte> bytes(kBlockBytes);
  EXPECT_EQ(store_->get("3", bytes).outcome, Outcome::done);
  EXPECT_EQ(bytes, later);
}

TEST_F(OnFaultyDisk, ABlockThatCannotBeWrittenFailsAlone) {
  open(options());
  set_fault("write 5", 1, 2);
  std::vector<Outcome> outcomes;
  for (std::uint64_t key = 0; key < 6; ++key) outcomes.push_back(put(key));
  EXPECT_EQ(std::ranges::count(outcomes, Outcome::io_failed), 1);
  EXPECT_EQ(std::ranges::count(outcomes, Outcome::done), 5);
  EXPECT_TRUE(tier().is_healthy);
  EXPECT_EQ(tier().blocks_lost, 1U);
}

TEST_F(OnFaultyDisk, AFullDiskIsNamedAndItsSlotsAreUsedLater) {
  open(options());
  set_fault("write 28", 1, kBlocks + 1);
  EXPECT_EQ(put(1), Outcome::disk_full);
  set_faults("");
  EXPECT_EQ(put(1), Outcome::done);
  EXPECT_EQ(tier().blocks_lost, 0U);
}

TEST_F(OnFaultyDisk, AReadOnlyFileSystemIsNotHealthyAndItsSlotsAreUsedLater) {
  open(options());
  ASSERT_EQ(put(1), Outcome::done);
  set_faults("write 30");  // EROFS, as after an error of the file system.
  for (std::uint64_t key = 10; key < 15; ++key) EXPECT_EQ(put(key), Outcome::io_failed);
  EXPECT_EQ(get(1), Outcome::done);
  EXPECT_FALSE(tier().is_healthy);
  EXPECT_EQ(tier().blocks_lost, 0U);
  set_faults("");
  EXPECT_EQ(put(10), Outcome::done);
  EXPECT_TRUE(tier().is_healthy);
}

TEST_F(OnFaultyDisk, HeadersThatCannotBeReadCostOnlyTheirBlocks) {
  StoreOptions asked = options();
  asked.tiers[0].capacity = Bytes(64 * kBlockBytes);  // Four pages of headers.
  open(asked);
  for (std::uint64_t key = 0; key < 40; ++key) ASSERT_EQ(put(key), Outcome::done);
  store_.reset();
  set_faults("read 5 4096 8192");
  open(asked);
  std::size_t there = 0;
  for (std::uint64_t key = 0; key < 40; ++key) {
    const Outcome outcome = get(key);
    EXPECT_TRUE(outcome == Outcome::done || outcome == Outcome::unknown_key) << name(outcome);
    there += outcome == Outcome::done ? 1 : 0;
  }
  EXPECT_EQ(there, 24U);
  EXPECT_EQ(put(100), Outcome::done);
  EXPECT_EQ(get(100), Outcome::done);
  // A disk that can be read again has lost nothing.
  set_faults("");
  open(asked);
  for (std::uint64_t key = 0; key < 40; ++key) EXPECT_EQ(get(key), Outcome::done) << key;
}

TEST_F(OnFaultyDisk, ShortReadsAreContinuedAndShortWritesLoseNothing) {
  open(options());
  ASSERT_EQ(put(1), Outcome::done);
  set_faults("write short\nread short");
  EXPECT_EQ(get(1), Outcome::done);
  // The kernel reports a short asynchronous write of FUSE as EIO (fuse_get_res_by_io() in
  // fs/fuse/file.c), which fails the put. AWriteInPartsIsContinued has the other case.
  const Outcome second = put(2);
  EXPECT_TRUE(second == Outcome::done || second == Outcome::io_failed) << name(second);
  const Outcome there = second == Outcome::done ? Outcome::done : Outcome::unknown_key;
  EXPECT_EQ(get(2), there);
  open(options());
  EXPECT_EQ(get(1), Outcome::done);
  EXPECT_EQ(get(2), there);
}

TEST_F(OnFaultyDisk, AWriteInPartsIsContinued) {
  const std::vector<std::byte> source = block_bytes(1, 1, 8 * kBlockBytes);
  const std::string path = mount_ + "/file";
  ASSERT_TRUE(platform::make_file(path, source.size(), {}).has_value());
  const auto file = platform::SharedFile::open(path, true);
  ASSERT_TRUE(file.has_value());
  set_faults("write short\nread short");
  // A thread's pwrite() returns what was written.
  Requests requests(*file, {.ring = false, .direct = false});
  requests.run(platform::BlockRequest::Action::write, source);
  EXPECT_EQ(requests.run(platform::BlockRequest::Action::read, source), source);
}

TEST_F(OnFaultyDisk, APutWhoseFlushFailsIsNotAcknowledged) {
  open(options());
  ASSERT_EQ(put(1), Outcome::done);
  set_faults("sync 5");
  EXPECT_EQ(put(2), Outcome::io_failed);
  EXPECT_FALSE(tier().is_healthy);
  EXPECT_EQ(get(1), Outcome::done);
  set_faults("");
  EXPECT_EQ(put(3), Outcome::done);
  EXPECT_TRUE(tier().is_healthy);
  open(options());
  EXPECT_EQ(get(1), Outcome::done);
  EXPECT_EQ(get(2), Outcome::unknown_key);
  EXPECT_EQ(get(3), Outcome::done);
}

TEST_F(OnFaultyDisk, APutThatIsWrittenDuringAFlushThatFailsIsNotAcknowledged) {
  // The next flush may succeed although the disk has lost what was written before.
  StoreOptions asked = options();
  asked.tiers[0].deadline = std::chrono::seconds(60);
  open(asked);
  set_fault("sync 5\nwrite hang", 1, 2);
  const std::vector<std::byte> bytes = block_bytes(2, 1, kBlockBytes);
  const PutBlock first{.key = "1", .source = bytes};
  const PutBlock second{.key = "2", .source = bytes};
  const Transfer written = store_->put({&first, 1});  // Into slot 1.
  const Transfer flushed = store_->put({&second, 1});
  flushed.wait();
  EXPECT_EQ(flushed.ends()[0].outcome, Outcome::io_failed);
  EXPECT_FALSE(written.poll());
  set_faults("");
  written.wait();
  EXPECT_EQ(written.ends()[0].outcome, Outcome::io_failed);
  EXPECT_EQ(put(3), Outcome::done);
}

TEST_F(OnFaultyDisk, HeadersThatCannotBeWrittenStayInTheLog) {
  open(options());
  ASSERT_EQ(put(1), Outcome::done);
  ASSERT_EQ(put(2), Outcome::done);
  set_faults("write 5 4096 8192");  // The table of headers: one page.
  for (std::uint64_t key = 3; key < 6; ++key) {
    EXPECT_EQ(put(key), Outcome::done);
    EXPECT_EQ(store_->remove(std::to_string(key - 2)), Outcome::done);
    open(options());  // Closing and opening write the table, in vain.
    EXPECT_EQ(get(key - 2), Outcome::unknown_key);
    EXPECT_EQ(get(key - 1), Outcome::done);
    EXPECT_EQ(get(key), Outcome::done);
  }
  set_faults("");
  open(options());
  EXPECT_EQ(store_->keys().size(), 2U);
}

TEST_F(OnFaultyDisk, ALogThatCannotBeWrittenIsLeft) {
  const detail::Head head = detail::head_of(kBlockBytes, kBlocks, "").value();
  open(options());
  for (std::uint64_t key = 0; key < 100; ++key) {
    // A page, of the one half and then of the other.
    const std::size_t bad = head.data_offset - 4096 * (1 + key % (head.log_bytes / 2048));
    set_faults("write 5 " + std::to_string(bad) + ' ' + std::to_string(bad + 4096));
    EXPECT_EQ(put(key % 4), Outcome::done) << key;
  }
  open(options());
  for (std::uint64_t key = 0; key < 4; ++key) EXPECT_EQ(get(key), Outcome::done);
}

TEST_F(OnFaultyDisk, NoOlderVersionReturnsThoughItsHeaderCouldNotBeTakenAway) {
  StoreOptions asked = options();
  asked.tiers[0].capacity = Bytes(64 * kBlockBytes);  // Four pages of headers.
  open(asked);
  for (std::uint64_t key = 0; key < 20; ++key) ASSERT_EQ(put(key), Outcome::done);
  set_faults("write 5 4096 8192");  // Keys 0 to 15.
  const std::vector<std::byte> later = block_bytes(3, 2, kBlockBytes);
  EXPECT_EQ(store_->put("3", later).outcome, Outcome::done);
  EXPECT_EQ(store_->remove("3"), Outcome::done);
  EXPECT_EQ(store_->remove("4"), Outcome::done);
  // As a kill would leave it: nothing more is written.
  set_faults("write 5");
  store_.reset();
  set_faults("");
  for (int i = 0; i < 2; ++i) {
    open(asked);
    for (std::uint64_t key = 0; key < 20; ++key) {
      EXPECT_EQ(get(key), key == 3 || key == 4 ? Outcome::unknown_key : Outcome::done) << key;
    }
  }
  EXPECT_EQ(tier().blocks_lost, 0U);
}

TEST_F(OnFaultyDisk, WhatADiskKeepsIsNotReportedAsRemovedOrReplaced) {
  StoreOptions asked = options();
  asked.tiers[0].capacity = Bytes(64 * kBlockBytes);  // Four pages of headers.
  open(asked);
  for (std::uint64_t key = 0; key < 20; ++key) ASSERT_EQ(put(key), Outcome::done);
  refuse_headers();
  EXPECT_EQ(put(2), Outcome::io_failed);
  EXPECT_EQ(store_->remove("1"), Outcome::io_failed);
  EXPECT_EQ(store_->clear(), 0U);
  EXPECT_TRUE(becomes([&] { return !tier().is_healthy; }));
  for (std::uint64_t key = 0; key < 20; ++key) EXPECT_EQ(get(key), Outcome::done);
  set_faults("");
  EXPECT_EQ(store_->remove("1"), Outcome::done);
  EXPECT_EQ(put(20), Outcome::done);
  open(asked);
  EXPECT_EQ(get(1), Outcome::unknown_key);
  EXPECT_EQ(get(20), Outcome::done);
}

TEST_F(OnFaultyDisk, APutFailsIfItsPredecessorMayReturnFromAnotherFile) {
  StoreOptions asked = options();
  asked.tiers.insert(asked.tiers.begin(), {.capacity = asked.tiers[0].capacity});
  asked.tiers.insert(asked.tiers.begin(), asked.tiers[1]);
  asked.tiers[0].path = folder_.file("other");
  open(asked);
  ASSERT_EQ(put(1, 2), Outcome::done);
  refuse_headers();
  EXPECT_EQ(put(1, 0), Outcome::io_failed);
  EXPECT_EQ(put(1, 1), Outcome::io_failed);
  EXPECT_EQ(get(1), Outcome::done);
  set_faults("");
  EXPECT_EQ(put(1, 0), Outcome::done);
}

TEST_F(OnFaultyDisk, HeadersThatCouldNotBeReadAreVoidOnceAnotherIsTakenAway) {
  StoreOptions asked = options();
  asked.tiers[0].capacity = Bytes(64 * kBlockBytes);
  open(asked);
  for (std::uint64_t key = 0; key < 40; ++key) ASSERT_EQ(put(key), Outcome::done);
  store_.reset();
  set_faults("read 5 4096 8192");  // Keys 0 to 15.
  open(asked);
  const std::vector<std::byte> later = block_bytes(3, 2, kBlockBytes);
  EXPECT_EQ(store_->put("3", later).outcome, Outcome::done);
  EXPECT_EQ(store_->remove("3"), Outcome::done);
  set_faults("");
  open(asked);
  for (std::uint64_t key = 0; key < 40; ++key) {
    EXPECT_EQ(get(key), key < 16 ? Outcome::unknown_key : Outcome::done) << key;
  }
}

TEST_F(OnFaultyDisk, AFileWhoseFirstPageCannotBeWrittenIsNotOpened) {
  StoreOptions asked = options();
  asked.tiers[0].durability = Durability::process;
  open(asked);
  ASSERT_EQ(put(1), Outcome::done);
  open(options());
  store_.reset();
  set_faults("write 5 0 4096");
  // The mark could not be set.
  const auto made = Store::make(*engine_, asked);
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, Code::io_failed);
}

TEST_F(OnFaultyDisk, AHungReadEndsAtItsDeadlineAndHoldsNothingElse) {
  StoreOptions asked = options(kShort);
  asked.promote_after = 0;
  asked.tiers.insert(asked.tiers.begin(), {.capacity = Bytes(kBlocks * kBlockBytes)});
  open(asked);
  ASSERT_EQ(put(1, 1), Outcome::done);
  ASSERT_EQ(put(2, 1), Outcome::done);
  ASSERT_EQ(put(3, 0), Outcome::done);
  set_fault("read hang", 1, kBlocks + 1);
  std::vector<std::byte> bytes(kBlockBytes, std::byte{7});
  const GetBlock hung{.key = "1", .target = bytes};
  const Transfer transfer = store_->get({&hung, 1});
  // Memory is served meanwhile.
  EXPECT_EQ(get(3), Outcome::done);
  EXPECT_FALSE(transfer.poll());
  ASSERT_TRUE(transfer.wait_for(std::chrono::seconds(20)));
  EXPECT_EQ(transfer.ends()[0].outcome, Outcome::timed_out);
  EXPECT_FALSE(tier(1).is_healthy);
  EXPECT_EQ(put(4, 0), Outcome::done);
  EXPECT_EQ(put(5, 1), Outcome::io_failed);
  // The kernel gives the memory back late: it was never the caller's.
  set_faults("");
  EXPECT_TRUE(becomes([&] { return tier(1).is_healthy; }));
  EXPECT_EQ(std::ranges::count(bytes, std::byte{7}), static_cast<std::ptrdiff_t>(bytes.size()));
  EXPECT_TRUE(tier(1).is_healthy);
  EXPECT_EQ(get(1), Outcome::done);
  EXPECT_EQ(get(2), Outcome::done);
  EXPECT_EQ(put(5, 1), Outcome::done);
}

TEST_F(OnFaultyDisk, AHungWriteOrFlushEndsAtItsDeadline) {
  for (const char* const fault : {"write hang", "sync hang"}) {
    open(options(kShort));
    set_faults(fault);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(put(1), Outcome::timed_out) << fault;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    set_faults("");
    EXPECT_TRUE(becomes([&] { return tier().is_healthy; })) << fault;
    EXPECT_EQ(put(2), Outcome::done) << fault;
    EXPECT_EQ(get(2), Outcome::done);
  }
}

TEST_F(OnFaultyDisk, TheStoreCanBeDestroyedWhileItsDiskHangs) {
  open(options(kShort));
  ASSERT_EQ(put(1), Outcome::done);
  set_faults("read hang\nwrite hang\nsync hang");
  EXPECT_EQ(get(1), Outcome::timed_out);
  const auto begin = std::chrono::steady_clock::now();
  store_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  // What the kernel still has could change the file under another store.
  EXPECT_FALSE(Store::make(*engine_, options(kShort)).has_value());
  set_faults("");
  EXPECT_TRUE(becomes([&] { return Store::make(*engine_, options(kShort)).has_value(); }));
}

TEST_F(OnFaultyDisk, AFileIsOpenedWhenTheDiskHasEndedTheRequestsOfItsFormerStore) {
  open(options(kShort));
  ASSERT_EQ(put(1), Outcome::done);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(Store::make(*engine_, options()).has_value()) << "it is open";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  set_faults("read hang");
  EXPECT_EQ(get(1), Outcome::timed_out);
  store_.reset();
  auto opening = std::async(std::launch::async, [&] { open(options()); });
  EXPECT_EQ(opening.wait_for(milliseconds(2500)), std::future_status::timeout);
  set_faults("");
  opening.get();
  ASSERT_NE(store_, nullptr);
  EXPECT_EQ(get(1), Outcome::done);
}

TEST_F(OnFaultyDisk, TheFileSystemUnmountsWhenItsProgramIsKilled) {
  const test::Folder folder;
  const pid_t program = ::fork();
  if (program == 0) {
    mount_faulty(folder);
    ::pause();
  }
  const auto is_mounted = [&] { return std::filesystem::exists(folder.file("mount/.faults")); };
  EXPECT_TRUE(becomes(is_mounted));
  ::kill(program, SIGKILL);
  ::waitpid(program, nullptr, 0);
  EXPECT_TRUE(becomes([&] { return !is_mounted(); }));
}

TEST(TierOnADisk, ARoundWaitsForBlocksThatAreBeingWritten) {
  const test::Folder folder;
  const auto made = detail::Tier::make(
      {.capacity = Bytes(256 * kBlockBytes), .path = folder.file("blocks")}, kBlockBytes, true);
  ASSERT_TRUE(made.has_value());
  detail::Tier& tier = **made;
  tier.free_count = 256;
  const auto is_due = [&](std::size_t filling, std::size_t written, std::size_t retired) {
    tier.filling = filling;
    tier.fresh.resize(written);
    tier.retired.resize(retired);
    return tier.is_round_due();
  };
  EXPECT_FALSE(is_due(3, 0, 0));
  EXPECT_FALSE(is_due(3, 2, 0));
  EXPECT_TRUE(is_due(3, 3, 0));
  EXPECT_FALSE(is_due(200, 63, 0));
  EXPECT_TRUE(is_due(200, 64, 0));
  // Slots become free with the next blocks, unless they run out.
  EXPECT_FALSE(is_due(0, 0, 5));
  tier.free_count = 1;
  EXPECT_TRUE(is_due(0, 0, 5));
}

// --- The ways to read and write ------------------------------------------------------------------

TEST(BlockIoTest, EachWayReadsWhatWasWritten) {
  const test::Folder folder;
  const std::string path = folder.file("file");
  ASSERT_TRUE(platform::make_file(path, 64 * kBlockBytes, {}).has_value());
  const auto file = platform::SharedFile::open(path, true);
  ASSERT_TRUE(file.has_value());
  for (const bool ring : {true, false}) {
    for (const bool direct : {true, false}) {
      Requests requests(*file, {.depth = 8, .ring = ring, .direct = direct});
      const std::vector<std::byte> source =
          block_bytes(7, (ring ? 1U : 0U) + (direct ? 2U : 0U), 64 * kBlockBytes);
      requests.run(platform::BlockRequest::Action::write, source);
      requests.run(platform::BlockRequest::Action::sync, source);
      EXPECT_EQ(requests.run(platform::BlockRequest::Action::read, source), source);
    }
  }
}

TEST(BlockIoTest, AThreadReadsItselfWhatItWaitsFor) {
  const test::Folder folder;
  const std::string path = folder.file("file");
  const std::vector<std::byte> bytes = block_bytes(7, 1, 64 * kBlockBytes);
  ASSERT_TRUE(platform::make_file(path, bytes.size(), bytes).has_value());
  const auto file = platform::SharedFile::open(path, true);
  ASSERT_TRUE(file.has_value());
  Requests requests(*file, {.depth = 8});
  std::size_t by_caller = 0;
  // The disk may be faster than the thread, on a busy machine most of the time.
  for (int i = 0; i < 20 || (by_caller < 10 && i < 2000); ++i) {
    const std::optional<bool> own = requests.ended_by_caller(true, bytes);
    if (!own) GTEST_SKIP() << "no reads without waiting here";
    by_caller += *own ? 1U : 0U;
    // A thread that does not wait, and has ended.
    ASSERT_EQ(requests.ended_by_caller(false, bytes), std::optional(false));
  }
  EXPECT_GE(by_caller, 10U);
}

TEST(StoreOnADisk, ManyThreadsGetSingleBlocks) {
  const test::Folder folder;
  const auto engine = test::worker_engine();
  for (int round = 0; round < 5; ++round) {
    auto store = test::make_store(
        *engine,
        {.block_bytes = Bytes(kBlockBytes),
         .tiers = {{.capacity = Bytes(4 * kBlocks * kBlockBytes), .path = folder.file("blocks")}}});
    ASSERT_NE(store, nullptr);
    for (std::uint64_t key = 0; key < kBlocks; ++key) {
      ASSERT_EQ(store->put(std::to_string(key), block_bytes(key, 1, kBlockBytes)).outcome,
                Outcome::done);
    }
    std::vector<std::thread> threads;
    for (std::uint64_t first = 0; first < 4; ++first) {
      threads.emplace_back([&store, first] {
        std::vector<std::byte> bytes(kBlockBytes);
        for (std::uint64_t i = 0; i < 100; ++i) {
          const std::uint64_t key = (first + i) % kBlocks;
          EXPECT_EQ(store->get(std::to_string(key), bytes).outcome, Outcome::done);
          EXPECT_EQ(version_of(key, bytes), 1U);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(StoreWithoutIoUring, UsesAPoolOfThreads) {
  const test::Folder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    // As containers do.
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{.len = std::size(program), .filter = program};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
      ::_exit(77);
    }
    const auto engine = test::worker_engine();
    const auto store =
        test::make_store(*engine, {.block_bytes = Bytes(kBlockBytes),
                                   .tiers = {{.capacity = mib(1), .path = folder.file("blocks")}}});
    const std::vector<std::byte> bytes = block_bytes(1, 1, kBlockBytes);
    std::vector<std::byte> read(kBlockBytes);
    const bool works = store->put("1", bytes).outcome == Outcome::done &&
                       store->get("1", read).outcome == Outcome::done && read == bytes;
    const std::string access = store->statistics().tiers[0].access;
    ::_exit(works && access.starts_with(
                         "a pool of threads, because io_uring is not available (Operation not")
                ? 0
                : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "seccomp is not available";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace headrace::store
