// SPDX-License-Identifier: Apache-2.0
// Rings in files: roles, attaching, salvage, and the public interface.
#include "headrace/pmem/ring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "block_ring.hpp"
#include "headrace/base/names.hpp"
#include "headrace/platform/process.hpp"
#include "mapping_state.hpp"

namespace headrace::pmem {
namespace detail {
namespace {

/// Locks of a ring's file. kAttachingLock is held while attaching, so that two ends do not recover
/// at the same time.
constexpr std::uint64_t kProducerLock = 0;
constexpr std::uint64_t kConsumerLock = 1;
constexpr std::uint64_t kAttachingLock = 2;

/// The locks of an end. A child of fork() closes them: without exec it would keep the role after
/// this process has given it up. Not of the mapped file, which the child's mapping keeps open.
///
/// Threading: immutable, except for the locks.
class Locks {
 public:
  explicit Locks(platform::SharedFile open_file) : file_(std::move(open_file)) {}
  Locks& operator=(Locks&&) = delete;
  ~Locks() {
    if (is_forked()) file_.forget();
  }
  [[nodiscard]] const platform::SharedFile& file() const { return file_; }
  /// In a child, which has a copy of the positions but not the role.
  [[nodiscard]] bool is_forked() const {
    return forked_.load_relaxed() != 0;  // relaxed: set when the child had one thread.
  }

 private:
  platform::SharedFile file_;
  Atomic<std::uint32_t> forked_{0};
  const platform::ForkGuard guard_{file_.descriptor(), forked_, 1};
};

/// State common to both ends.
struct Place {
  Mapping mapping;
  RingMemory ring;
  RingState state;
  std::unique_ptr<Locks> locks;  ///< Of an end.

  [[nodiscard]] bool is_forked() const { return locks->is_forked(); }
};

}  // namespace

/// An end and its place. The end refers to the medium, so that neither moves.
struct AttachedProducer {
  Place place;
  Medium medium = place.mapping.medium();
  BlockProducer<Medium> end{medium, place.ring};

  AttachedProducer(Place taken, const AttachOptions& /*options*/) : place(std::move(taken)) {}
  [[nodiscard]] Result<Chain> recover(const std::string& tried) { return end.attach(tried); }
};

struct AttachedConsumer {
  Place place;
  Medium medium = place.mapping.medium();
  BlockConsumer<Medium> end;

  AttachedConsumer(Place taken, const AttachOptions& options)
      : place(std::move(taken)), end(medium, place.ring, options.acknowledgement) {}
  [[nodiscard]] Result<Chain> recover(const std::string& tried) {
    return end.attach(tried, !place.state.has_producer);
  }
};

namespace {

void describe(RingState& state, const Chain& chain) {
  state.generation = chain.generation;
  state.first_ordinal = chain.first.ordinal;
  state.entry_count = chain.end.ordinal - chain.first.ordinal;
}

/// Opens and maps a ring's file and checks its head.
Result<Place> open_place(const std::string& path, const std::string& tried,
                         const MapOptions& options) {
  HEADRACE_TAKE_WITHIN(tried, file, platform::SharedFile::open(path, !options.read_only));
  if (const std::optional<std::uint64_t> byte_count = file->byte_count(); byte_count.has_value()) {
    if (*byte_count < kDataOffset + kCapacityMin || *byte_count % kBlockBytes != 0) {
      return fail(Code::corrupt_data, tried,
                  *byte_count % kBlockBytes == 0
                      ? fmt::format("it has {} bytes, too small for a ring", *byte_count)
                      : fmt::format("it has {} bytes, which is not a multiple of the block size {}",
                                    *byte_count, kBlockBytes),
                  "name a file made by 'headrace pmem ring make' or pmem::make_ring");
    }
  }
  HEADRACE_TAKE_WITHIN(tried, mapping, MappingAccess::map(std::move(*file), options));
  const Result<RingMemory> ring = open_ring(mapping->bytes(), tried);
  if (mapping->fault() != Fault::none) {
    return fail(Code::io_failed, tried, "a page of it cannot be read", "check the disk");
  }
  if (!ring.has_value()) return Failure(ring.error());
  if (!options.read_only) HEADRACE_TRY_WITHIN(tried, MappingAccess::file(*mapping).reserve());
  Place place{.mapping = std::move(*mapping), .ring = *ring, .state = {}, .locks = {}};
  place.state.capacity = Bytes(ring->capacity_bytes);
  place.state.entry_bytes_max = block_entry_bytes_max(ring->capacity_bytes);
  return place;
}

/// Releases kAttachingLock at the end of a scope.
class AttachingLock {
 public:
  explicit AttachingLock(const platform::SharedFile& file) : file_(file) {}
  AttachingLock& operator=(AttachingLock&&) = delete;
  ~AttachingLock() { file_.unlock(kAttachingLock); }

