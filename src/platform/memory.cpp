// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/memory.hpp"

#include <fmt/format.h>
#include <linux/futex.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>

#include "headrace/base/atomic.hpp"
#include "headrace/base/clock.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/platform/attribute.hpp"
#include "headrace/platform/cgroup.hpp"
#include "headrace/platform/descriptor.hpp"

namespace headrace::platform {
namespace {

std::size_t round_up_to_pages(std::size_t byte_count) {
  const std::size_t mask = page_bytes() - 1;
  return (byte_count + mask) & ~mask;
}

/// Faults in whole pages for reading or writing, without changing them. Returns 0 or the errno;
/// EINVAL also on kernels before 5.14.
int bring_in(std::uintptr_t first, std::size_t length, bool write) noexcept {
  int result = 0;
  do {
    // An integer, not a pointer, until the kernel has checked it.
    result = ::madvise(reinterpret_cast<void*>(first), length,
                       write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
  } while (result != 0 && (errno == EINTR || errno == EAGAIN));
  return result == 0 ? 0 : errno;
}

/// Lets the kernel read the first word of a page, or rewrite it atomically and unchanged (futex). A
/// bad address is an error, not a signal; also works where bring_in() does not: device memory, and
/// all memory on kernels before 5.14. Returns false if the page is not accessible.
bool reach(std::uintptr_t page, bool write) noexcept {
  // A word without waiters; only the access to the page's word matters.
  std::uint32_t unused = 0;
  constexpr std::uint32_t kImpossible = 0x5bd1'e995;
  constexpr timespec kNoTime{};
  long result = 0;
  do {
    // Integers, not pointers, until the kernel has checked them.
    result = write ? ::syscall(SYS_futex, &unused, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, nullptr,
                               page, FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, -1))
                   : ::syscall(SYS_futex, page, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, kImpossible,
                               &kNoTime, nullptr, 0);
  } while (result != 0 && errno == EINTR);
  return result >= 0 || errno == EAGAIN || errno == ETIMEDOUT;
}

std::uintptr_t address_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<std::uintptr_t>(bytes.data());
}

/// Null on failure, with errno set.
std::byte* map(std::size_t length) {
  void* const mapped =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

/// As map(), aligned to `alignment`, a power of two.
std::byte* map_aligned(std::size_t length, std::size_t alignment) {
  std::byte* const mapped = map(length + alignment);
  if (mapped == nullptr) return nullptr;
  const std::size_t before = (0 - reinterpret_cast<std::uintptr_t>(mapped)) & (alignment - 1);
  if (before != 0) ::munmap(mapped, before);
  ::munmap(mapped + before + length, alignment - before);
  return mapped + before;
}

/// Linux has at most so many nodes.
constexpr std::size_t kNodesMax = 1024;

/// Also of a kernel without NUMA.
bool has_one_node() {
  static const bool kHasOne =
      load_attribute("/sys/devices/system/node/online").value_or("0") == "0";
  return kHasOne;
}

/// Sets `node` as preferred for `pages`. Returns 0 or the errno: EINVAL if there is no such node.
///
/// Preferred, not bound: when the node is full, a bound page kills the process (out of memory), a
/// preferred one is placed elsewhere.
int prefer_node(std::span<std::byte> pages, NodeId node) {
  // The only node needs no call, which a kernel may lack and containers often forbid by seccomp.
  if (has_one_node()) return node.value() == 0 ? 0 : EINVAL;
  if (node.value() >= kNodesMax) return EINVAL;
  std::array<std::uint64_t, kNodesMax / 64> nodes{};
  nodes[node.value() / 64] = std::uint64_t{1} << node.value() % 64;
  const long preferred = ::syscall(SYS_mbind, pages.data(), pages.size(), MPOL_PREFERRED,
                                   nodes.data(), kNodesMax + 1, 0);
  return preferred == 0 ? 0 : errno;
}

/// The nodes of the pages at `addresses`, negative for one that is not present. False if the kernel
/// cannot report them.
bool find_nodes(std::span<void*> addresses, int* nodes) {
  return ::syscall(SYS_move_pages, 0, addresses.size(), addresses.data(), nullptr, nodes, 0) == 0;
}

/// Caches the available memory of a node: a check opens and reads several files, which takes longer
/// than to map, zero and fill some pages. Other processes allocate too, so it grants only a share,
/// and for a short time. If that was too much, prefault_pages() or verify_pages() fails later.
///
/// Threading: shared.
class Allowance {
 public:
  /// The available memory if it is less than `byte_count`, else nothing.
  [[nodiscard]] std::optional<Bytes> lack(NodeId node, std::uint64_t byte_count) {
    // relaxed, here and below: an estimate. Two threads that check at once find about the same.
    if (now_ns() < until_ns_.load_relaxed()) {
      std::uint64_t left = left_bytes_.load_relaxed();
      while (byte_count <= left) {
        if (left_bytes_.compare_exchange_relaxed(left, left - byte_count)) return std::nullopt;
      }
    }
    const std::optional<Bytes> available = available_on_node(node);
    if (!available.has_value()) return std::nullopt;
    if (available->count() < byte_count) return available;
    left_bytes_.store_relaxed((available->count() - byte_count) / kShare);
    until_ns_.store_relaxed(now_ns() + kTimeMax.count());
    return std::nullopt;
  }

 private:
  static constexpr std::uint64_t kShare = 8;
  static constexpr std::chrono::nanoseconds kTimeMax = std::chrono::milliseconds(10);

  [[nodiscard]] static std::int64_t now_ns() { return steady_clock().now().count(); }

  Atomic<std::int64_t> until_ns_{0};
  Atomic<std::uint64_t> left_bytes_{0};
};

/// As available_on_node(), if that is less than `byte_count`.
std::optional<Bytes> lack_on_node(NodeId node, std::uint64_t byte_count) {
  // Higher numbers have no files to read.
  static std::array<Allowance, kNodesMax> allowances;
  return node.value() < allowances.size() ? allowances[node.value()].lack(node, byte_count)
                                          : std::nullopt;
}

}  // namespace

std::size_t page_bytes() {
  static const auto kPageBytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return kPageBytes;
}

std::optional<Bytes> system_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  if (pages <= 0) return std::nullopt;
  return Bytes(static_cast<std::uint64_t>(pages) * page_bytes());
}

