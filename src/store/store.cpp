// SPDX-License-Identifier: Apache-2.0
// The public interface: options, names, waiting.
#include "headrace/store/store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "../engine/waiter.hpp"
#include "headrace/base/check.hpp"
#include "headrace/base/clock.hpp"
#include "headrace/base/names.hpp"
#include "headrace/base/trace.hpp"
#include "headrace/platform/process.hpp"
#include "headrace/platform/thread.hpp"
#include "headrace/platform/ticks.hpp"
#include "headrace/platform/wait.hpp"
#include "state.hpp"

namespace headrace::store {
namespace {

using detail::TransferBatch;

constexpr std::chrono::nanoseconds kForever = std::chrono::hours(24 * 365 * 100);

/// Waits for reads look this often whether the transfer has ended meanwhile, at its deadline.
constexpr std::chrono::nanoseconds kReadWaitMax = std::chrono::milliseconds(10);

constexpr auto kOutcomes = make_meanings<Outcome>({
    {Outcome::running, "It has not completed."},
    {Outcome::done, "Nothing failed."},
    {Outcome::unknown_key,
     "No block has the key: it was never put, or removed, or dropped for room."},
    {Outcome::bad_key, "The key is empty or longer than 192 bytes: use another key."},
    {Outcome::wrong_length,
     "A put is empty or longer than block_bytes, or the target of a get is shorter than the block: "
     "ask for its length first."},
    {Outcome::no_such_tier, "The store has fewer tiers: name one of those it was made with."},
    {Outcome::full,
     "Every block of the tier is pinned: unpin or remove some, or make the tier larger."},
    {Outcome::corrupt,
     "No copy of the block matches its checksum, and it has been removed: put it again, and check "
     "the memory "
     "or disk that held it."},
    {Outcome::failed,
     "The engine could not copy it: pass memory that is mapped, and see the engine's statistics."},
    {Outcome::late_write,
     "A device did not answer in time and may still write to the target: do not use that memory "
     "until the device has been reset."},
    {Outcome::io_failed,
     "The disk could not read or write the block, or make it durable, or the file was deleted or "
     "cut off: check the disk and the file. A place that failed is used again when the store is "
     "opened again."},
    {Outcome::closed,
     "The engine was stopped, the store belongs to the parent of this process, or the server of a "
     "shared store ended or is of another version, and a put may have taken effect: submit it "
     "again, or make another "
     "store."},
    {Outcome::timed_out,
     "The disk did not answer before the deadline of the tier, and a put may still take effect: "
     "check the disk or its network."},
    {Outcome::disk_full,
     "The file system had no space for the block: free some, or make the file on one that "
     "allocates space in advance."},
});

/// Waits, in the mode of EngineOptions::waiting, until the batch completes or `time_max` has
/// passed. Returns whether it completed.
bool wait_for(TransferBatch& batch, std::chrono::nanoseconds time_max) {
  // initial-exec: otherwise each access is a call.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local engine::WaitHistory history;
  const std::uint64_t begun_ticks = platform::ticks();
  engine::Waiter waiter(batch.waiting, false, history, begun_ticks);
  const bool for_ever = time_max >= kForever / 2;
  const std::chrono::nanoseconds until = for_ever ? kForever : steady_clock().now() + time_max;
  while (true) {
    const std::uint64_t now_ticks = platform::ticks();
    // edge: transfer-ended (acquire)
    std::uint32_t seen = batch.word.load_acquire();
    const std::chrono::nanoseconds left =
        for_ever ? std::chrono::hours(1) : until - steady_clock().now();
    if (seen == TransferBatch::kEnded || left <= std::chrono::nanoseconds(0)) {
      trace::record({.begin_ticks = begun_ticks,
                     .id = trace::id_of(&batch),
                     .kind = trace::Kind::wait,
                     .count = seen == TransferBatch::kEnded ? 1U : 0U});
      if (seen == TransferBatch::kEnded) waiter.end(now_ticks);
      return seen == TransferBatch::kEnded;
    }
    const auto reads = batch.is_read.load_relaxed() != 0 ? batch.reads.lock() : nullptr;  // Advice.
    if (reads && platform::BlockIo::wait_for_reads(*reads, std::min(left, kReadWaitMax))) continue;
    waiter.pass(
        now_ticks, [] { return false; },
        [&](std::chrono::nanoseconds) {
          // edge: transfer-ended (acq_rel)
          if (seen == TransferBatch::kSlept ||
              batch.word.compare_exchange_acq_rel(seen, TransferBatch::kSlept)) {
            platform::sleep_on_word(batch.word, TransferBatch::kSlept, left);
          }
        });
  }
}

}  // namespace

Result<void> detail::check(const StoreOptions& options) {
  const auto refuse = [](std::string cause, std::string remedy) {
    return fail(Code::invalid_argument, "make a store", std::move(cause), std::move(remedy));
  };
  if (options.block_bytes == Bytes(0) || options.block_bytes > kBlockBytesMax) {
    return refuse(fmt::format("blocks have {} bytes", options.block_bytes.count()),
                  "ask for 1 byte to 1 GiB");
  }
  if (options.tiers.empty() || options.tiers.size() > kTiersMax) {
    return refuse(fmt::format("it has {} tiers", options.tiers.size()),
                  fmt::format("ask for 1 to {}", kTiersMax));
  }
  for (auto tier = options.tiers.begin(); tier != options.tiers.end(); ++tier) {
    if (tier->path.empty()) continue;
    if (tier->node) {
      return refuse(fmt::format("the tier '{}' has a path and a node", tier->path),
                    "name only one: a file is on the node of its device");
    }
  }
  return {};
}

std::string_view explain(Outcome outcome) {
  return meaning(kOutcomes, outcome, "An outcome that has no name.");
}

// --- Transfer ------------------------------------------------------------------------------------

Transfer::Transfer(Transfer&& other) noexcept = default;

Transfer& Transfer::operator=(Transfer&& other) noexcept {
  if (this != &other) {
    wait();
    batch_ = std::move(other.batch_);
  }
  return *this;
}

Transfer::~Transfer() {
  wait();
}

bool Transfer::poll() const {
  // edge: transfer-ended (acquire)
  return batch_ == nullptr || batch_->word.load_acquire() == TransferBatch::kEnded;
}

void Transfer::wait() const {
  static_cast<void>(wait_for(kForever));
}

bool Transfer::wait_for(std::chrono::nanoseconds time_max) const {
  return batch_ == nullptr || store::wait_for(*batch_, time_max);
}

std::span<const BlockEnd> Transfer::ends() const {
  if (batch_ == nullptr) return {};
  HEADRACE_CHECK(poll(), "the transfer has ended");
  return batch_->ends;
}

bool Transfer::all_done() const {
  return poll() && std::ranges::all_of(
                       ends(), [](const BlockEnd& end) { return end.outcome == Outcome::done; });
}

// --- StoreState: making and ending ---------------------------------------------------------------

StoreState::StoreState(engine::Engine& engine, const StoreOptions& options)
    : engine_(engine),
      options_(options),
      fork_count_((platform::watch_forks(), platform::fork_count())) {
  for (const engine::MoverInfo& mover : engine.movers()) is_polled_ = is_polled_ || mover.polled;
}

// By value, as in the engine and the cache.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
Result<std::unique_ptr<Store>> Store::make(engine::Engine& engine, StoreOptions options) {
  return StoreState::make(engine, options, nullptr);
}

Result<std::unique_ptr<StoreState>> StoreState::make(engine::Engine& engine,
                                                     const StoreOptions& options,
                                                     detail::SharedCells* shared) {
  HEADRACE_TRY(detail::check(options));
  std::unique_ptr<StoreState> state(new StoreState(engine, options));
  std::vector<detail::HeaderPlace> old;
  {
    const Lock lock(state->mutex_);
    for (const TierOptions& tier : options.tiers) {
      const bool is_last = &tier == &options.tiers.back();
      HEADRACE_TAKE(made, detail::Tier::make(tier, options.block_bytes.count(), is_last,
                                             state->tiers_.empty() ? shared : nullptr));
      state->has_files_ = state->has_files_ || (*made)->file != nullptr;
      state->tiers_.push_back(std::move(*made));
    }
    for (std::size_t tier = 0; tier < options.tiers.size(); ++tier) {
      state->recover(tier, old);
    }
    // Also beyond those of removed blocks, which a loss of power may bring back.
    state->sequences_.pass(static_cast<std::uint64_t>(
        std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1)));
  }
  // Before the first removal, which does not find them.
  if (!StoreState::invalidate(old)) {
    return fail(Code::io_failed, "make a store", "a file keeps blocks that are out of date",
                "check its disk");
  }
  HEADRACE_TRY(state->start_threads());
  return state;
}

