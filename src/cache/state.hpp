// SPDX-License-Identifier: Apache-2.0
// Cache::State: what a cache is made of. cache.cpp has the access of one region, gather.cpp that of
// several at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "entry.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/cache/cache.hpp"
#include "ledger.hpp"
#include "placement.hpp"
#include "shelf.hpp"

namespace headrace::cache {

using detail::Batch;
using detail::Changes;
using detail::EntryState;
using detail::Ledger;
using detail::Movements;
using detail::Phase;
using detail::Placements;
using detail::Places;
using detail::Reader;
using detail::Region;
using detail::Shelf;
using detail::Slot;
using detail::Tally;

/// Threading: shared. The machine, the policies and the list of shelves are constant.
class Cache::State {
 public:
  State(const topo::Machine& machine, engine::Engine& engine, CacheOptions options);

  [[nodiscard]] Entry access(std::span<const std::byte> source, Hint hint);
  [[nodiscard]] Entry access_weak(std::span<const std::byte> source, Hint hint);
  [[nodiscard]] std::vector<Entry> access_many(std::span<const std::span<const std::byte>> sources,
                                               Hint hint);
  std::size_t pin(std::span<const std::byte> source, bool pinned);
  [[nodiscard]] Result<Change> change(std::span<std::byte> source, Hint hint);
  [[nodiscard]] Result<Bytes> write_back(const Region& region);
  std::size_t flush(std::optional<NodeId> node);
  /// What becomes of moves that somebody holds; those that nobody holds are stopped in any case.
  enum class Moves : std::uint8_t { left_alone, stopped };
  /// Drops what `choose` takes from the shelves of `node`, or of all. What is changed in it is
  /// written back, but for the bytes of `lost`. Returns how many.
  template <typename Choose>
  std::size_t drop(std::optional<NodeId> node, const std::optional<Region>& lost, Moves moves,
                   Choose choose);
  [[nodiscard]] const Ledger& ledger() const { return *ledger_; }

 private:
  struct LetGo {
    void operator()(Ledger* ledger) const { ledger->let_go(); }
  };

  /// Longer copies of access_many() are submitted alone.
  static constexpr std::uint64_t kGatheredBytesMax = std::uint64_t{64} << 10U;
  /// So many copies of access_many() are one batch at most, so that a queue can take it.
  static constexpr std::size_t kGatheredCountMax = 1024;

  /// What became of the attempt to place an entry on a node.
  enum class Attempt : std::uint8_t { placed, gathered, no_room, refused };
  /// Whether unused entries make room for others.
  enum class Evicting : std::uint8_t { no, yes };

  /// Moves of one call of access_many() to one node, not yet submitted.
  struct Gathered {
    struct Member {
      std::uint32_t number = 0;
      std::size_t index = 0;  ///< Of the entry among those that the call returns.
    };
    Shelf* shelf = nullptr;
    std::optional<NodeId> source_node = std::nullopt;
    Movements::Gathering announcements;
    std::vector<Member> members = {};
  };
  /// What a call of access_many() has got so far.
  struct Gather {
    std::vector<Entry> entries = {};
    std::vector<Gathered> groups = {};
  };

  [[nodiscard]] Entry leave_at_source(std::span<const std::byte> source, Tally& tally);
  struct Found {
    Slot* slot = nullptr;
    Shelf* shelf = nullptr;
  };
  /// The lookup of every access but access() itself, which has the only inlined one: a second
  /// inlined caller of Shelf::find() makes the compiler inline neither (8 % more instructions).
  [[nodiscard, gnu::noinline]] Found find(const Places& places, Reader& reader,
                                          std::span<const std::byte> source, Hint hint);
  /// As access(), but the move may be left to submit_gathered().
  [[nodiscard]] Entry access_gathering(std::span<const std::byte> source, Hint hint,
                                       Gather& gather);
  [[nodiscard]] Entry access_absent(std::span<const std::byte> source, Hint hint,
                                    const Places& places, Reader& reader, Tally& tally,
                                    Gather* gather);
  /// `entry` is the one that is placed, or was there already.
  [[nodiscard]] Attempt place(Entry& entry, Hint hint, Shelf& shelf, Evicting evicting,
                              Reader& reader, Tally& tally, Gather* gather);
  [[nodiscard]] Attempt start_move(Shelf& shelf, std::uint32_t number, Evicting evicting,
                                   Gather* gather);
  /// Announces a move that is submitted with others.
  [[nodiscard]] Attempt gather_move(Gather& gather, Shelf& shelf, std::uint32_t number,
                                    std::optional<NodeId> source_node);
  /// Submits the moves of a group together.
  void submit_gathered(Gathered& group, std::vector<Entry>& entries);
  /// Ends an entry whose move is refused.
  void refuse(Shelf& shelf, EntryState& state);
  [[nodiscard]] engine::SubmitOptions options_for(const Shelf& shelf,
                                                  std::optional<NodeId> source_node) const;
  [[nodiscard]] bool make_room(Shelf& shelf, std::uint64_t byte_count, std::uint32_t newcomer,
                               Evicting evicting);
  [[nodiscard]] bool evict(Shelf& shelf, std::uint64_t byte_count, std::uint32_t newcomer);
  [[nodiscard]] bool is_on(std::uint32_t number, std::optional<NodeId> node) const;
  /// Writes back what is changed in `region`. False if some of it is being changed.
  [[nodiscard]] bool clear_way(const Region& region);
  /// A handle without an entry, on a source that has all bytes that were changed.
  [[nodiscard]] Entry at_source(std::span<const std::byte> source);
  /// Returns of how many a device that was given up may still write old bytes to the source.
  std::size_t write_back_by_engine(std::span<const Changes::Range> claimed);
  /// Of the entry that a handle of this cache is on.
  [[nodiscard]] std::uint32_t number_of(const Entry& entry) const;
  /// Ends what nobody holds; the rest ends with its last handle.
  void end(Batch& gone, std::optional<EventKind> kind);

  const topo::Machine machine_;
  engine::Engine& engine_;
  std::optional<Placements> placements_;
  engine::MoverPolicy mover_;  ///< Empty: the engine's.
  const bool check_sources_;
  const std::unique_ptr<Ledger, LetGo> ledger_;
  /// By number.
  std::vector<std::unique_ptr<Shelf>> shelves_;
  /// Held from taking entries off the shelves until their moves have ended: who drops after another
  /// returns only when what the other one took off is no longer moved either. Not taken by
  /// access().
  Mutex dropping_;
};

}  // namespace headrace::cache
