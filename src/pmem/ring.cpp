// SPDX-License-Identifier: Apache-2.0
// Rings in files: roles, the choice of the implementation, and the public interface.
#include "headrace/pmem/ring.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "block_ring.hpp"
#include "headrace/base/check.hpp"
#include "headrace/base/names.hpp"
#include "headrace/platform/fork.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/process.hpp"
#include "mapping_state.hpp"
#include "position_ring.hpp"
#include "salvage.hpp"

namespace headrace::pmem {
namespace detail {
namespace {

/// Locks of a ring's file. kAttachingLock is held while attaching, so that two ends do not recover
/// at the same time.
constexpr std::uint64_t kProducerLock = 0;
constexpr std::uint64_t kConsumerLock = 1;
constexpr std::uint64_t kAttachingLock = 2;

/// Memory without durability.
struct VolatileMemory {
  void store(std::byte* target, std::span<const std::byte> source) {
    if (!source.empty()) std::memcpy(target, source.data(), source.size());
  }
  void store_word(std::uint64_t& target, std::uint64_t value) {
    // edge: ring-words (release)
    store_release(target, value);
  }
  void stream(std::byte* target, std::span<const std::byte> lines, Digest* /*digest*/ = nullptr) {
    store(target, lines);
  }
  void flush(const void* /*begin*/, std::size_t /*byte_count*/) {}
  void drain() {}
  void persist(const void* /*begin*/, std::size_t /*byte_count*/) {}
  void label(const char* /*text*/) {}
  [[nodiscard]] Fault fault() const { return Fault::none; }
};
// NOLINTBEGIN(readability-identifier-naming): rules.
struct VolatileRules : BlockRules {
  static constexpr bool checks_the_checksum = false;
  static constexpr bool finds_the_end = false;  ///< Without checksums zeros are valid.
};
// NOLINTEND(readability-identifier-naming)

}  // namespace

/// The producer of any ring.
class ProducerEnd {
 public:
  ProducerEnd() = default;
  ProducerEnd(const ProducerEnd&) = delete;
  ProducerEnd& operator=(const ProducerEnd&) = delete;
  virtual ~ProducerEnd() = default;
  [[nodiscard]] virtual Result<Chain> attach(const std::string& tried) = 0;
  [[nodiscard]] virtual Enqueue enqueue_all(
      std::span<const std::span<const std::byte>> entries) = 0;
  virtual void settle() = 0;
  [[nodiscard]] virtual std::uint64_t next_ordinal() const = 0;
  [[nodiscard]] virtual std::size_t entry_bytes_max() const = 0;
};

/// The consumer of any ring.
class ConsumerEnd {
 public:
  ConsumerEnd() = default;
  ConsumerEnd(const ConsumerEnd&) = delete;
  ConsumerEnd& operator=(const ConsumerEnd&) = delete;
  virtual ~ConsumerEnd() = default;
  [[nodiscard]] virtual Result<Chain> attach(const std::string& tried, bool at_rest) = 0;
  [[nodiscard]] virtual Next next(Entry& entry) = 0;
  virtual void acknowledge() = 0;
  virtual void settle() = 0;
};

namespace {

template <typename Memory, typename Ring>
class ProducerOf final : public ProducerEnd {
 public:
  template <typename... Arguments>
  explicit ProducerOf(Memory memory, Arguments... arguments)
      : memory_(memory), ring_(memory_, arguments...) {}
  Result<Chain> attach(const std::string& tried) override { return ring_.attach(tried); }
  Enqueue enqueue_all(std::span<const std::span<const std::byte>> entries) override {
    return ring_.enqueue_all(entries);
  }
  void settle() override { ring_.settle(); }
  std::uint64_t next_ordinal() const override { return ring_.next_ordinal(); }
  std::size_t entry_bytes_max() const override { return ring_.entry_bytes_max(); }

