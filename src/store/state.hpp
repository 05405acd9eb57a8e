// SPDX-License-Identifier: Apache-2.0
// StoreState: the implementation of Store. One mutex guards everything but the bytes of blocks; no
// engine call and no callback is made while it is held. See docs/internals/store.md.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "block.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/platform/descriptor.hpp"
#include "headrace/platform/process.hpp"
#include "headrace/store/store.hpp"
#include "tier.hpp"

namespace headrace::store {
namespace detail {

/// Fails: invalid_argument.
[[nodiscard]] Result<void> check(const StoreOptions& options);

[[nodiscard]] inline bool is_key(std::string_view key) {
  return !key.empty() && key.size() <= kKeyBytesMax;
}
/// The outcome of a step.
[[nodiscard]] Outcome outcome_of(const engine::Completion& completion);

/// State of a batch, shared by its transfer and the store.
struct TransferBatch {
  static constexpr std::uint32_t kRunning = 0;
  static constexpr std::uint32_t kSlept = 1;  ///< Running, and a thread sleeps until it completes.
  static constexpr std::uint32_t kEnded = 2;

  std::span<BlockEnd> ends;  ///< Guarded by the store's mutex until completion.
  std::size_t left = 0;      ///< Guarded likewise.
  BlockEnd only;             ///< `ends` of one block: without another allocation.
  std::vector<BlockEnd> several;
  std::shared_ptr<TransferBatch> next;  ///< In Work.
  TransferOptions options;
  engine::Waiting waiting = engine::Waiting::adaptive;
  /// Of the disk of a get that its caller has started. Waiting threads wait there while `is_read`
  /// is 1. Weak: batches of late requests stay.
  std::weak_ptr<platform::BlockIo::State> reads;
  Atomic<std::uint32_t> is_read{0};
  Atomic<std::uint32_t> word{kRunning};

  [[nodiscard]] static std::shared_ptr<TransferBatch> make(std::size_t block_count,
                                                           const TransferOptions& options,
                                                           engine::Waiting waiting);
  /// Ends it, with all `ends`. Signals `event`, which may be null.
  void announce(const platform::EventDescriptor* event);
};

/// One block in a chunk.
struct Step {
  Block* block = nullptr;
  std::uint32_t index = 0;  ///< Put, get: index in the batch.
  SlotNumber slot = 0;      ///< Put, move: slot that is written.
  std::uint8_t from = 0;    ///< Get, move: tier.
  std::uint8_t to = 0;      ///< Put, move: tier.
  /// Get: set of tiers whose copies could not be read or did not match the checksum.
  std::uint8_t corrupt = 0;
  std::byte* buffer = nullptr;  ///< Get, move: has what was read from the disk.
};

enum class Kind : std::uint8_t { put, get, move };

/// A read or write of a slot on a disk, before or after the copy of its step.
struct Io : platform::BlockRequest {
  std::size_t tier = 0;
  Kind purpose = Kind::put;
  Step step;
  std::shared_ptr<TransferBatch> batch;
  std::span<std::byte> target;  ///< Get.
  std::chrono::nanoseconds expires{};
  bool is_late = false;              ///< Beyond the deadline; its block has ended.
  std::uint32_t failed_flushes = 0;  ///< Tier::failed_flushes when it was submitted.
};

/// One engine job: copies of one batch, or moves between tiers.
struct alignas(64) Chunk {
  StoreState* store = nullptr;
  Kind kind = Kind::put;
  std::uint8_t list = 0;  ///< Of FreeLists.
  std::size_t byte_count = 0;
  std::shared_ptr<TransferBatch> batch;
  std::vector<engine::Operation> operations;
  std::vector<engine::Completion> completions;
  std::vector<Step> steps;
  std::optional<NodeId> source_node;
  std::optional<NodeId> target_node;
  Chunk* next = nullptr;  ///< In Work.
  engine::Job job;
};

/// Work to do after the mutex is released.
struct Work {
  /// The submitting thread copies puts and gets in memory of up to this many bytes in total.
  std::size_t inline_bytes_max = 0;
  std::size_t byte_count = 0;  ///< Of puts and gets.
  Chunk* chunks = nullptr;     ///< Linked, as `ended`: a list would allocate for each transfer.
  Chunk** chunks_end = &chunks;
  std::array<Chunk*, 3> open{};  ///< By Kind: the chunk that accepts more steps.
  std::vector<Io*> ios;          ///< For their disks.
  std::shared_ptr<TransferBatch> ended;
  std::shared_ptr<TransferBatch>* ended_end = &ended;

