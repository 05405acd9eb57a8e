// SPDX-License-Identifier: Apache-2.0
#include "inject/arena.hpp"

#include <sys/mman.h>

#include <bit>
#include <new>

#include "inject/kernel.hpp"

namespace headrace::inject {
namespace {

constexpr unsigned kClassMin = 6;
constexpr std::uint64_t kRegionBytes = 1 << 20;

/// Precedes every returned pointer.
struct Header {
  void* block;
  std::uint64_t size_class;
};

}  // namespace

void* Arena::take_block(unsigned size_class) noexcept {
  const std::uint64_t block_bytes = std::uint64_t{1} << size_class;
  if (block_bytes >= kRegionBytes) return reinterpret_cast<void*>(kernel::map(block_bytes));
  const Hold hold(lock_);
  void* block = free_[size_class];
  if (block != nullptr) {
    free_[size_class] = free_[size_class]->next;
  } else {
    if (region_end_ - region_next_ < block_bytes) {
      region_next_ = kernel::map(kRegionBytes);
      region_end_ = region_next_ == 0 ? 0 : region_next_ + kRegionBytes;
    }
    if (region_next_ != 0) {
      block = reinterpret_cast<void*>(region_next_);
      region_next_ += block_bytes;
    }
  }
  return block;
}

void* Arena::take(std::size_t byte_count, std::size_t alignment) noexcept {
  if (alignment < sizeof(Header)) alignment = sizeof(Header);
  const std::size_t needed = byte_count + sizeof(Header) + alignment;
  auto size_class = static_cast<unsigned>(std::bit_width(needed - 1));
  if (size_class < kClassMin) size_class = kClassMin;
  if (size_class >= kClassMax) return nullptr;
  void* block = take_block(size_class);
  if (block == nullptr) return nullptr;
  const std::uint64_t first = reinterpret_cast<std::uint64_t>(block) + sizeof(Header);
  const std::uint64_t aligned = (first + alignment - 1) & ~(alignment - 1);
  *reinterpret_cast<Header*>(aligned - sizeof(Header)) = {block, size_class};
  return reinterpret_cast<void*>(aligned);
}

void Arena::give_back(void* pointer) noexcept {
  if (pointer == nullptr) return;
  const Header header =
      *reinterpret_cast<Header*>(reinterpret_cast<std::uint64_t>(pointer) - sizeof(Header));
  const std::uint64_t block_bytes = std::uint64_t{1} << header.size_class;
  if (block_bytes >= kRegionBytes) {
    kernel::call(__NR_munmap, kernel::as_argument(header.block), static_cast<long>(block_bytes));
    return;
  }
  const Hold hold(lock_);
  free_[header.size_class] = new (header.block) Free{free_[header.size_class]};
}

}  // namespace headrace::inject

// Local to each injected library by its version script: the program keeps its operator new. The
// other forms of new and delete, of the static C++ runtime, call these.
void* operator new(std::size_t byte_count) {
  void* pointer = headrace::inject::own_arena().take(byte_count, alignof(std::max_align_t));
  if (pointer == nullptr) throw std::bad_alloc();
  return pointer;
}
void* operator new(std::size_t byte_count, std::align_val_t alignment) {
  void* pointer =
      headrace::inject::own_arena().take(byte_count, static_cast<std::size_t>(alignment));
  if (pointer == nullptr) throw std::bad_alloc();
  return pointer;
}
void operator delete(void* pointer) noexcept {
  headrace::inject::own_arena().give_back(pointer);
}
void operator delete(void* pointer, std::align_val_t) noexcept {
  ::operator delete(pointer);
}
// GCC warns if a program has the first form and not this one.
void operator delete(void* pointer, std::size_t) noexcept {
  ::operator delete(pointer);
}
