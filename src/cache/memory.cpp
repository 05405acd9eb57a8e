// SPDX-License-Identifier: Apache-2.0
// The built-in MemorySources: pages of the operating system, and slabs of them.
#include "headrace/platform/memory.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "core.hpp"
#include "headrace/base/check.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/cache/cache.hpp"

namespace headrace::cache {
namespace {

/// Each allocation is a separate mapping, gone from the node when it is freed. It costs two system
/// calls and the zeroing of the pages, and the kernel limits their number (vm.max_map_count).
///
/// Threading: shared.
class Pages final : public MemorySource {
 public:
  explicit Pages(platform::Pages kind) : kind_(kind) {}

  Result<std::span<std::byte>> allocate(std::size_t byte_count, NodeId node) override {
    Result<std::span<std::byte>> pages = platform::allocate_pages(byte_count, node, kind_);
    if (!pages.has_value()) return pages;
    // Now, while a full node is still an error; later it would be a signal in a mover's thread.
    Result<void> present = platform::prefault_pages(*pages);
    if (present.has_value()) present = platform::verify_pages(*pages, node);
    if (!present.has_value()) {
      platform::free_pages(*pages);
      return fail(present.error());
    }
    return pages;
  }
  void free(std::span<std::byte> memory) noexcept override { platform::free_pages(memory); }

 private:
  const platform::Pages kind_;
};

/// Memory from upstream in slabs, each with objects of one length; longer copies have a slab of
/// their own. A slab without objects in use is kept for any length, up to kept_max bytes of a node;
/// before upstream is asked for more, as many kept bytes of that node are returned.
///
/// Objects are one to 256 pages long: each number of pages up to 8, then four lengths for each
/// doubling, so that a copy wastes at most a fifth of its object.
///
/// Threading: shared. Upstream is called with no lock held.
class Slabs final : public MemorySource {
 public:
  Slabs(std::shared_ptr<MemorySource> upstream, std::uint64_t kept_max)
      : upstream_(std::move(upstream)), kept_max_(kept_max) {}
  ~Slabs() override {
    // Others have objects in use: copies that a device may still write to.
    for (Node& node : nodes_) {
      while (Slab* const slab = node.kept.oldest()) upstream_->free(take_out(node, *slab));
    }
  }

  Result<std::span<std::byte>> allocate(std::size_t byte_count, NodeId id) override {
    const Kind kind = kind_of(byte_count);
    {
      const Lock lock(mutex_);
      Node& node = node_of(id);
      if (Slab* const open = node.open[kind.number].oldest()) [[likely]]
        return take_object(node, *open, byte_count);
      for (Slab* slab = node.kept.oldest(); slab != nullptr; slab = slab->newer) {
        if (slab->memory.size() == kind.slab_bytes) return reuse(node, *slab, kind, byte_count);
      }
      if (node.refusal_count % kAskOneOf != 0) return refuse(node);
    }
    return_kept(id, kind.slab_bytes);
    auto slab = std::make_unique<Slab>();
    Result<std::span<std::byte>> memory = upstream_->allocate(kind.slab_bytes, id);
    const Lock lock(mutex_);
    Node& node = node_of(id);
    if (!memory.has_value()) {
      ++node.refusal_count;
      return memory;
    }
    slab->memory = memory->first(kind.slab_bytes);
    slab->node = &node;
    try {
      slabs_.emplace(slab->memory.data(), slab.get());
    } catch (...) {
      upstream_->free(*memory);
      throw;
    }
    node.refusal_count = 0;
    Slab& made = *slab.release();
    return open(node, made, kind, byte_count);
  }

  void free(std::span<std::byte> memory) noexcept override {
    std::span<std::byte> given_back;
    {
      const Lock lock(mutex_);
      Slab& slab = slab_of(memory);
      Node& node = *slab.node;
      node.refusal_count = 0;
      const std::size_t index =
          static_cast<std::size_t>(memory.data() - slab.memory.data()) / slab.kind.object_bytes;
      slab.free[index / 64] |= std::uint64_t{1} << index % 64;
      if (slab.free_count++ == 0) node.open[slab.kind.number].push(slab);
      if (slab.free_count < slab.kind.object_count) [[likely]]
        return;
      node.open[slab.kind.number].remove(slab);
      node.kept.push(slab);
      node.kept_bytes += slab.memory.size();
      if (node.kept_bytes <= kept_max_) return;
      given_back = take_out(node, slab);
    }
    upstream_->free(given_back);
  }

 private:
  static constexpr std::size_t kSlabBytes = std::size_t{2} << 20U;
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr std::size_t kObjectMax = kSlabBytes / kPageBytes;
  static constexpr std::size_t kPagesMax = kObjectMax / 2;
  static constexpr std::size_t kLarge = 8 + 5 * 4;  ///< The number of all kinds with one object.
  /// After a refusal of upstream, one request in kAskOneOf asks again until memory is freed.
  static constexpr std::uint32_t kAskOneOf = 64;

  /// What the objects of a slab are.
  struct Kind {
    std::size_t number = 0;
    std::size_t object_bytes = 0;
    std::size_t object_count = 0;
    std::size_t slab_bytes = 0;
  };
  struct Node;
  struct Slab {
    std::span<std::byte> memory;
    Node* node = nullptr;
    Kind kind;
    std::size_t free_count = 0;
    std::array<std::uint64_t, kObjectMax / 64> free{};  ///< Bit i: object i is free.
    Slab* older = nullptr;
    Slab* newer = nullptr;
  };
  class List {
   public:
    [[nodiscard]] Slab* oldest() const { return oldest_; }
    void push(Slab& slab) {
      slab.older = newest_;
      slab.newer = nullptr;
      (newest_ != nullptr ? newest_->newer : oldest_) = &slab;
      newest_ = &slab;
    }
    void remove(Slab& slab) {
      (slab.older != nullptr ? slab.older->newer : oldest_) = slab.newer;
      (slab.newer != nullptr ? slab.newer->older : newest_) = slab.older;
    }