 private:
  Memory memory_;
  Ring ring_;
};

template <typename Memory, typename Ring>
class ConsumerOf final : public ConsumerEnd {
 public:
  template <typename... Arguments>
  explicit ConsumerOf(Memory memory, Arguments... arguments)
      : memory_(memory), ring_(memory_, arguments...) {}
  Result<Chain> attach(const std::string& tried, bool at_rest) override {
    return ring_.attach(tried, at_rest);
  }
  Next next(Entry& entry) override { return ring_.next(entry); }
  void acknowledge() override { ring_.acknowledge(); }
  void settle() override { ring_.settle(); }

 private:
  Memory memory_;
  Ring ring_;
};

/// The memory of a volatile ring.
///
/// Threading: immutable.
class Pages {
 public:
  explicit Pages(std::span<std::byte> bytes) : bytes_(bytes) {}
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { platform::free_pages(bytes_); }
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

/// State common to both ends.
struct Place {
  std::optional<Mapping> mapping;
  std::shared_ptr<Pages> pages;  ///< Volatile ring only.
  RingMemory ring;
  RingState state;
  std::string note;
  /// When this end attached. A child of fork() has a copy of the positions but not the role.
  std::uint32_t fork_count = attaching_fork_count();

  [[nodiscard]] bool is_forked() const { return platform::fork_count() != fork_count; }

 private:
  static std::uint32_t attaching_fork_count() {
    platform::watch_forks();
    return platform::fork_count();
  }
};

}  // namespace

struct AttachedProducer {
  Place place;
  std::unique_ptr<ProducerEnd> end;
};

struct AttachedConsumer {
  Place place;
  std::unique_ptr<ConsumerEnd> end;
};

namespace {

FlushInstruction instruction_of(RingVariant variant) {
  switch (variant) {
    case RingVariant::naive:
      return FlushInstruction::clflush;
    case RingVariant::clflushopt:
      return FlushInstruction::clflushopt;
    case RingVariant::clwb:
    case RingVariant::optimised:
      break;
  }
  return FlushInstruction::clwb;
}

/// The variant in use.
///
/// Fails: invalid_argument, unsupported.
Result<RingVariant> variant_for(RingLayout layout, const AttachOptions& options,
                                const std::string& tried) {
  const bool has_flush = !flush_instructions().empty();
  if (!options.variant.has_value()) {
    if (layout == RingLayout::checksums) return RingVariant::optimised;
    // Without a flush instruction the granularity is page, and the variant's instruction is not
    // used.
    return has_flush ? static_cast<RingVariant>(flush_instructions().back()) : RingVariant::clwb;
  }
  if (layout_of(*options.variant) != layout) {
    return fail(
        Code::invalid_argument, tried,
        fmt::format("it was made for another variant than {}", name(*options.variant)),
        layout == RingLayout::checksums ? "use optimised" : "use naive, clflushopt or clwb");
  }
  if (has_flush && *options.variant != RingVariant::optimised &&
      std::ranges::count(flush_instructions(), instruction_of(*options.variant)) == 0) {
    return fail(Code::unsupported, tried,
                fmt::format("this processor has no {}", name(instruction_of(*options.variant))),
                "use another variant");
  }
  return *options.variant;
}
static_assert(static_cast<int>(RingVariant::naive) == static_cast<int>(FlushInstruction::clflush) &&
              static_cast<int>(RingVariant::clwb) == static_cast<int>(FlushInstruction::clwb));

void describe(RingState& state, const Chain& chain) {
  state.generation = chain.generation;
  state.first_ordinal = chain.first.ordinal;
  state.entry_count = chain.end.ordinal - chain.first.ordinal;
}

std::uint64_t entry_bytes_max_of(RingLayout layout, std::uint64_t capacity_bytes) {
  return layout == RingLayout::checksums ? block_entry_bytes_max(capacity_bytes)
                                         : position_entry_bytes_max(capacity_bytes);
}

/// Opens and maps a ring's file and checks its head.
Result<Place> open_place(const std::string& path, const std::string& tried,
                         const MapOptions& options) {
  Result<platform::SharedFile> file = platform::SharedFile::open(path, !options.read_only);
  if (!file.has_value()) return Failure(file.error().within(tried));
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
  Result<Mapping> mapping = MappingAccess::map(std::move(*file), options);
  if (!mapping.has_value()) return Failure(mapping.error().within(tried));
  Place place;
  const Result<RingMemory> ring = open_ring(mapping->bytes(), tried, place.state.layout);
  if (mapping->fault() != Fault::none) {
    return fail(Code::io_failed, tried, "a page of it cannot be read", "check the disk");
  }
  if (!ring.has_value()) return Failure(ring.error());
  if (!options.read_only) {
    const Result<void> reserved = MappingAccess::file(*mapping).reserve();
    if (!reserved.has_value()) return Failure(reserved.error().within(tried));
  }
  place.ring = *ring;
  place.state.capacity = Bytes(ring->capacity_bytes);
  place.state.entry_bytes_max = entry_bytes_max_of(place.state.layout, ring->capacity_bytes);
  place.note = mapping->note();
  place.mapping = std::move(*mapping);
  return place;
}

/// Releases kAttachingLock at the end of a scope.
class AttachingLock {
 public:
  explicit AttachingLock(const platform::SharedFile& file) : file_(file) {}
  AttachingLock(const AttachingLock&) = delete;
  AttachingLock& operator=(const AttachingLock&) = delete;
  ~AttachingLock() { file_.unlock(kAttachingLock); }