StoreState::~StoreState() {
  {
    const Lock lock(mutex_);
    is_ending_ = true;
    wake_flusher();
    for (const std::unique_ptr<Tier>& tier : tiers_) tier->flushes.notify_all();
  }
  if (flusher_.joinable()) flusher_.join();
  {
    const Lock lock(mutex_);
    has_ended_ = true;
    for (const std::unique_ptr<Tier>& tier : tiers_) tier->flushes.notify_all();
  }
  for (std::thread& thread : disk_flushers_) thread.join();
  for (detail::Disk* const disk : disks_) {
    if (disk == nullptr) continue;
    disk->medium().close();
    disk->stop();
  }
  const Lock lock(mutex_);
  const auto is_late = [](const std::unique_ptr<Tier>& tier) { return !tier->in_flight.empty(); };
  if (std::ranges::any_of(tiers_, is_late)) {
    // The kernel still has some of these. A leak that leak checkers can tell from others.
    static Mutex mutex;
    static auto& late = *new std::vector<std::vector<std::unique_ptr<detail::Io>>>();
    const Lock late_lock(mutex);
    late.push_back(std::move(ios_));
  }
}

void StoreState::operator delete(StoreState* state, std::destroying_delete_t /*how*/) {
  if (state->is_forked()) return;
  state->~StoreState();
  ::operator delete(state, std::align_val_t{alignof(StoreState)});
}

