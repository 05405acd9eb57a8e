// SPDX-License-Identifier: Apache-2.0
// Access to memory that may not be there: a fault ends the access and is reported, instead of
// ending the program. Each instruction that may fault lies in a table with the place where to go
// on; the handler of SIGSEGV and SIGBUS moves the instruction pointer there, and the registers say
// how far the access came. No setjmp, no state of a thread, no call of the C library's string
// functions. Not a way to ask whether an address is valid.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace headrace::emu::guarded {

using Address = std::uint64_t;

/// What stopped an access: the address that was not there (any byte of the page), and whether it
/// was to be written.
struct Fault {
  Address address = 0;
  bool write = false;
};

/// How far an access came, exact to the byte, from its first byte (or last, if downwards).
struct Reach {
  std::size_t byte_count = 0;
  std::optional<Fault> fault = std::nullopt;
};

/// Copies from the first byte to the last: right for a target below its source, or apart from it.
///
/// Threading: shared, as all of these; a race with another thread is reported by ThreadSanitizer.
Reach copy_up(Address target, Address source, std::size_t byte_count) noexcept;
/// Copies from the last byte to the first.
Reach copy_down(Address target, Address source, std::size_t byte_count) noexcept;
/// Stores one byte after everything that this thread stored before (edge completion-record).
Reach store_status(Address target, std::uint8_t value) noexcept;
/// Writes back and drops the cache lines that hold the range; done when it returns.
Reach flush_lines(Address target, std::size_t byte_count) noexcept;

/// How many bytes from the first one on (or from the last one back) lie in pages that are present:
/// anonymous memory that was touched, file pages that the page cache holds (mincore). Ends at the
/// first page that is not mapped, too.
std::size_t resident_up(Address first, std::size_t byte_count) noexcept;
std::size_t resident_down(Address first, std::size_t byte_count) noexcept;

/// For a handler of SIGSEGV and SIGBUS: true if the fault was one of ours; `ucontext` then goes on
/// behind the access, and the handler just returns. Async-signal-safe.
bool handle(int signal, const siginfo_t* info, void* ucontext) noexcept;

/// Puts a handler of SIGSEGV and SIGBUS in place that passes on what is not ours to the handler
/// that was there before. Once is enough; a thread that uses the functions above must not block the
/// two signals. A program with a handler of its own calls handle() from it instead.
void install() noexcept;

}  // namespace headrace::emu::guarded
