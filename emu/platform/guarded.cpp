// SPDX-License-Identifier: Apache-2.0
// The instructions that may fault, their table and the handler. Inline assembly, so that the
// compiler cannot place other accesses between the labels.
#include "emu/platform/guarded.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>

#include "headrace/base/mutex.hpp"

#if defined(__SANITIZE_THREAD__)
#define HEADRACE_EMU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HEADRACE_EMU_TSAN 1
#endif
#endif

// One table entry: a fault in [begin, end) resumes at `landing`. Relative offsets, so that the
// table needs no relocation.
#define HEADRACE_GUARD(begin, end, landing)         \
  ".pushsection headrace_guarded,\"a\",@progbits\n" \
  ".balign 4\n"                                     \
  ".long " begin " - ., " end " - ., " landing      \
  " - .\n"                                          \
  ".popsection\n"

#if defined(HEADRACE_EMU_TSAN)
extern "C" {
void __tsan_read_range(void* address, unsigned long byte_count);
void __tsan_write_range(void* address, unsigned long byte_count);
void __tsan_release(void* address);
}
#endif

namespace headrace::emu::guarded {
namespace {

struct Guard {
  std::int32_t begin, end, landing;
};

// The linker defines these as the ends of the section.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names.
[[gnu::visibility("hidden")]] extern const Guard __start_headrace_guarded[];
[[gnu::visibility("hidden")]] extern const Guard __stop_headrace_guarded[];
// NOLINTEND(bugprone-reserved-identifier)
}

constexpr std::uint64_t kTrapPageFault = 14;
constexpr std::uint64_t kErrorWrite = 2;
constexpr std::uint64_t kStopped = 1ULL << 32;  // Tells a fault with code 0 from none.

// What the handler leaves in RAX and RDX.
struct Trap {
  std::uint64_t address = 0;
  std::uint64_t code = 0;  // kStopped | trap number << 16 | error code
};

void saw_read([[maybe_unused]] Address first, [[maybe_unused]] std::size_t byte_count) {
#if defined(HEADRACE_EMU_TSAN)
  if (byte_count > 0) __tsan_read_range(reinterpret_cast<void*>(first), byte_count);
#endif
}

void saw_write([[maybe_unused]] Address first, [[maybe_unused]] std::size_t byte_count) {
#if defined(HEADRACE_EMU_TSAN)
  if (byte_count > 0) __tsan_write_range(reinterpret_cast<void*>(first), byte_count);
#endif
}

bool canonical(Address address) {
  const auto top = static_cast<std::int64_t>(address) >> 47;
  return top == 0 || top == -1;
}

// A page fault reports address and direction. A general protection fault reports neither, but then
// one of the two addresses is not canonical.
Fault fault_of(const Trap& trap, Address target, Address source) {
  if (((trap.code >> 16) & 0xff) == kTrapPageFault) {
    return {trap.address, (trap.code & kErrorWrite) != 0};
  }
  if (!canonical(source)) return {source, false};
  return {target, true};
}

// Shorter moves go 16 bytes at a time: string instructions are slow to start.
constexpr std::size_t kStringBytesMin = 512;

// Sixteen bytes per iteration, then single bytes: the remainder, and after a fault the rest of the
// sixteen. One load and one store per iteration: with several, the first stores of a downward move
// could overwrite source bytes that the byte loop must read again after a fault of the last. RCX
// counts the bytes left; `from` and `to` are operands on RSI and RDI, and `past_...` advances them.
#define HEADRACE_MOVE_BLOCKS(from, to, past_block, byte_from, byte_to, past_byte)         \
  asm volatile(                                                                           \
      "1: subq $16, %%rcx\n"                                                              \
      "   jb 4f\n"                                                                        \
      "2: movups " from                                                                   \
      ", %%xmm0\n"                                                                        \
      "   movups %%xmm0, " to                                                             \
      "\n"                                                                                \
      "3:\n" past_block                                                                   \
      "   jmp 1b\n"                                                                       \
      "4: addq $16, %%rcx\n" /* A fault lands here too, and finds its byte below. */      \
      "   jz 7f\n"                                                                        \
      "5: movb " byte_from                                                                \
      ", %%r8b\n"                                                                         \
      "   movb %%r8b, " byte_to                                                           \
      "\n"                                                                                \
      "6:\n" past_byte                                                                    \
      "   decq %%rcx\n"                                                                   \
      "   jnz 5b\n"                                                                       \
      "7:\n" HEADRACE_GUARD("2b", "3b", "4b") HEADRACE_GUARD("5b", "6b", "7b")            \
      : "+D"(target), "+S"(source), "+c"(byte_count), "+a"(trap.address), "+d"(trap.code) \
      :                                                                                   \
      : "memory", "cc", "r8", "xmm0")

std::size_t blocks_up(Address target, Address source, std::size_t byte_count, Trap& trap) {
  HEADRACE_MOVE_BLOCKS("(%%rsi)", "(%%rdi)", "   addq $16, %%rsi\n   addq $16, %%rdi\n", "(%%rsi)",
                       "(%%rdi)", "   incq %%rsi\n   incq %%rdi\n");
  return byte_count;
}

std::size_t blocks_down(Address target, Address source, std::size_t byte_count, Trap& trap) {
  HEADRACE_MOVE_BLOCKS("(%%rsi,%%rcx)", "(%%rdi,%%rcx)", "", "-1(%%rsi,%%rcx)", "-1(%%rdi,%%rcx)",
                       "");
  return byte_count;
}

#undef HEADRACE_MOVE_BLOCKS

std::size_t string_up(Address target, Address source, std::size_t byte_count, Trap& trap) {
  // Fast strings store out of order among themselves, but never past the faulting byte, and never
  // after a later store.
  asm volatile(
      "1: rep movsb\n"
      "2:\n" HEADRACE_GUARD("1b", "2b", "2b")
      : "+D"(target), "+S"(source), "+c"(byte_count), "+a"(trap.address), "+d"(trap.code)
      :
      : "memory", "cc");
  return byte_count;
}

constexpr Address kLineBytes = 64;

constexpr std::size_t kPageBytes = 4096;  // Of x86-64; larger pages are multiples.

using Handler = struct sigaction;
Mutex g_install;
std::array<Handler, 2> g_former{};  // For SIGSEGV and SIGBUS; written before ours is installed.
bool g_installed HEADRACE_GUARDED_BY(g_install) = false;

void on_signal(int signal, siginfo_t* info, void* ucontext) {
  if (handle(signal, info, ucontext)) return;
  const Handler& former = g_former.at(signal == SIGSEGV ? 0 : 1);
  if ((former.sa_flags & SA_SIGINFO) != 0) {
    former.sa_sigaction(signal, info, ucontext);
  } else if (former.sa_handler == SIG_DFL || former.sa_handler == SIG_IGN) {
    // The instruction is retried and ends the program as it would without us; a sent signal has no
    // instruction to retry, so raise it again.
    ::sigaction(signal, &former, nullptr);
    if (info->si_code <= 0) ::raise(signal);
  } else {
    former.sa_handler(signal);
  }
}

}  // namespace