std::size_t huge_page_bytes() {
  static const std::size_t kHugePageBytes =
      load_number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").value_or(0);
  return kHugePageBytes;
}

Result<std::span<std::byte>> allocate_pages(std::size_t byte_count, std::optional<NodeId> node,
                                            Pages kind) {
  const std::string tried =
      node.has_value()
          ? fmt::format("allocate {} on node {}", to_text(Bytes(byte_count)), node->value())
          : fmt::format("allocate {}", to_text(Bytes(byte_count)));
  if (byte_count == 0 || byte_count > SIZE_MAX - page_bytes()) {
    return fail(Code::invalid_argument, tried, "the length is zero or wraps around",
                "pass a valid length");
  }
  const std::size_t length = round_up_to_pages(byte_count);
  if (node.has_value()) {
    const std::optional<Bytes> available = lack_on_node(*node, length);
    if (available.has_value()) {
      return fail(Code::out_of_memory, tried,
                  fmt::format("the node has only {} left", to_text(*available)),
                  "lower the capacity, or choose another node");
    }
  }
  const bool huge = kind == Pages::huge && huge_page_bytes() != 0 && length >= huge_page_bytes();
  std::byte* const mapped = huge ? map_aligned(length, huge_page_bytes()) : map(length);
  if (mapped == nullptr) {
    return fail(Code::out_of_memory, tried, "out of memory, or of mappings (vm.max_map_count)",
                "free some memory, or lower the capacity", errno);
  }
  const std::span<std::byte> pages(mapped, length);
  // A hint: plain pages will do if the kernel has no huge ones.
  if (huge) static_cast<void>(::madvise(mapped, length, MADV_HUGEPAGE));
  if (node.has_value()) {
    const int os_errno = prefer_node(pages, *node);
    if (os_errno != 0) {
      free_pages(pages);
      // Without memory, or the mapping cannot be split: vm.max_map_count.
      return fail(os_errno == EINVAL   ? Code::invalid_argument
                  : os_errno == ENOMEM ? Code::out_of_memory
                                       : Code::permission_denied,
                  tried, "the memory cannot be placed on that node",
                  "choose a node that 'headrace topo' shows", os_errno);
    }
  }
  return pages;
}

namespace {

/// Pages that could not be unmapped, because that would have split a mapping while the process had
/// vm.max_map_count of them; the first page of each has the length and the next.
struct Unfreed {
  std::size_t byte_count;
  Unfreed* next;
};
Mutex unfreed_mutex;
Unfreed* unfreed HEADRACE_GUARDED_BY(unfreed_mutex) = nullptr;

}  // namespace

void free_pages(std::span<std::byte> pages) noexcept {
  if (pages.empty()) return;
  static Atomic<std::uint32_t> unfreed_count{0};
  const bool freed = ::munmap(pages.data(), pages.size()) == 0;
  if (freed && unfreed_count.load_relaxed() == 0) return;  // A hint.
  const Lock lock(unfreed_mutex);
  if (!freed) {
    // Without its memory, but for one page, until another call succeeds.
    ::madvise(pages.data(), pages.size(), MADV_DONTNEED);
    unfreed = ::new (pages.data()) Unfreed{pages.size(), unfreed};
    unfreed_count.fetch_add_relaxed(1);  // As above.
    return;
  }
  while (unfreed != nullptr) {
    Unfreed* const next = unfreed->next;
    if (::munmap(unfreed, unfreed->byte_count) != 0) return;
    unfreed = next;
    unfreed_count.fetch_sub_relaxed(1);  // As above.
  }
}

