// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/executable.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "headrace/base/atomic.hpp"
#include "headrace/platform/memory.hpp"

// A part of the module's .bss, with the unwind information of functions that never move the stack
// pointer: unwinders, debuggers and profilers walk through generated code as through other code of
// this module. Not __register_frame at run time: it takes a lock in each throw of the program and
// needs libgcc_s to be loaded.
asm(R"(
  .pushsection .bss.headrace_generated_code,"aw",@nobits
  .balign 4096
  .type headrace_generated_code, @function
headrace_generated_code:
  .cfi_startproc
  .zero 0x100000
  .cfi_endproc
  .size headrace_generated_code, . - headrace_generated_code
  .popsection
)");
extern "C" [[gnu::visibility("hidden")]] std::byte headrace_generated_code[0x100000];

namespace headrace::platform {
namespace {

/// The place with unwind information, for the first caller; empty for later ones, and if it is too
/// small. It is never reused: the argument of edge copy-choice needs fresh pages.
std::span<std::byte> try_take_known_place(std::size_t byte_count) noexcept {
  constexpr std::size_t kPageBytes = 4096;
  const std::span<std::byte> place(headrace_generated_code);
  static constinit Atomic<bool> taken{false};
  if (byte_count == 0 || byte_count > place.size()) return {};
  // relaxed: it publishes nothing, it only elects one winner.
  bool expected = false;
  if (!taken.compare_exchange_relaxed(expected, true)) return {};
  return place.first((byte_count + kPageBytes - 1) / kPageBytes * kPageBytes);
}

}  // namespace

Result<ExecutablePages> ExecutablePages::make(std::size_t byte_count) {
  if (const auto place = try_take_known_place(byte_count); !place.empty()) {
    return ExecutablePages(place);
  }
  HEADRACE_TAKE(pages, allocate_pages(byte_count, std::nullopt));
  return ExecutablePages(*pages);
}

void ExecutablePages::give_back(std::span<std::byte> pages) noexcept {
  if (pages.data() == headrace_generated_code) {
    // If either call fails, the pages stay mapped and unused. They must stay readable:
    // LeakSanitizer and garbage collectors scan all of a module's .bss.
    static_cast<void>(::madvise(pages.data(), pages.size(), MADV_DONTNEED));
    static_cast<void>(::mprotect(pages.data(), pages.size(), PROT_READ));
    return;
  }
  free_pages(pages);
}

Result<void> replace_code(std::span<std::byte> place, std::span<const std::byte> code) {
  HEADRACE_TAKE(pages, allocate_pages(place.size(), std::nullopt));
  std::ranges::copy(code, pages->begin());
  // Never writable and executable at once, and replaced by one call: a thread that enters these
  // pages meanwhile waits in its page fault.
  const bool moved = ::mprotect(pages->data(), pages->size(), PROT_READ | PROT_EXEC) == 0 &&
                     ::mremap(pages->data(), pages->size(), place.size(),
                              MREMAP_MAYMOVE | MREMAP_FIXED, place.data()) != MAP_FAILED;
  if (moved) return {};
  const int problem = errno;
  free_pages(*pages);
  return fail(Code::permission_denied, "make generated code executable",
              "this process may not have executable memory",
              "allow it (SELinux execmem, seccomp), or go without generated copies", problem);
}

Result<void> ExecutablePages::seal() {
  // One call replaces the write permission by the execute permission, so the pages never have both.
  // No flush of the instruction cache: on x86-64 it is coherent with stores, and the system call
  // serialises.
  if (::mprotect(bytes().data(), bytes().size(), PROT_READ | PROT_EXEC) != 0) {
    return fail(Code::permission_denied, "make generated code executable",
                "this process may not have executable memory",
                "allow it (SELinux execmem, seccomp), or go without generated copies", errno);
  }
  return {};
}

}  // namespace headrace::platform