Reach copy_up(Address target, Address source, std::size_t byte_count) noexcept {
  Trap trap;
  const std::size_t left = byte_count < kStringBytesMin
                               ? blocks_up(target, source, byte_count, trap)
                               : string_up(target, source, byte_count, trap);
  const std::size_t done = byte_count - left;
  saw_read(source, done);
  saw_write(target, done);
  if (left == 0) return {byte_count, std::nullopt};
  return {done, fault_of(trap, target + done, source + done)};
}

Reach copy_down(Address target, Address source, std::size_t byte_count) noexcept {
  Trap trap;
  const std::size_t left = blocks_down(target, source, byte_count, trap);
  saw_read(source + left, byte_count - left);
  saw_write(target + left, byte_count - left);
  if (left == 0) return {byte_count, std::nullopt};
  return {byte_count - left, fault_of(trap, target + left - 1, source + left - 1)};
}

Reach store_status(Address target, std::uint8_t value) noexcept {
  Trap trap;
  std::uint64_t left = 1;
#if defined(HEADRACE_EMU_TSAN)
  __tsan_release(reinterpret_cast<void*>(target));
#endif
  // edge: completion-record (release)
  // On x86-64 a store becomes visible after all earlier stores except non-temporal ones, and code
  // that makes those fences them (none here).
  asm volatile(
      "1: movb %b[value], (%%rdi)\n"
      "2: xorl %%ecx, %%ecx\n"
      "3:\n" HEADRACE_GUARD("1b", "2b", "3b")
      : "+D"(target), "+c"(left), "+a"(trap.address), "+d"(trap.code)
      : [value] "r"(value)
      : "memory", "cc");
  if (left == 0) return {1, std::nullopt};
  return {0, fault_of(trap, target, 0)};
}