   private:
    Slab* oldest_ = nullptr;
    Slab* newest_ = nullptr;
  };
  struct Node {
    explicit Node(NodeId node) : id(node) {}
    NodeId id;
    std::array<List, kLarge + 1> open;  ///< Slabs with free objects and others, by their kind.
    List kept;                          ///< Slabs with nothing but free objects.
    std::uint64_t kept_bytes = 0;
    std::uint32_t refusal_count = 0;  ///< By upstream, since memory was freed.
  };

  static Kind kind_of(std::size_t byte_count) {
    const std::size_t pages = (byte_count + kPageBytes - 1) / kPageBytes;
    if (pages > kPagesMax) return {kLarge, byte_count, 1, byte_count};
    std::size_t number = pages - 1;
    std::size_t rounded = pages;
    if (pages > 8) {
      const auto shift = static_cast<std::size_t>(std::bit_width(pages - 1)) - 3;
      const std::size_t quarter = (pages - 1) >> shift;
      number = 4 + shift * 4 + quarter - 4;
      rounded = (quarter + 1) << shift;
    }
    return {number, rounded * kPageBytes, kObjectMax / rounded, kSlabBytes};
  }

  Node& node_of(NodeId id) HEADRACE_REQUIRES(mutex_) {
    for (Node& node : nodes_) {
      if (node.id == id) return node;
    }
    return nodes_.emplace_back(id);
  }
  Slab& slab_of(std::span<std::byte> memory) HEADRACE_REQUIRES(mutex_) {
    const auto behind = slabs_.upper_bound(memory.data());
    HEADRACE_CHECK(behind != slabs_.begin() &&
                       memory.data() < std::to_address(std::prev(behind)->second->memory.end()),
                   "memory is freed once, where it came from");
    return *std::prev(behind)->second;
  }
  static std::span<std::byte> take_object(Node& node, Slab& slab, std::size_t byte_count) {
    std::size_t word = 0;
    while (slab.free[word] == 0) ++word;
    const auto index = word * 64 + static_cast<std::size_t>(std::countr_zero(slab.free[word]));
    slab.free[word] &= slab.free[word] - 1;
    if (--slab.free_count == 0) node.open[slab.kind.number].remove(slab);
    return slab.memory.subspan(index * slab.kind.object_bytes, byte_count);
  }
  static std::span<std::byte> open(Node& node, Slab& slab, const Kind& kind,
                                   std::size_t byte_count) {
    slab.kind = kind;
    slab.free_count = kind.object_count;
    for (std::size_t i = 0; i < slab.free.size(); ++i) {
      const std::size_t left = kind.object_count - std::min(kind.object_count, i * 64);
      slab.free[i] = left >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1;
    }
    node.open[kind.number].push(slab);
    return take_object(node, slab, byte_count);
  }
  static std::span<std::byte> reuse(Node& node, Slab& slab, const Kind& kind,
                                    std::size_t byte_count) {
    node.kept.remove(slab);
    node.kept_bytes -= slab.memory.size();
    return open(node, slab, kind, byte_count);
  }
  /// Removes a kept slab and returns its memory.
  std::span<std::byte> take_out(Node& node, Slab& slab) HEADRACE_REQUIRES(mutex_) {
    const std::unique_ptr<Slab> owned(&slab);
    node.kept.remove(slab);
    node.kept_bytes -= slab.memory.size();
    slabs_.erase(slab.memory.data());
    return slab.memory;
  }
  /// Returns at least `byte_count` kept bytes of a node to upstream, or all.
  void return_kept(NodeId id, std::size_t byte_count) {
    for (std::size_t returned = 0; returned < byte_count;) {
      std::span<std::byte> memory;
      {
        const Lock lock(mutex_);
        Node& node = node_of(id);
        if (node.kept.oldest() == nullptr) return;
        memory = take_out(node, *node.kept.oldest());
      }
      returned += memory.size();
      upstream_->free(memory);
    }
  }
  /// Short texts: a node that is full is asked often, and nothing is to be allocated.
  static Failure refuse(Node& node) {
    ++node.refusal_count;
    return fail(Code::out_of_memory, "allocate", "node is full", "");
  }

  const std::shared_ptr<MemorySource> upstream_;
  const std::uint64_t kept_max_;
  Mutex mutex_;
  std::deque<Node> nodes_ HEADRACE_GUARDED_BY(mutex_);
  std::map<const std::byte*, Slab*, std::less<>> slabs_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<MemorySource> recycled(std::shared_ptr<MemorySource> upstream) {
  HEADRACE_CHECK(upstream != nullptr, "recycled memory comes from somewhere");
  return std::make_shared<Slabs>(std::move(upstream), ~std::uint64_t{0});
}

std::shared_ptr<MemorySource> detail::default_memory() {
  return std::make_shared<Slabs>(operating_system_pages(), std::uint64_t{64} << 20U);
}

std::shared_ptr<MemorySource> operating_system_pages() {
  return std::make_shared<Pages>(platform::Pages::plain);
}

std::shared_ptr<MemorySource> huge_pages() {
  return std::make_shared<Pages>(platform::Pages::huge);
}

}  // namespace headrace::cache