 private:
  const platform::SharedFile& file_;
};

Failure lost(const std::string& tried) {
  return fail(Code::io_failed, tried, "a page of it was lost while in use",
              "check whether the file was truncated or its disk is full");
}

/// Takes the end's role in the ring, and recovers.
///
/// Fails: as Producer::attach.
template <typename Attached>
Result<std::unique_ptr<Attached>> attach_end(const std::string& path, const std::string& tried,
                                             const AttachOptions& options) {
  constexpr bool kProduces = std::is_same_v<Attached, AttachedProducer>;
  HEADRACE_TAKE(opened, open_place(path, tried, options.map));
  auto attached = std::make_unique<Attached>(std::move(*opened), options);
  Place& place = attached->place;
  HEADRACE_TAKE_WITHIN(
      tried, own,
      platform::SharedFile::open_again(MappingAccess::file(place.mapping).descriptor()));
  place.locks = std::make_unique<Locks>(std::move(*own));
  const platform::SharedFile& file = place.locks->file();
  HEADRACE_TRY_WITHIN(tried, file.lock(kAttachingLock));
  const AttachingLock attaching(file);
  Head& head = *place.ring.head;
  std::uint64_t& holder = kProduces ? head.producer.process_id : head.consumer.process_id;
  HEADRACE_TAKE_WITHIN(tried, taken, file.try_lock(kProduces ? kProducerLock : kConsumerLock));
  if (!*taken) {
    const char* const noun = kProduces ? "producer" : "consumer";
    return fail(Code::capacity_exceeded, tried,
                fmt::format("it has a {} already: process {}", noun, holder),
                fmt::format("end that one first; a ring has one {}", noun));
  }
  place.state.has_producer = kProduces || file.is_locked_by_another(kProducerLock);
  place.state.has_consumer = !kProduces || file.is_locked_by_another(kConsumerLock);
  const Result<Chain> chain = attached->recover(tried);
  if (place.mapping.fault() != Fault::none) return lost(tried);
  if (!chain.has_value()) return Failure(chain.error());
  describe(place.state, *chain);
  holder = platform::process_id();
  return attached;
}

/// The first bytes of an empty ring.
std::vector<std::byte> head_of(std::uint64_t file_bytes) {
  std::vector<std::byte> head(kDataOffset);
  std::random_device device;
  format_ring(head, file_bytes, (std::uint64_t{device()} << 32U) | device());
  return head;
}

/// Makes a ring on a whole device. Old records in the data are not valid in it: their ring_id
/// differs.
///
/// Fails: as make_ring.
Result<void> make_on_device(const std::string& path) {
  const std::string tried = fmt::format("make a ring of the device '{}'", path);
  HEADRACE_TAKE_WITHIN(tried, mapping, Mapping::map(path));
  const std::span<std::byte> bytes =
      mapping->bytes().first(mapping->bytes().size() / kDataOffset * kDataOffset);
  if (bytes.size() < kDataOffset + kCapacityMin || bytes.size() != mapping->bytes().size()) {
    return fail(Code::invalid_argument, tried,
                fmt::format("a ring cannot have {} bytes", mapping->bytes().size()),
                "give the device a whole number of pages");
  }
  const platform::SharedFile& file = MappingAccess::file(*mapping);
  HEADRACE_TRY_WITHIN(tried, file.lock(kAttachingLock));
  const AttachingLock attaching(file);
  if (std::ranges::any_of(bytes.first(kDataOffset),
                          [](std::byte byte) { return byte != std::byte{0}; })) {
    return fail(
        Code::invalid_argument, tried, "it already holds data",
        fmt::format("fill its first {} bytes with zeros if the data is not needed", kDataOffset));
  }
  const std::vector<std::byte> head = head_of(bytes.size());
  Medium medium = mapping->medium();
  // The magic number comes last: with it the ring is complete.
  constexpr std::size_t kMagicBytes = sizeof(Superblock::magic);
  medium.store(bytes.data() + kMagicBytes, std::span(head).subspan(kMagicBytes));
  medium.persist(bytes.data(), head.size());
  medium.store_word(*reinterpret_cast<std::uint64_t*>(bytes.data()), kMagic);
  medium.persist(bytes.data(), kMagicBytes);
  if (mapping->fault() != Fault::none) return lost(tried);
  return {};
}

/// Copies records of a ring.
///
/// Threading: confined.
class RecordCopier {
 public:
  explicit RecordCopier(const RingMemory& ring) : ring_(ring), reader_(ring) {}