Reach flush_lines(Address target, std::size_t byte_count) noexcept {
  if (byte_count == 0) return {};
  Trap trap;
  const Address first = target & ~(kLineBytes - 1);
  Address line = first;
  std::uint64_t left = (target + byte_count - first + kLineBytes - 1) / kLineBytes;
  // Not clflushopt, which some CPUs lack: a client gains nothing by a fast flush.
  asm volatile(
      "1: clflush (%%rdi)\n"
      "2: addq $64, %%rdi\n"
      "   decq %%rcx\n"
      "   jnz 1b\n"
      "3: mfence\n" HEADRACE_GUARD("1b", "2b", "3b")
      : "+D"(line), "+c"(left), "+a"(trap.address), "+d"(trap.code)
      :
      : "memory", "cc");
  if (left == 0) return {byte_count, std::nullopt};
  const std::size_t done = line > target ? line - target : 0;
  Fault fault = fault_of(trap, line, 0);
  fault.write = false;
  return {done, fault};
}

std::size_t resident_up(Address first, std::size_t byte_count) noexcept {
  std::array<unsigned char, 128> present;
  const Address end = first + byte_count;
  Address page = first & ~Address{kPageBytes - 1};
  std::size_t page_count_max = present.size();
  while (page < end) {
    const std::size_t page_count =
        std::min<std::size_t>(page_count_max, (end - page + kPageBytes - 1) / kPageBytes);
    auto* const place = reinterpret_cast<void*>(page);
    if (::mincore(place, page_count * kPageBytes, present.data()) != 0) {
      // Some page in the range is not mapped: bisect.
      if (page_count == 1) break;
      page_count_max = page_count / 2;
      continue;
    }
    for (std::size_t index = 0; index < page_count; ++index, page += kPageBytes) {
      if ((present.at(index) & 1U) == 0) return page > first ? page - first : 0;
    }
  }
  return page >= end ? byte_count : (page > first ? page - first : 0);
}

std::size_t resident_down(Address first, std::size_t byte_count) noexcept {
  // Rare (a move onto the end of its own source), so page by page.
  const Address end = first + byte_count;
  Address beyond = (end + kPageBytes - 1) & ~Address{kPageBytes - 1};
  while (beyond > first) {
    unsigned char present = 0;
    const Address page = beyond - kPageBytes;
    if (::mincore(reinterpret_cast<void*>(page), kPageBytes, &present) != 0 ||
        (present & 1U) == 0) {
      return beyond < end ? end - beyond : 0;
    }
    beyond = page;
  }
  return byte_count;
}

bool handle(int signal, const siginfo_t* info, void* ucontext) noexcept {
  if ((signal != SIGSEGV && signal != SIGBUS) || info->si_code <= 0) return false;
  auto& registers = static_cast<ucontext_t*>(ucontext)->uc_mcontext.gregs;
  const auto at = static_cast<Address>(registers[REG_RIP]);
  for (const Guard* guard = __start_headrace_guarded; guard != __stop_headrace_guarded; ++guard) {
    const auto place = [](const std::int32_t& distance) {
      return reinterpret_cast<Address>(&distance) +
             static_cast<Address>(static_cast<std::int64_t>(distance));
    };
    if (at < place(guard->begin) || at >= place(guard->end)) continue;
    const auto trap = static_cast<std::uint64_t>(registers[REG_TRAPNO]);
    const auto error = static_cast<std::uint64_t>(registers[REG_ERR]);
    registers[REG_RAX] = registers[REG_CR2];
    registers[REG_RDX] = static_cast<greg_t>(kStopped | (trap & 0xff) << 16 | (error & 0xffff));
    registers[REG_RIP] = static_cast<greg_t>(place(guard->landing));
    return true;
  }
  return false;
}

void install() noexcept {
  const Lock lock(g_install);
  if (g_installed) return;
  Handler ours{};
  ours.sa_sigaction = on_signal;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  // Save the old actions first: our handler may run immediately, on another thread.
  ::sigaction(SIGSEGV, nullptr, &g_former[0]);
  ::sigaction(SIGBUS, nullptr, &g_former[1]);
  ::sigaction(SIGSEGV, &ours, nullptr);
  ::sigaction(SIGBUS, &ours, nullptr);
  g_installed = true;
}

}  // namespace headrace::emu::guarded