  void send(Chunk& chunk) {
    *chunks_end = &chunk;
    chunks_end = &chunk.next;
  }
  void end(const std::shared_ptr<TransferBatch>& batch) {
    *ended_end = batch;
    ended_end = &batch->next;
  }
};

}  // namespace detail

/// Threading: shared.
class StoreState final : public Store {
 public:
  // Not inlined: GCC 12 reports new and the operator below as mismatched if it sees both.
  [[gnu::noinline]] ~StoreState() override;
  /// In a child of fork() the thread cannot be joined, and the state may be inconsistent: the
  /// memory is leaked.
  static void operator delete(StoreState* state, std::destroying_delete_t how);

  [[nodiscard]] Transfer put(std::span<const PutBlock> blocks, std::size_t tier,
                             const TransferOptions& options) override;
  [[nodiscard]] Transfer get(std::span<const GetBlock> blocks,
                             const TransferOptions& options) override;
  [[nodiscard]] Transfer flush() override;
  [[nodiscard]] std::optional<std::size_t> length(std::string_view key) const override;
  [[nodiscard]] bool pin(std::string_view key) override;
  bool unpin(std::string_view key) override;
  Outcome remove(std::string_view key) override;
  std::size_t clear() override;
  [[nodiscard]] std::vector<std::string> keys() const override;
  [[nodiscard]] StoreStatistics statistics() const override;
  [[nodiscard]] Result<int> event_descriptor() override;

  /// As Store::make. With `shared` its memory is that of the first tier, and outlives the store.
  [[nodiscard]] static Result<std::unique_ptr<StoreState>> make(engine::Engine& engine,
                                                                const StoreOptions& options,
                                                                detail::SharedCells* shared);
  /// Of a shared store: adds and removes readers, which may be null, and frees what clients have
  /// read in place meanwhile.
  void share(detail::SharedCells::Reader* added, const detail::SharedCells::Reader* removed);
  [[nodiscard]] bool is_forked() const { return platform::fork_count() != fork_count_; }

 private:
  using Block = detail::Block;
  using Chunk = detail::Chunk;
  using BatchPointer = std::shared_ptr<detail::TransferBatch>;
  using Publication = detail::Publication;
  using SlotNumber = detail::SlotNumber;
  using Step = detail::Step;
  using Tier = detail::Tier;
  using Work = detail::Work;

  /// Limits of one job: bound how long it occupies a worker, and when its first blocks complete.
  static constexpr std::size_t kChunkBytes = std::size_t{8} << 20U;
  static constexpr std::size_t kChunkSteps = 256;
  /// Failed moves of a block before it is dropped.
  static constexpr std::uint32_t kFailedMovesMax = 3;

  StoreState(engine::Engine& engine, const StoreOptions& options);