  /// Copies the record at `offset` of the data, for entry(), and returns its header; nullopt if
  /// there is no whole one.
  [[nodiscard]] std::optional<RecordHeader> copy(std::uint64_t offset) {
    const RecordHeader seen = reader_.header_at(offset);
    if (seen.byte_count == RecordHeader::kSkip) return std::nullopt;
    const std::uint64_t byte_count = record_bytes(seen.byte_count);
    if (seen.position % ring_.capacity_bytes != offset ||
        byte_count > block_record_bytes_max(ring_.capacity_bytes) ||
        byte_count > ring_.before_end(offset)) {
      return std::nullopt;
    }
    bytes_.resize(static_cast<std::size_t>(byte_count));
    std::memcpy(bytes_.data(), ring_.at(offset), bytes_.size());
    RecordHeader header;
    std::memcpy(&header, bytes_.data(), sizeof(header));
    const bool same = header.byte_count == seen.byte_count && header.position == seen.position;
    if (!same || reader_.checksum(header, bytes_.data(), byte_count) != header.checksum) {
      return std::nullopt;
    }
    return header;
  }
  [[nodiscard]] std::span<const std::byte> entry(const RecordHeader& header) const {
    return std::span(bytes_).subspan(sizeof(RecordHeader), header.byte_count);
  }

