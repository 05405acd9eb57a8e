// SPDX-License-Identifier: Apache-2.0
// The memory that the processes of a shared store have in common, and the packets between them.
#pragma once

#include <array>
#include <bit>
#include <tuple>
#include <utility>

#include "headrace/base/atomic.hpp"
#include "headrace/platform/life_mark.hpp"
#include "headrace/platform/local_socket.hpp"
#include "headrace/platform/process.hpp"
#include "headrace/platform/shared_file.hpp"
#include "headrace/store/store.hpp"
#include "lease.hpp"

namespace headrace::store::detail {

/// Room for a block in shared memory. They are numbered from 1.
using Cell = std::uint32_t;

/// Describes the block of a cell; valid for a version (lease.hpp).
struct alignas(64) CellEntry {
  Atomic<std::uint64_t> version;
  std::uint64_t hash = 0;
  std::uint32_t byte_count = 0;
  std::uint32_t crc = 0;
  std::uint32_t has_crc = 0;
  std::uint32_t key_bytes = 0;
  std::array<char, kKeyBytesMax> key{};
};

/// Cells by hash: a hint, from which a block may be missing.
struct alignas(64) Bucket {
  std::array<Atomic<Cell>, 16> cells;
};

/// The lengths of memories. Both sides compute the rest.
struct SharedShape {
  static constexpr std::uint64_t kBucketsOffset = 64;
  static constexpr std::uint64_t kPlacesOffset = 8192;
  std::uint64_t block_bytes = 0;
  std::uint64_t stride_bytes = 0;
  std::uint64_t cell_count = 0;
  std::uint32_t place_count = 0;
  std::uint32_t lease_count = 0;

