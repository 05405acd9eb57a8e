// SPDX-License-Identifier: Apache-2.0
// Access to memory that may be inaccessible: a fault ends the access and is reported; the program
// goes on. A table lists each instruction that may fault and its recovery address; the handler of
// SIGSEGV and SIGBUS moves the instruction pointer there, and the registers tell how far the access
// came. Uses no setjmp, thread state or string functions of the C library. Not a way to test
// whether an address is valid.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace headrace::emu::guarded {

using Address = std::uint64_t;

/// What stopped an access: the inaccessible address (any byte of the page), and whether it was a
/// write.
struct Fault {
  Address address = 0;
  bool write = false;
};

/// How far an access came, exact to the byte, from its first byte (downwards: its last).
struct Reach {
  std::size_t byte_count = 0;
  std::optional<Fault> fault = std::nullopt;
};

/// Copies from the first byte to the last: for a target below its source, or disjoint.
///
/// Threading: shared, as all functions here; ThreadSanitizer reports races with other threads.
Reach copy_up(Address target, Address source, std::size_t byte_count) noexcept;
/// Copies from the last byte to the first.
Reach copy_down(Address target, Address source, std::size_t byte_count) noexcept;
/// Stores one byte after all earlier stores of this thread (edge completion-record).
Reach store_status(Address target, std::uint8_t value) noexcept;
/// Writes back and invalidates the cache lines of the range; complete on return.
Reach flush_lines(Address target, std::size_t byte_count) noexcept;

/// How many bytes from the first one on (downwards: from the last one back) are in present pages:
/// touched anonymous memory, file pages in the page cache (mincore). Also stops at the first
/// unmapped page.
std::size_t resident_up(Address first, std::size_t byte_count) noexcept;
std::size_t resident_down(Address first, std::size_t byte_count) noexcept;

/// For a handler of SIGSEGV and SIGBUS: true if the fault came from a guarded access; `ucontext`
/// then resumes behind it, and the handler just returns. Async-signal-safe.
bool handle(int signal, const siginfo_t* info, void* ucontext) noexcept;

/// Installs a handler of SIGSEGV and SIGBUS that forwards other faults to the previous handler.
/// Call once; threads that use the functions above must not block the two signals. A program with
/// its own handler calls handle() from it instead.
void install() noexcept;

}  // namespace headrace::emu::guarded