Result<void> prefault_pages(std::span<std::byte> pages) {
  const int os_errno = bring_in(address_of(pages), pages.size(), true);
  if (os_errno == 0) return {};
  if (os_errno != EINVAL) {
    return fail(Code::out_of_memory, fmt::format("populate {}", to_text(Bytes(pages.size()))),
                "the node has not enough free memory", "lower the capacity, or choose another node",
                os_errno);
  }
  for (std::size_t offset = 0; offset < pages.size(); offset += page_bytes()) {
    // A volatile store: the compiler must not drop a store that is never read.
    *static_cast<volatile std::byte*>(&pages[offset]) = std::byte{0};
  }
  return {};
}

std::size_t touch_pages(std::uintptr_t first, std::size_t byte_count, bool write) noexcept {
  const std::size_t page = page_bytes();
  const std::uintptr_t begin = first / page * page;
  const std::size_t wanted = (first - begin + byte_count + page - 1) / page * page;
  if (wanted > page && bring_in(begin, wanted, write) == 0) return byte_count;
  const int os_errno = bring_in(begin, page, write);
  const bool there = os_errno == 0 || (os_errno == EINVAL && reach(begin, write));
  return there ? std::min(byte_count, begin + page - first) : 0;
}

Result<void> verify_pages(std::span<const std::byte> pages, NodeId node) {
  if (has_one_node()) return {};
  constexpr std::size_t kBatchCount = 512;
  std::array<void*, kBatchCount> addresses{};
  std::array<int, kBatchCount> places{};
  for (std::size_t offset = 0; offset < pages.size();) {
    std::size_t count = 0;
    for (; count < kBatchCount && offset < pages.size(); ++count, offset += page_bytes()) {
      // move_pages does not write to these addresses.
      addresses[count] = const_cast<std::byte*>(&pages[offset]);
    }
    if (!find_nodes(std::span(addresses).first(count), places.data())) return {};
    for (std::size_t i = 0; i < count; ++i) {
      if (places[i] < 0 || static_cast<std::uint32_t>(places[i]) == node.value()) continue;
      return fail(Code::out_of_memory, fmt::format("place pages on node {}", node.value()),
                  fmt::format("it was full, and they are on node {}", places[i]),
                  "lower the capacity, or choose another node");
    }
  }
  return {};
}

void populate_pages(std::span<std::byte> pages) noexcept {
  if (bring_in(address_of(pages), pages.size(), true) == 0) return;
  for (std::size_t offset = 0; offset < pages.size(); offset += page_bytes()) {
    static_cast<void>(*static_cast<const volatile std::byte*>(&pages[offset]));
  }
}

int sync_pages(std::span<std::byte> range) noexcept {
  const std::size_t before = address_of(range) % page_bytes();
  return ::msync(range.data() - before, range.size() + before, MS_SYNC) == 0 ? 0 : errno;
}

bool is_mapped(std::span<const std::byte> bytes) {
  const std::uintptr_t address = address_of(bytes);
  const std::size_t offset = address % page_bytes();
  // With MS_ASYNC msync writes nothing since Linux 2.6.19; it only checks the mappings.
  void* const first = reinterpret_cast<void*>(address - offset);
  return ::msync(first, bytes.size() + offset, MS_ASYNC) == 0 || errno != ENOMEM;
}

std::optional<Bytes> available_on_node(NodeId node) {
  const Result<std::string> text =
      load_file(fmt::format("/sys/devices/system/node/node{}/meminfo", node.value()), 1U << 16U);
  if (!text.has_value()) return std::nullopt;
  std::uint64_t available_kib = 0;
  bool found = false;
  // Lines such as "Node 0 MemFree:  1024 kB". Page cache and reclaimable slabs count as available.
  for (const std::string_view field :
       {" MemFree:", " Active(file):", " Inactive(file):", " SReclaimable:"}) {
    const std::size_t place = text->find(field);
    if (place == std::string::npos) continue;
    available_kib += std::strtoull(text->c_str() + place + field.size(), nullptr, 10);
    found = true;
  }
  if (!found) return std::nullopt;
  const Bytes on_node(available_kib << 10U);
  return std::min(on_node, available_in_cgroup().value_or(on_node));
}

std::optional<NodeId> node_of_address(const void* address) {
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) % page_bytes();
  // move_pages does not write to this address.
  void* place = const_cast<std::byte*>(static_cast<const std::byte*>(address) - offset);
  int node = -1;
  if (!find_nodes({&place, 1}, &node) || node < 0) return std::nullopt;
  return NodeId(static_cast<std::uint32_t>(node));
}

}  // namespace headrace::platform