void TransferBatch::announce(const platform::EventDescriptor* event) {
  // Read before the transfer completes: a waiting thread may then destroy the store.
  const TransferOptions after = options;
  if (after.on_done != nullptr) after.on_done(after.context, ends);
  // edge: transfer-ended (acq_rel)
  const std::uint32_t before = word.exchange_acq_rel(TransferBatch::kEnded);
  if (before == TransferBatch::kSlept) platform::wake_sleepers(word);
  if (event != nullptr) event->signal();
}

// --- StoreState: what takes effect at once -------------------------------------------------------

std::optional<std::size_t> StoreState::length(std::string_view key) const {
  if (is_forked()) return std::nullopt;
  const Lock lock(mutex_);
  const Block* const block = find(key);
  return block == nullptr ? std::nullopt : std::optional<std::size_t>(block->byte_count);
}

bool StoreState::pin(std::string_view key) {
  if (is_forked()) return false;
  const Lock lock(mutex_);
  Block* const block = find(key);
  if (block != nullptr) ++block->pins;
  return block != nullptr;
}

bool StoreState::unpin(std::string_view key) {
  if (is_forked()) return false;
  const Lock lock(mutex_);
  Block* const block = find(key);
  if (block == nullptr || block->pins == 0) return false;
  --block->pins;
  return true;
}

Outcome StoreState::remove(std::string_view key) {
  if (is_forked()) return Outcome::closed;
  // Repeats if a put replaced the block meanwhile.
  while (true) {
    const std::optional<std::size_t> count = take_out(&key);
    if (count != 0) return count ? Outcome::done : Outcome::io_failed;
    const Lock lock(mutex_);
    if (index_.find(key) == nullptr) return Outcome::unknown_key;
  }
}

std::size_t StoreState::clear() {
  return is_forked() ? 0 : take_out(nullptr).value_or(0);
}

std::vector<std::string> StoreState::keys() const {
  std::vector<std::string> keys;
  if (is_forked()) return keys;
  const Lock lock(mutex_);
  keys.reserve(index_.count());
  for (const Block* const block : index_.all()) {
    if (block->fastest() != kTiersMax) keys.push_back(block->key);
  }
  return keys;
}

StoreStatistics StoreState::statistics() const {
  if (is_forked()) return {};
  const Lock lock(mutex_);
  tiers_[0]->take_reads();
  StoreStatistics statistics = statistics_;
  statistics.blocks = index_.count();
  for (const std::unique_ptr<Tier>& tier : tiers_) {
    statistics.tiers.push_back(tier->statistics);
    TierStatistics& last = statistics.tiers.back();
    last.is_healthy = !tier->is_broken() && !tier->failed_to_flush && !tier->file_failed;
    last.access = tier->disk() != nullptr ? tier->disk()->note()
                  : tier->is_mapped()     ? "mapped"
                                          : "memory";
  }
  return statistics;
}

Result<int> StoreState::event_descriptor() {
  const Lock lock(mutex_);
  if (!event_) {
    HEADRACE_TAKE(made, platform::EventDescriptor::make());
    event_.emplace(std::move(*made));
    // edge: event-made (release)
    signalled_.store_release(&*event_);
  }
  return event_->descriptor();
}

// --- Store ---------------------------------------------------------------------------------------

Store::~Store() = default;

BlockEnd Store::put(std::string_view key, std::span<const std::byte> source, std::size_t tier) {
  const PutBlock block{.key = key, .source = source};
  const Transfer transfer = put({&block, 1}, tier);
  transfer.wait();
  return transfer.ends().front();
}

BlockEnd Store::get(std::string_view key, std::span<std::byte> target) {
  const GetBlock block{.key = key, .target = target};
  const Transfer transfer = get({&block, 1});
  transfer.wait();
  return transfer.ends().front();
}

BlockView Store::view(std::string_view key) {
  while (true) {
    const auto bytes = std::make_shared<std::vector<std::byte>>(length(key).value_or(0));
    const BlockEnd end = get(key, *bytes);
    // Another thread replaced it by a longer one.
    if (end.outcome == Outcome::wrong_length) continue;
    return {
        .outcome = end.outcome, .bytes = std::span(*bytes).first(end.byte_count), .keeper = bytes};
  }
}

}  // namespace headrace::store