 private:
  const platform::SharedFile& file_;
};

Failure lost(const std::string& tried) {
  return fail(Code::io_failed, tried, "a page of it was lost while in use",
              "check whether the file was truncated or its disk is full");
}

/// Takes a role; the caller holds kAttachingLock.
Result<void> take_role(const platform::SharedFile& file, std::uint64_t role, const char* noun,
                       std::uint64_t holder, const std::string& tried) {
  const Result<bool> taken = file.try_lock(role);
  if (!taken.has_value()) return Failure(taken.error().within(tried));
  if (*taken) return {};
  return fail(Code::capacity_exceeded, tried,
              fmt::format("it has a {} already: process {}", noun, holder),
              fmt::format("end that one first; a ring has one {}", noun));
}

/// Differences between the two ends in attaching.
struct Role {
  std::uint64_t lock = 0;
  std::uint64_t other_lock = 0;
  const char* noun = nullptr;
  bool RingState::* taken = nullptr;
  bool RingState::* other_taken = nullptr;
};
constexpr Role kProducer{.lock = kProducerLock,
                         .other_lock = kConsumerLock,
                         .noun = "producer",
                         .taken = &RingState::has_producer,
                         .other_taken = &RingState::has_consumer};
constexpr Role kConsumer{.lock = kConsumerLock,
                         .other_lock = kProducerLock,
                         .noun = "consumer",
                         .taken = &RingState::has_consumer,
                         .other_taken = &RingState::has_producer};

/// Takes `role` in the ring. `recover` creates the end for a place and a variant, and attaches it.
///
/// Fails: as Producer::attach.
template <typename Recover>
Result<Place> take_place(const std::string& path, const std::string& tried,
                         const AttachOptions& options, const Role& role, const Recover& recover) {
  Result<Place> place = open_place(path, tried, options.map);
  if (!place.has_value()) return Failure(place.error());
  const Result<RingVariant> variant = variant_for(place->state.layout, options, tried);
  if (!variant.has_value()) return Failure(variant.error());
  const platform::SharedFile& file = MappingAccess::file(*place->mapping);
  if (const Result<void> locked = file.lock(kAttachingLock); !locked.has_value()) {
    return Failure(locked.error().within(tried));
  }
  const AttachingLock attaching(file);
  Head& head = *place->ring.head;
  std::uint64_t& holder =
      role.lock == kProducerLock ? head.producer.process_id : head.consumer.process_id;
  const Result<void> taken = take_role(file, role.lock, role.noun, holder, tried);
  if (!taken.has_value()) return Failure(taken.error());
  place->state.*role.taken = true;
  place->state.*role.other_taken = file.is_locked_by_another(role.other_lock);
  const Result<Chain> chain = recover(*place, *variant);
  if (place->mapping->fault() != Fault::none) return lost(tried);
  if (!chain.has_value()) return Failure(chain.error());
  describe(place->state, *chain);
  holder = platform::process_id();
  return place;
}

/// The first bytes of an empty ring.
std::vector<std::byte> head_of(std::uint64_t file_bytes, RingLayout layout) {
  std::vector<std::byte> head(kDataOffset);
  std::random_device device;
  format_ring(head, file_bytes, layout, (std::uint64_t{device()} << 32U) | device());
  return head;
}

/// Makes a ring on a whole device. Old records in the data are not valid in it: their ring_id
/// differs.
///
/// Fails: as make_ring.
Result<void> make_on_device(const std::string& path, RingLayout layout) {
  const std::string tried = fmt::format("make a ring of the device '{}'", path);
  Result<Mapping> mapping = Mapping::map(path);
  if (!mapping.has_value()) return Failure(mapping.error().within(tried));
  const std::span<std::byte> bytes =
      mapping->bytes().first(mapping->bytes().size() / kDataOffset * kDataOffset);
  if (bytes.size() < kDataOffset + kCapacityMin || bytes.size() != mapping->bytes().size()) {
    return fail(Code::invalid_argument, tried,
                fmt::format("a ring cannot have {} bytes", mapping->bytes().size()),
                "give the device a whole number of pages");
  }
  const platform::SharedFile& file = MappingAccess::file(*mapping);
  if (const Result<void> locked = file.lock(kAttachingLock); !locked.has_value()) {
    return Failure(locked.error().within(tried));
  }
  const AttachingLock attaching(file);
  if (std::ranges::any_of(bytes.first(kDataOffset),
                          [](std::byte byte) { return byte != std::byte{0}; })) {
    return fail(
        Code::invalid_argument, tried, "it already holds data",
        fmt::format("fill its first {} bytes with zeros if the data is not needed", kDataOffset));
  }
  const std::vector<std::byte> head = head_of(bytes.size(), layout);
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

std::unique_ptr<ProducerEnd> make_producer(Medium medium, const RingMemory& ring,
                                           RingVariant variant) {
  if (variant == RingVariant::optimised) {
    return std::make_unique<ProducerOf<Medium, BlockProducer<Medium>>>(medium, ring);
  }
  return std::make_unique<ProducerOf<Medium, PositionProducer<Medium>>>(medium, ring,
                                                                        instruction_of(variant));
}

std::unique_ptr<ConsumerEnd> make_consumer(Medium medium, const RingMemory& ring,
                                           RingVariant variant, Acknowledgement acknowledgement) {
  if (variant == RingVariant::optimised) {
    return std::make_unique<ConsumerOf<Medium, BlockConsumer<Medium>>>(medium, ring,
                                                                       acknowledgement);
  }
  return std::make_unique<ConsumerOf<Medium, PositionConsumer<Medium>>>(medium, ring,
                                                                        instruction_of(variant));
}

}  // namespace
}  // namespace detail

using detail::Chain;
using detail::Place;

namespace {

constexpr auto kVariants = make_names<RingVariant>({
    {RingVariant::naive, "naive"},
    {RingVariant::clflushopt, "clflushopt"},
    {RingVariant::clwb, "clwb"},
    {RingVariant::optimised, "optimised"},
});
constexpr auto kEnqueues = make_names<Enqueue>({
    {Enqueue::done, "done"},
    {Enqueue::full, "full"},
    {Enqueue::too_large, "too_large"},
    {Enqueue::lost, "lost"},
    {Enqueue::forked, "forked"},
});
constexpr auto kNexts = make_names<Next>({
    {Next::entry, "entry"},
    {Next::empty, "empty"},
    {Next::damaged, "damaged"},
    {Next::lost, "lost"},
    {Next::forked, "forked"},
});

}  // namespace

std::string_view name(RingVariant variant) {
  return kVariants.text(variant);
}

Result<RingVariant> parse_ring_variant(std::string_view text) {
  return kVariants.parse(text, "variant of the ring");
}

RingLayout layout_of(RingVariant variant) {
  return variant == RingVariant::optimised ? RingLayout::checksums : RingLayout::positions;
}

std::string_view name(Enqueue outcome) {
  return kEnqueues.text(outcome);
}

std::string_view name(Next outcome) {
  return kNexts.text(outcome);
}

Result<void> make_ring(const std::string& path, const RingOptions& options) {
  if (platform::is_character_device(path)) return detail::make_on_device(path, options.layout);
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
  const std::vector<std::byte> head = detail::head_of(file_bytes, options.layout);
  const Result<void> made = platform::make_file(path, file_bytes, head);
  if (!made.has_value()) return Failure(made.error().within(tried));
  return {};
}

Result<RingState> inspect_ring(const std::string& path) {
  const std::string tried = fmt::format("inspect the ring '{}'", path);
  Result<Place> place = detail::open_place(path, tried, {.read_only = true});
  if (!place.has_value()) return Failure(place.error());
  const platform::SharedFile& file = MappingAccess::file(*place->mapping);
  RingState& state = place->state;
  // With both ends attached, entries may be overwritten while they are read: retry.
  constexpr int kTriesMax = 16;
  for (int tries = 1;; ++tries) {
    state.has_producer = file.is_locked_by_another(detail::kProducerLock);
    state.has_consumer = file.is_locked_by_another(detail::kConsumerLock);
    const Result<Chain> chain =
        state.layout == RingLayout::checksums
            ? detail::RecordReader<>(place->ring).recover(tried, !state.has_producer)
            : detail::EntryReader(place->ring).recover(tried);
    if (place->mapping->fault() != Fault::none) return detail::lost(tried);
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
  Result<Place> place = detail::open_place(path, tried, {.read_only = true});
  if (!place.has_value()) return Failure(place.error());
  if (place->state.layout != RingLayout::checksums) {
    return fail(Code::unsupported, tried,
                "its layout is positions: its entries have no checksums to verify them",
                "restore the file from a copy");
  }
  const Salvage found = detail::salvage_records(place->ring, take);
  if (place->mapping->fault() != Fault::none) return detail::lost(tried);
  return found;
}

Result<Producer> Producer::attach(const std::string& path, const AttachOptions& options) {
  const std::string tried = fmt::format("attach a producer to the ring '{}'", path);
  std::unique_ptr<detail::ProducerEnd> end;
  Result<Place> place = detail::take_place(
      path, tried, options, detail::kProducer, [&](const Place& taken, RingVariant variant) {
        end = detail::make_producer(taken.mapping->medium(), taken.ring, variant);
        return end->attach(tried);
      });
  if (!place.has_value()) return Failure(place.error());
  return Producer(std::make_unique<detail::AttachedProducer>(
      detail::AttachedProducer{.place = std::move(*place), .end = std::move(end)}));
}

Producer::Producer(std::unique_ptr<detail::AttachedProducer> attached)
    : attached_(std::move(attached)) {}
Producer::Producer(Producer&& other) noexcept = default;

Producer& Producer::operator=(Producer&& other) noexcept {
  std::swap(attached_, other.attached_);
  return *this;
}

Producer::~Producer() {
  if (attached_ != nullptr && !attached_->place.is_forked()) attached_->end->settle();
}

Enqueue Producer::enqueue(std::span<const std::byte> entry) {
  return enqueue_all({&entry, 1});
}

Enqueue Producer::enqueue_all(std::span<const std::span<const std::byte>> entries) {
  if (attached_->place.is_forked()) return Enqueue::forked;
  return attached_->end->enqueue_all(entries);
}

std::size_t Producer::entry_bytes_max() const {
  return attached_->end->entry_bytes_max();
}

std::uint64_t Producer::next_ordinal() const {
  return attached_->end->next_ordinal();
}

const std::string& Producer::note() const {
  return attached_->place.note;
}

bool Producer::is_persistent_memory() const {
  const std::optional<Mapping>& mapping = attached_->place.mapping;
  return mapping.has_value() && mapping->is_persistent_memory();
}

const RingState& Producer::recovered() const {
  return attached_->place.state;
}

Result<Consumer> Consumer::attach(const std::string& path, const AttachOptions& options) {
  const std::string tried = fmt::format("attach a consumer to the ring '{}'", path);
  std::unique_ptr<detail::ConsumerEnd> end;
  Result<Place> place = detail::take_place(
      path, tried, options, detail::kConsumer, [&](const Place& taken, RingVariant variant) {
        end = detail::make_consumer(taken.mapping->medium(), taken.ring, variant,
                                    options.acknowledgement);
        return end->attach(tried, !taken.state.has_producer);
      });
  if (!place.has_value()) return Failure(place.error());
  return Consumer(std::make_unique<detail::AttachedConsumer>(
      detail::AttachedConsumer{.place = std::move(*place), .end = std::move(end)}));
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
  if (attached_ != nullptr && !attached_->place.is_forked()) attached_->end->settle();
}

Next Consumer::next(Entry& entry) {
  if (attached_->place.is_forked()) return Next::forked;
  return attached_->end->next(entry);
}

void Consumer::acknowledge() {
  if (attached_->place.is_forked()) return;
  attached_->end->acknowledge();
}

const std::string& Consumer::note() const {
  return attached_->place.note;
}

bool Consumer::is_persistent_memory() const {
  const std::optional<Mapping>& mapping = attached_->place.mapping;
  return mapping.has_value() && mapping->is_persistent_memory();
}

const RingState& Consumer::recovered() const {
  return attached_->place.state;
}

Result<VolatileRing> make_volatile_ring(Bytes capacity) {
  const std::string tried = fmt::format("make a volatile ring of {}", to_text(capacity));
  if (capacity.count() < detail::kCapacityMin || capacity.count() > detail::kCapacityMax) {
    return fail(Code::invalid_argument, tried, "the capacity is too small or too large",
                fmt::format("use {} or more", to_text(Bytes(detail::kCapacityMin))));
  }
  const std::uint64_t byte_count =
      detail::kDataOffset + detail::rounded_up(capacity.count(), detail::kDataOffset);
  const Result<std::span<std::byte>> allocated = platform::allocate_pages(byte_count, std::nullopt);
  if (!allocated.has_value()) return Failure(allocated.error().within(tried));
  Place place;
  place.pages = std::make_shared<detail::Pages>(*allocated);
  const std::span<std::byte> bytes = allocated->first(byte_count);
  detail::format_ring(bytes, byte_count, RingLayout::checksums, 0);
  place.ring = detail::open_ring(bytes, tried, place.state.layout).value();
  place.state.capacity = Bytes(place.ring.capacity_bytes);
  place.state.entry_bytes_max =
      detail::entry_bytes_max_of(RingLayout::checksums, place.ring.capacity_bytes);
  place.state.has_producer = place.state.has_consumer = true;
  place.note = "ordinary memory of this process: nothing is durable";
  using Memory = detail::VolatileMemory;
  using Rules = detail::VolatileRules;
  auto producer =
      std::make_unique<detail::ProducerOf<Memory, detail::BlockProducer<Memory, Rules>>>(
          Memory(), place.ring);
  auto consumer =
      std::make_unique<detail::ConsumerOf<Memory, detail::BlockConsumer<Memory, Rules>>>(
          Memory(), place.ring, Acknowledgement::each);
  for (const Result<Chain>& chain : {consumer->attach(tried, true), producer->attach(tried)}) {
    HEADRACE_CHECK(chain.has_value(), "a new ring can be attached");
  }
  Place other;
  other.pages = place.pages;
  other.ring = place.ring;
  other.state = place.state;
  other.note = place.note;
  return VolatileRing{.producer = Producer(std::make_unique<detail::AttachedProducer>(
                          detail::AttachedProducer{std::move(place), std::move(producer)})),
                      .consumer = Consumer(std::make_unique<detail::AttachedConsumer>(
                          detail::AttachedConsumer{std::move(other), std::move(consumer)}))};
}

}  // namespace headrace::pmem