 private:
  RingMemory ring_;
  RecordReader<> reader_;
  std::vector<std::byte> bytes_;
};

/// All whole records, by position, except those that a crash left after the end and that a later
/// producer passed.
std::vector<RecordHeader> find_records(RecordCopier& copier, std::uint64_t capacity_bytes) {
  std::vector<RecordHeader> found;
  for (std::uint64_t offset = 0; offset < capacity_bytes;) {
    const std::optional<RecordHeader> header = copier.copy(offset);
    if (header.has_value()) found.push_back(*header);
    offset += header.has_value() ? record_bytes(header->byte_count) : kBlockBytes;
  }
  std::ranges::sort(found, {}, &RecordHeader::position);
  std::vector<RecordHeader> kept;
  for (const RecordHeader& header : found) {
    // Generations never decrease along the ring.
    if (!kept.empty() && header.generation < kept.back().generation) continue;
    while (!kept.empty() && kept.back().ordinal >= header.ordinal) kept.pop_back();
    kept.push_back(header);
  }
  return kept;
}

/// Reads only. The memory may change meanwhile: each record is copied before its checksum is
/// verified.
Salvage salvage_records(const RingMemory& ring, const std::function<void(const Entry&)>& take) {
  // edge: ring-words (acquire)
  const std::uint64_t read = load_acquire(ring.head->durable.read);
  RecordCopier copier(ring);
  Salvage salvage;
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  for (const RecordHeader& header : find_records(copier, ring.capacity_bytes)) {
    const std::optional<RecordHeader> again = copier.copy(header.position % ring.capacity_bytes);
    // An attached producer may have overwritten it.
    if (!again.has_value() || again->checksum != header.checksum) continue;
    take({.bytes = copier.entry(header), .ordinal = header.ordinal});
    if (salvage.entry_count++ == 0) first = header.ordinal;
    end = header.ordinal + 1;
    if (!nothing_read(read) && header.position <= position_of(read)) ++salvage.acknowledged_count;
  }
  salvage.missing_count = end - first - salvage.entry_count;
  return salvage;
}

}  // namespace
}  // namespace detail

using detail::Chain;
using detail::Place;

Result<void> make_ring(const std::string& path, const RingOptions& options) {
  if (platform::is_character_device(path)) return detail::make_on_device(path);
  const std::string tried =
      fmt::format("make a ring of {} in '{}'", to_text(options.capacity), path);
  const std::uint64_t asked = options.capacity.count();
  if (asked < detail::kCapacityMin || asked > detail::kCapacityMax) {
    return fail(Code::invalid_argument, tried, "the capacity is too small or too large",
                fmt::format("use {} to {}", to_text(Bytes(detail::kCapacityMin)),
                            to_text(Bytes(detail::kCapacityMax))));
  }
  const std::uint64_t file_bytes =
      detail::kDataOffset + detail::rounded_up(asked, detail::kDataOffset);
  const std::vector<std::byte> head = detail::head_of(file_bytes);
  HEADRACE_TRY_WITHIN(tried, platform::make_file(path, file_bytes, head));
  return {};
}

Result<RingState> inspect_ring(const std::string& path) {
  const std::string tried = fmt::format("inspect the ring '{}'", path);
  HEADRACE_TAKE(place, detail::open_place(path, tried, {.read_only = true}));
  const platform::SharedFile& file = MappingAccess::file(place->mapping);
  RingState& state = place->state;
  // With both ends attached, entries may be overwritten while they are read: retry.
  constexpr int kTriesMax = 16;
  for (int tries = 1;; ++tries) {
    state.has_producer = file.is_locked_by_another(detail::kProducerLock);
    state.has_consumer = file.is_locked_by_another(detail::kConsumerLock);
    const Result<Chain> chain =
        detail::RecordReader<>(place->ring).recover(tried, !state.has_producer);
    if (place->mapping.fault() != Fault::none) return detail::lost(tried);
    if (chain.has_value()) {
      detail::describe(state, *chain);
      return state;
    }
    if (!(state.has_producer && state.has_consumer) || tries == kTriesMax) {
      return Failure(chain.error());
    }
  }
}

Result<Salvage> salvage_ring(const std::string& path,
                             const std::function<void(const Entry&)>& take) {
  const std::string tried = fmt::format("salvage the ring '{}'", path);
  HEADRACE_TAKE(place, detail::open_place(path, tried, {.read_only = true}));
  const Salvage found = detail::salvage_records(place->ring, take);
  if (place->mapping.fault() != Fault::none) return detail::lost(tried);
  return found;
}

Result<Producer> Producer::attach(const std::string& path, const AttachOptions& options) {
  const std::string tried = fmt::format("attach a producer to the ring '{}'", path);
  HEADRACE_TAKE(attached, detail::attach_end<detail::AttachedProducer>(path, tried, options));
  return Producer(std::move(*attached));
}

Producer::Producer(std::unique_ptr<detail::AttachedProducer> attached)
    : attached_(std::move(attached)) {}
Producer::Producer(Producer&& other) noexcept = default;

Producer& Producer::operator=(Producer&& other) noexcept {
  std::swap(attached_, other.attached_);
  return *this;
}

Producer::~Producer() {
  if (attached_ != nullptr && !attached_->place.is_forked()) attached_->end.flush();
}

Enqueue Producer::enqueue(std::span<const std::byte> entry) {
  return enqueue_all({&entry, 1});
}

Enqueue Producer::enqueue_all(std::span<const std::span<const std::byte>> entries) {
  if (attached_->place.is_forked()) return Enqueue::forked;
  return attached_->end.enqueue_all(entries);
}

std::size_t Producer::entry_bytes_max() const {
  return attached_->end.entry_bytes_max();
}

std::uint64_t Producer::next_ordinal() const {
  return attached_->end.next_ordinal();
}

const std::string& Producer::note() const {
  return attached_->place.mapping.note();
}

bool Producer::is_persistent_memory() const {
  return attached_->place.mapping.is_persistent_memory();
}

const RingState& Producer::recovered() const {
  return attached_->place.state;
}

Result<Consumer> Consumer::attach(const std::string& path, const AttachOptions& options) {
  const std::string tried = fmt::format("attach a consumer to the ring '{}'", path);
  HEADRACE_TAKE(attached, detail::attach_end<detail::AttachedConsumer>(path, tried, options));
  return Consumer(std::move(*attached));
}

Consumer::Consumer(std::unique_ptr<detail::AttachedConsumer> attached)
    : attached_(std::move(attached)) {}
Consumer::Consumer(Consumer&& other) noexcept = default;

Consumer& Consumer::operator=(Consumer&& other) noexcept {
  std::swap(attached_, other.attached_);
  return *this;
}

Consumer::~Consumer() {
  // Makes lazy acknowledgements durable.
  if (attached_ != nullptr && !attached_->place.is_forked()) attached_->end.flush();
}

Next Consumer::next(Entry& entry) {
  if (attached_->place.is_forked()) return Next::forked;
  return attached_->end.next(entry);
}

void Consumer::acknowledge() {
  if (attached_->place.is_forked()) return;
  attached_->end.acknowledge();
}

const std::string& Consumer::note() const {
  return attached_->place.mapping.note();
}

bool Consumer::is_persistent_memory() const {
  return attached_->place.mapping.is_persistent_memory();
}

const RingState& Consumer::recovered() const {
  return attached_->place.state;
}

}  // namespace headrace::pmem