  // Blocks and slots: blocks.cpp.
  /// The key's block; null if it has none, or only copies that are being dropped.
  [[nodiscard]] Block* find(std::string_view key) const HEADRACE_REQUIRES(mutex_);
  /// Adds the headers of old entries to `old`, for invalidate().
  void recover(std::size_t tier, std::vector<detail::HeaderPlace>& old) HEADRACE_REQUIRES(mutex_);
  /// Makes the block the current one of its key, or what it has: returns the current one. Null if
  /// the key already has that of a later put.
  [[nodiscard]] Block* commit(Block& block, std::size_t tier, SlotNumber slot)
      HEADRACE_REQUIRES(mutex_);
  /// Removes a live block, which has no valid header, from the index; it is freed when no transfer
  /// uses it.
  void retire(Block& block) HEADRACE_REQUIRES(mutex_);
  /// The part of retire() that takes effect for readers.
  void take_off(Block& block) HEADRACE_REQUIRES(mutex_);
  /// Frees what nothing uses: a block that is not live or has no copy.
  void tidy(Block& block) HEADRACE_REQUIRES(mutex_);
  /// Drops a copy that nothing uses, in a file by the flusher; tidy() follows.
  void drop_copy(Block& block, std::size_t tier) HEADRACE_REQUIRES(mutex_);
  /// Whether a file has, or is about to get, a valid header of the block.
  [[nodiscard]] bool has_headers(const Block& block) const HEADRACE_REQUIRES(mutex_);
  /// Adds its headers to `headers`, for invalidate(). Ends with cleared().
  void begin_ending(Block& block, std::vector<detail::HeaderPlace>& headers)
      HEADRACE_REQUIRES(mutex_);
  /// Without the mutex: the stores may wait for the disk. They survive the end of the process;
  /// false if a disk does not take them, other than that of `home`, which takes nothing later
  /// before.
  [[nodiscard]] static bool invalidate(std::span<const detail::HeaderPlace> headers,
                                       const detail::TierFile* home = nullptr);
  void cleared(Block& block, bool is_certain) HEADRACE_REQUIRES(mutex_);
  /// Removes the key's block, or every one. Returns the number of removed blocks; none if a disk
  /// does not forget them.
  std::optional<std::size_t> take_out(const std::string_view* key);
  void release(std::size_t tier, SlotNumber slot) HEADRACE_REQUIRES(mutex_);
  /// A free slot of the tier, or 0; `may_wait` is set if one may become free.
  [[nodiscard]] SlotNumber take(std::size_t tier, Work& work, bool& may_wait)
      HEADRACE_REQUIRES(mutex_);
  /// Evicts until `low_water` slots are free or being freed. Returns whether a slot may become
  /// free: one is being freed or filled, or an evictable block is in use.
  bool make_room(std::size_t tier, Work& work) HEADRACE_REQUIRES(mutex_);
  /// False if the block cannot be evicted now. `may_wait` is set if it may be later.
  bool evict(Block& block, std::size_t tier, Work& work, bool& may_wait) HEADRACE_REQUIRES(mutex_);
  void move(Block& block, std::size_t from, std::size_t to, SlotNumber slot, Work& work)
      HEADRACE_REQUIRES(mutex_);
  /// The copy of a move from `source`.
  void copy_move(const Step& step, std::span<const std::byte> source, Work& work)
      HEADRACE_REQUIRES(mutex_);
  void promote(Block& block, std::size_t from, Work& work) HEADRACE_REQUIRES(mutex_);
  void end_move(Block& block, std::size_t from, std::size_t to, SlotNumber slot, Outcome outcome,
                bool is_lost, Work& work) HEADRACE_REQUIRES(mutex_);
  /// Ends a put of a committed block in memory, now or when the block has been written to a file.
  void end_or_write(Block& block, std::size_t tier, const BatchPointer& batch, std::uint32_t index,
                    Work& work) HEADRACE_REQUIRES(mutex_);
  /// The first file below the tier; kTiersMax if there is none.
  [[nodiscard]] std::size_t file_below(std::size_t tier) const HEADRACE_REQUIRES(mutex_);
  /// Starts writes of `unwritten` blocks.
  void write_down(std::size_t tier, Work& work) HEADRACE_REQUIRES(mutex_);
  void end_written(const detail::Unwritten& written, Outcome outcome, Work& work)
      HEADRACE_REQUIRES(mutex_);
  void serve_waiting(Work& work) HEADRACE_REQUIRES(mutex_);
  void end_waiting(Tier& tier, Outcome outcome, Work& work) HEADRACE_REQUIRES(mutex_);

  // Requests of disks: disk_transfers.cpp.
  /// Reads the slot of `step.from` into a buffer, when one is free; then the step is copied.
  void start_read(detail::Kind purpose, const Step& step, std::span<std::byte> target,
                  const BatchPointer& batch, Work& work) HEADRACE_REQUIRES(mutex_);
  /// Writes the buffer of `step.slot`; then the flusher publishes the block.
  void start_write(detail::Kind purpose, const Step& step, const BatchPointer& batch, Work& work)
      HEADRACE_REQUIRES(mutex_);
  [[nodiscard]] detail::Io& make_io(detail::Kind purpose, std::size_t tier, const Step& step,
                                    const BatchPointer& batch) HEADRACE_REQUIRES(mutex_);
  void launch(detail::Io& io, Work& work) HEADRACE_REQUIRES(mutex_);
  /// Starts the read of a get of one block for a thread that is likely to wait for it.
  void start_alone(Work& work);
  /// Starts reads that have waited for a buffer.
  void feed(std::size_t tier, Work& work) HEADRACE_REQUIRES(mutex_);
  void end_ios(std::size_t tier, std::span<platform::BlockRequest* const> ended);
  void end_read(detail::Io& io, Work& work) HEADRACE_REQUIRES(mutex_);
  void end_write(detail::Io& io, Work& work) HEADRACE_REQUIRES(mutex_);
  /// The block of a get could not be read from the tier `step.from`, or did not match its checksum:
  /// reads the next copy. False if there is none.
  [[nodiscard]] bool read_elsewhere(Step& step, std::span<std::byte> target,
                                    const BatchPointer& batch, Work& work)
      HEADRACE_REQUIRES(mutex_);
  /// Ends blocks that a disk has not transferred before its deadline.
  void expire(Work& work) HEADRACE_REQUIRES(mutex_);