  // What the server writes and clients read: its mark, buckets, entries, bytes of blocks.
  [[nodiscard]] std::uint64_t bucket_count() const {
    return std::bit_ceil(std::max<std::uint64_t>(1, cell_count / 4));
  }
  [[nodiscard]] std::uint64_t entries_offset() const {
    return kBucketsOffset + bucket_count() * sizeof(Bucket);
  }
  [[nodiscard]] std::uint64_t data_offset() const {
    return (entries_offset() + (cell_count + 1) * sizeof(CellEntry) + 4095) / 4096 * 4096;
  }
  [[nodiscard]] std::uint64_t byte_count() const {
    return data_offset() + cell_count * stride_bytes;
  }
  // What one client writes: ClientWords, places for blocks put, or got from another tier.
  [[nodiscard]] std::uint64_t client_byte_count() const {
    return kPlacesOffset + place_count * stride_bytes;
  }
  [[nodiscard]] std::span<std::byte> place(std::span<std::byte> memory, std::uint32_t i) const {
    return memory.subspan(kPlacesOffset + i * stride_bytes, stride_bytes);
  }
};

inline constexpr std::uint64_t kRequestsMax = 64;  ///< Of one client, not yet answered.

/// What the server reads of a client, and does not trust.
struct ClientWords {
  static constexpr std::uint64_t kReadsKept = 1024;
  std::array<Atomic<Cell>, 256> leases;
  /// Reads in place: their number, and the last ones, read i at i % kReadsKept.
  alignas(64) Atomic<std::uint64_t> read_count;
  std::array<Atomic<Cell>, kReadsKept> reads;
};
static_assert(sizeof(ClientWords) <= SharedShape::kPlacesOffset);

/// The first packet, from the server, with the descriptors of both memories. Every version begins
/// with the first two fields.
struct Welcome {
  static constexpr std::uint64_t kMagic = 0x3165726f74537248;  // "HrStore1"
  static constexpr std::uint32_t kVersion = 2;
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  /// no_memory: or no descriptor, for one more.
  enum class Refusal : std::uint32_t { none, too_many, no_memory } refusal = Refusal::none;
  std::uint64_t hash = 0;  ///< Of "headrace": whether both use the same function.
  SharedShape shape;
};

enum class Wish : std::uint8_t { put, get, flush, length, remove, pin, unpin, clear, keys, totals };

[[nodiscard]] inline bool needs_key(Wish wish) {
  return wish != Wish::flush && wish < Wish::clear;
}

/// A request to the server, before its key; and its answer. A packet has one request, or several
/// puts into one tier, or gets. Their answers come in one packet.
struct RequestHead {
  Wish wish = Wish::put;
  std::uint8_t tier = 0;
  std::uint16_t key_bytes = 0;
  std::uint32_t place = 0;       ///< Names the request, too.
  std::uint32_t byte_count = 0;  ///< Put: of the block. Get: of the target.
};
struct AnswerHead {
  std::uint32_t place = 0;
  Outcome outcome = Outcome::done;
  std::uint32_t value = 0;  ///< A length, or a number of blocks.
};

/// What an answer carries in a file: texts, each after its length.
class Texts {
 public:
  explicit Texts(std::string bytes = {}) : bytes_(std::move(bytes)) {}
  void add(std::string_view text) {
    const auto length = static_cast<std::uint32_t>(text.size());
    bytes_.append(reinterpret_cast<const char*>(&length), sizeof(length)).append(text);
  }
  /// The next one; nothing at the end.
  [[nodiscard]] std::optional<std::string> take() {
    std::uint32_t length = 0;
    if (bytes_.size() - at_ < sizeof(length)) return std::nullopt;
    bytes_.copy(reinterpret_cast<char*>(&length), sizeof(length), at_);
    at_ += sizeof(length);
    std::string text = bytes_.substr(at_, length);
    at_ += text.size();
    return text;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

[[nodiscard]] Texts pack(const StoreStatistics& all);
[[nodiscard]] StoreStatistics unpack(Texts texts);

/// The memory of the server's first tier.
///
/// Threading: confined: under the mutex of the store.
class SharedCells {
 public:
  struct Reader {
    const ClientWords* words = nullptr;
    std::uint64_t reads_seen = 0;
  };

  /// Fails: as SharedFile::make_sealed.
  [[nodiscard]] static Result<std::unique_ptr<SharedCells>> make(const SharedShape& shape);

  [[nodiscard]] std::byte* data() const { return map_.bytes().data() + shape.data_offset(); }
  [[nodiscard]] Cell cell_of(const std::byte* first) const {
    return static_cast<Cell>(static_cast<std::size_t>(first - data()) / shape.stride_bytes + 1);
  }
  void show(Cell cell, std::string_view key, std::uint64_t hash, std::uint32_t byte_count,
            std::optional<std::uint32_t> crc);
  void hide(Cell cell);
  [[nodiscard]] bool is_leased(Cell cell) const;
  /// Calls `use(cell)` for the latest reads in place. Returns the number of all since the last
  /// call.
  template <typename Use>
  std::uint64_t take_reads(const Use& use) {
    std::uint64_t all = 0;
    for (Reader* const reader : readers) {
      // relaxed: hints, which nothing depends on.
      const std::uint64_t count = reader->words->read_count.load_relaxed();
      const std::uint64_t fresh = count - std::exchange(reader->reads_seen, count);
      for (std::uint64_t i = 1; i <= std::min(fresh, ClientWords::kReadsKept); ++i) {
        const Cell cell =
            reader->words->reads[(count - i) % ClientWords::kReadsKept].load_relaxed();
        if (cell != 0 && cell <= shape.cell_count) use(cell);
      }
      all += fresh;
    }
    return all;
  }
  /// While it is held, clients read in place.
  [[nodiscard]] platform::LifeMark& mark() const {
    return *reinterpret_cast<platform::LifeMark*>(map_.bytes().data());
  }

  const SharedShape shape;
  const platform::SharedFile file;
  std::vector<Reader*> readers;

 private:
  SharedCells(const SharedShape& made, platform::SharedFile memory, platform::SharedMap map)
      : shape(made), file(std::move(memory)), map_(std::move(map)) {}
  [[nodiscard]] CellEntry& entry(Cell cell) const {
    return reinterpret_cast<CellEntry*>(map_.bytes().data() + shape.entries_offset())[cell];
  }
  [[nodiscard]] Bucket& bucket(std::uint64_t hash) const {
    return reinterpret_cast<Bucket*>(
        map_.bytes().data() + SharedShape::kBucketsOffset)[hash & (shape.bucket_count() - 1)];
  }

  platform::SharedMap map_;
  std::uint64_t versions_ = 0;
};

/// A client's connection, and both memories.
///
/// Threading: shared, except for the socket.
class SharedLink {
 public:
  struct Found {
    Cell cell = 0;
    std::uint32_t lease = 0;
    std::span<const std::byte> bytes;
    std::optional<std::uint32_t> crc = std::nullopt;
  };

  /// Fails: as store::connect.
  [[nodiscard]] static Result<std::shared_ptr<SharedLink>> make(const std::string& path,
                                                                std::chrono::nanoseconds time_max,
                                                                bool (*is_interrupted)() = nullptr);

  SharedLink& operator=(SharedLink&&) = delete;
  /// With the last view, if that outlives the store.
  ~SharedLink() { is_forked() ? socket.forget() : socket.end(); }
  [[nodiscard]] bool is_forked() const { return forked_.load_relaxed() != 0; }  // One thread.

  /// The key's block, which stays until give_back(); nothing if it is not there, if no lease is
  /// free, if the server has ended, or in a child of fork().
  [[nodiscard]] std::optional<Found> find(std::string_view key);
  void give_back(std::uint32_t lease);
  /// Counts a read.
  void note(Cell cell);
  [[nodiscard]] std::span<std::byte> place(std::uint32_t i) const {
    return shape.place(mine_.bytes(), i);
  }

  platform::LocalSocket socket;
  const SharedShape shape;

 private:
  SharedLink(platform::LocalSocket connected, const SharedShape& known, platform::SharedMap shared,
             platform::SharedMap mine);
  [[nodiscard]] ClientWords& words() const {
    return *reinterpret_cast<ClientWords*>(mine_.bytes().data());
  }

  // In a child of fork(), which would keep the connection from ending.
  Atomic<std::uint32_t> forked_{0};
  const platform::ForkGuard guard_{socket.descriptor(), forked_, 1};
  platform::SharedMap shared_;
  platform::SharedMap mine_;
  /// Bit set: leases that are free.
  std::array<Atomic<std::uint64_t>, 4> free_;
};

}  // namespace headrace::store::detail
