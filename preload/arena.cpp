// SPDX-License-Identifier: Apache-2.0
// operator new of the preload. Not malloc: that is the program's, and may be one that is not ready
// while constructors run. Only the constructor allocates, and little: what is freed is not used
// again.
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace {

constexpr std::size_t kRegionBytes = std::size_t{1} << 18U;

// Only the constructor of the preload gets here, and constructors take turns.
std::byte* free_begin = nullptr;
std::size_t free_bytes = 0;

std::byte* map(std::size_t byte_count) noexcept {
  void* const mapped =
      ::mmap(nullptr, byte_count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

void* take(std::size_t byte_count) noexcept {
  constexpr std::size_t kMask = alignof(std::max_align_t) - 1;
  if (byte_count > SIZE_MAX / 2) return nullptr;
  byte_count = (byte_count + kMask) & ~kMask;
  if (byte_count >= kRegionBytes) return map(byte_count);
  if (byte_count > free_bytes) {
    free_begin = map(kRegionBytes);
    free_bytes = free_begin != nullptr ? kRegionBytes : 0;
    if (free_begin == nullptr) return nullptr;
  }
  void* const taken = free_begin;
  free_begin += byte_count;
  free_bytes -= byte_count;
  return taken;
}

}  // namespace

// Local to the preload by its version script: the program keeps its own.
void* operator new(std::size_t byte_count) {
  void* const taken = take(byte_count);
  if (taken == nullptr) throw std::bad_alloc();
  return taken;
}
void* operator new[](std::size_t byte_count) {
  return ::operator new(byte_count);
}
void* operator new(std::size_t byte_count, const std::nothrow_t& /*unused*/) noexcept {
  return take(byte_count);
}
void* operator new[](std::size_t byte_count, const std::nothrow_t& /*unused*/) noexcept {
  return take(byte_count);
}
void operator delete(void* /*pointer*/) noexcept {}
void operator delete[](void* /*pointer*/) noexcept {}
void operator delete(void* /*pointer*/, std::size_t /*byte_count*/) noexcept {}
void operator delete[](void* /*pointer*/, std::size_t /*byte_count*/) noexcept {}