  // Transfers: transfers.cpp.
  [[nodiscard]] BatchPointer begin(std::size_t block_count, const TransferOptions& options) const {
    return detail::TransferBatch::make(block_count, options, engine_.waiting());
  }
  void add_step(detail::Kind kind, const BatchPointer& batch, const Step& step,
                const engine::Operation& operation, Work& work) HEADRACE_REQUIRES(mutex_);
  /// Copies the block out of the tier `step.from`, or out of its buffer.
  void start_get(Step step, std::span<std::byte> target, const BatchPointer& batch, Work& work)
      HEADRACE_REQUIRES(mutex_);
  void start_put(const detail::WaitingPut& put, std::size_t tier, SlotNumber slot, Work& work)
      HEADRACE_REQUIRES(mutex_);
  void end(const BatchPointer& batch, std::uint32_t index, Outcome outcome, std::size_t byte_count,
           Work& work) HEADRACE_REQUIRES(mutex_);
  /// Prefetches what completing the puts of a chunk needs of the replaced blocks.
  void prefetch_replaced(const Chunk& chunk) const HEADRACE_REQUIRES(mutex_);
  void end_put(const BatchPointer& batch, const Step& step, Outcome outcome,
               const engine::Completion& completion, Work& work) HEADRACE_REQUIRES(mutex_);
  void end_get(const BatchPointer& batch, Step step, std::span<std::byte> target, Outcome outcome,
               const engine::Completion& completion, Work& work) HEADRACE_REQUIRES(mutex_);
  /// Ends a get whose block was read or has no other copy.
  void finish_get(const BatchPointer& batch, const Step& step, Outcome outcome, Work& work)
      HEADRACE_REQUIRES(mutex_);
  void end_move(const Step& step, Outcome outcome, Work& work) HEADRACE_REQUIRES(mutex_);
  /// Hands a block in its slot to the flusher.
  void publish_later(detail::Kind purpose, const Step& step, const BatchPointer& batch)
      HEADRACE_REQUIRES(mutex_);
  /// Submits the chunks of `work` and announces its transfers.
  void finish(Work& work);
  void send(Chunk& chunk, std::size_t inline_bytes_max);
  /// Completes the steps of `chunk` after its job; `refused` is not `running` if the engine refused
  /// it.
  void complete(Chunk& chunk, Outcome refused);
  void wake_flusher() HEADRACE_REQUIRES(mutex_);
  /// There is work for the thread that flushes the tier.
  void wake_flusher_of(std::size_t tier) HEADRACE_REQUIRES(mutex_);

  // The flusher: flusher.cpp.
  void keep();
  /// The thread that flushes a tier on a disk, so that one that hangs delays no other.
  void keep_disk(std::size_t tier);
  [[nodiscard]] Result<void> start_threads();
  /// In tiers that the flusher flushes, or also in those on disks.
  [[nodiscard]] bool has_unflushed(bool on_disks) const HEADRACE_REQUIRES(mutex_);
  [[nodiscard]] bool is_idle() const HEADRACE_REQUIRES(mutex_);
  /// Makes the tier's new blocks durable, and frees its retired slots.
  void flush(std::size_t tier);
  /// The part of flush() without the mutex. False after a fault.
  [[nodiscard]] bool write(detail::TierFile& file, std::span<const detail::Retired> freed,
                           std::span<Publication> fresh, std::uint64_t stamp);
  /// Commits puts: first the headers of the blocks that they replace are invalidated.
  void end_puts(std::size_t tier, std::vector<Publication> puts, bool is_durable, Work& work);

  engine::Engine& engine_;
  const StoreOptions options_;
  const std::uint32_t fork_count_;
  bool has_files_ = false;
  bool is_polled_ = false;  ///< Some mover has no thread: the flusher polls it.

  // What each put writes, in one line with the mutex.
  alignas(64) mutable Mutex mutex_;
  /// Chunks started whose complete() has not returned.
  std::size_t running_ HEADRACE_GUARDED_BY(mutex_) = 0;
  detail::Sequences<> sequences_ HEADRACE_GUARDED_BY(mutex_);
  Condition flusher_wake_;
  std::vector<std::unique_ptr<Tier>> tiers_ HEADRACE_GUARDED_BY(mutex_);
  detail::Index index_ HEADRACE_GUARDED_BY(mutex_);
  StoreStatistics statistics_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Chunk>> chunks_ HEADRACE_GUARDED_BY(mutex_);
  detail::FreeLists<Chunk> free_chunks_ HEADRACE_GUARDED_BY(mutex_);
  /// Chunks that a full engine refused.
  std::deque<Chunk*> unsent_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<detail::Io>> ios_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<detail::Io*> free_ios_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<detail::Disk*> disks_;  ///< By tier, some null. Constant once the store is made.
  std::chrono::nanoseconds interval_ = std::chrono::hours(1);  ///< Of looks at deadlines.
  bool flusher_sleeps_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool is_ending_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool has_ended_ HEADRACE_GUARDED_BY(mutex_) =
      false;  ///< Nothing is left for the threads of disks.
  std::optional<platform::EventDescriptor> event_ HEADRACE_GUARDED_BY(mutex_);
  /// event_ once it exists, for threads without the mutex.
  Atomic<const platform::EventDescriptor*> signalled_{nullptr};
  std::vector<std::thread> disk_flushers_;
  std::thread flusher_;  ///< Last: it uses everything.
};

}  // namespace headrace::store
