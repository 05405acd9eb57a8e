// SPDX-License-Identifier: Apache-2.0
// Semantics of each instruction: its page in the Software Developer's Manual, volume 2. [S]
#include "inject/trap/trap.hpp"

#include <x86intrin.h>

#include <array>
#include <cerrno>
#include <span>

#include "emu/platform/guarded.hpp"
#include "headrace/dsa/descriptor.hpp"
#include "inject/kernel.hpp"
#include "inject/trap/connection.hpp"
#include "inject/trap/frame.hpp"
#include "inject/trap/instruction.hpp"
#include "inject/trap/portals.hpp"
#include "inject/trap/sites.hpp"

namespace headrace::emu {
namespace {

constexpr std::uint8_t kRax = 0;
constexpr std::uint8_t kRcx = 1;
constexpr std::uint8_t kRdx = 2;
constexpr std::uint8_t kRsi = 6;
constexpr std::uint8_t kRdi = 7;

/// x86 exception numbers, as the kernel puts them into REG_TRAPNO.
constexpr greg_t kGeneralProtection = 13;
constexpr greg_t kPageFault = 14;
constexpr greg_t kErrorWrite = 2;
constexpr greg_t kErrorUser = 4;

enum class Verdict : std::uint8_t {
  done,      ///< Emulated; the thread continues behind it.
  not_ours,  ///< The signal goes to the program unchanged.
  faulted,   ///< The instruction would have faulted: `info` and `context` describe the fault.
};

/// Reads the program's memory; on a fault returns false with the address in `fault`.
bool read(std::uint64_t address, std::span<std::byte> into, std::uint64_t& fault) noexcept {
  const auto reach =
      guarded::copy_up(reinterpret_cast<std::uint64_t>(into.data()), address, into.size());
  if (reach.fault) fault = reach.fault->address;
  return !reach.fault;
}

// UMONITOR, UMWAIT and TPAUSE: a thread watches a line of memory and sleeps until it is written or
// a deadline passes; here it polls the line and yields in between.

/// Linux's IA32_UMWAIT_CONTROL: the longest sleep, in time-stamp units. [S]
constexpr std::uint64_t kLimit = 100'000;

struct Watched {
  std::uint64_t line = 0;  // 0: none.
  std::array<std::uint64_t, 8> seen = {};
};
constinit thread_local Watched watched [[gnu::tls_model("initial-exec")]];

bool read_line(std::uint64_t line, std::array<std::uint64_t, 8>& into) noexcept {
  return !guarded::copy_up(reinterpret_cast<std::uint64_t>(into.data()), line, sizeof(into)).fault;
}

bool has_changed() noexcept {
  std::array<std::uint64_t, 8> now;
  return !read_line(watched.line, now) || now != watched.seen;
}

/// Waits for `done` or the deadline (time-stamp counter); true if the operating system's limit came
/// first.
template <typename Done>
bool wait(std::uint64_t deadline, Done done) noexcept {
  const std::uint64_t limit = __rdtsc() + kLimit;
  while (!done()) {
    const std::uint64_t now = __rdtsc();
    if (now >= deadline) return false;
    if (now >= limit) return true;
    kernel::yield();
  }
  return false;
}

/// UMONITOR. False if `address` is inaccessible.
bool watch(std::uint64_t address) noexcept {
  watched.line = address & ~std::uint64_t{63};
  if (read_line(watched.line, watched.seen)) return true;
  watched.line = 0;
  return false;
}

/// A thread's partial line of portal stores narrower than 64 bytes. A descriptor is submitted when
/// one thread has stored all 64 bytes of an aligned line consecutively, as a write-combining buffer
/// would merge them.
///
/// Threading: owned.
class Line {
 public:
  constexpr Line() = default;
  /// Adds bytes, which must stay within the line of `address`. True if the line is now full:
  /// bytes() holds it until the next call. Drops a partial other line.
  bool store(std::uint64_t address, std::span<const std::byte> from) noexcept {
    const std::uint64_t line = address & ~std::uint64_t{63};
    if (line != address_ || filled_ == ~std::uint64_t{0}) {
      address_ = line;
      filled_ = 0;
    }
    std::size_t position = address & 63;
    for (const std::byte byte : from) {
      bytes_[position] = byte;
      filled_ |= std::uint64_t{1} << position;
      ++position;
    }
    return filled_ == ~std::uint64_t{0};
  }
  [[nodiscard]] std::span<const std::byte, 64> bytes() const noexcept { return bytes_; }

 private:
  std::uint64_t address_ = 0;
  std::uint64_t filled_ = 0;  // Bit n: byte n.
  std::byte bytes_[64] = {};
};

/// Emulation of one instruction.
///
/// Threading: owned by the handler.
class Execution {
 public:
  Execution(siginfo_t& info, ucontext_t& context)
      : info_(&info), frame_(context), refused_(info.si_signo == SIGILL) {}

  Verdict run() noexcept;

 private:
  Verdict submit(bool posted) noexcept;
  Verdict store_piece() noexcept;
  Verdict move_string() noexcept;
  Verdict umonitor() noexcept;
  Verdict pause() noexcept;
  bool raise_fault(std::uint64_t target) noexcept;

  Verdict finish() noexcept {
    frame_.skip(instruction_);
    return Verdict::done;
  }
  /// Turns the signal into that of a page fault.
  Verdict page_fault(std::uint64_t address, bool write) noexcept;
  /// ... of a general protection fault, which has no address.
  Verdict protection_fault() noexcept;
  void store_bytes(PortalName portal, std::uint64_t address,
                   std::span<const std::byte> bytes) noexcept;

  siginfo_t* info_;
  Frame frame_;
  bool refused_;  // The CPU does not support the instruction.
  std::uint8_t first_byte_ = 0;
  Instruction instruction_;
};

Verdict Execution::page_fault(std::uint64_t address, bool write) noexcept {
  *info_ = {};
  info_->si_signo = SIGSEGV;
  info_->si_code = SEGV_MAPERR;
  info_->si_addr = reinterpret_cast<void*>(address);
  auto& registers = frame_.context().uc_mcontext.gregs;
  registers[REG_TRAPNO] = kPageFault;
  registers[REG_ERR] = kErrorUser | (write ? kErrorWrite : 0);
  registers[REG_CR2] = static_cast<greg_t>(address);
  return Verdict::faulted;
}

Verdict Execution::protection_fault() noexcept {
  *info_ = {};
  info_->si_signo = SIGSEGV;
  info_->si_code = SI_KERNEL;
  auto& registers = frame_.context().uc_mcontext.gregs;
  registers[REG_TRAPNO] = kGeneralProtection;
  registers[REG_ERR] = 0;
  return Verdict::faulted;
}

Verdict Execution::run() noexcept {
  std::uint8_t code[kInstructionBytesMax];
  const auto reach = guarded::copy_up(reinterpret_cast<std::uint64_t>(code),
                                      frame_.instruction_pointer(), sizeof(code));
  const std::span read = std::span(code).first(reach.byte_count);
  // The fault comes from our patched byte, which replaces an unsupported instruction.
  if (sites().restore(frame_.instruction_pointer(), read) && info_->si_code == SI_KERNEL) {
    refused_ = true;
  }
  const auto decoded = decode(read);
  if (!decoded) return Verdict::not_ours;
  first_byte_ = code[0];
  instruction_ = *decoded;
  switch (instruction_.kind) {
    case InstructionKind::enqcmd:
      return submit(false);
    case InstructionKind::movdir64b:
      return submit(true);
    // Privileged: a CPU that supports it raises a protection fault.
    case InstructionKind::enqcmds:
      return refused_ ? protection_fault() : Verdict::not_ours;
    case InstructionKind::umonitor:
      return refused_ ? umonitor() : Verdict::not_ours;
    case InstructionKind::umwait:
    case InstructionKind::tpause:
      return refused_ ? pause() : Verdict::not_ours;
    case InstructionKind::vector_store:
    case InstructionKind::store:
      return store_piece();
    case InstructionKind::string_move:
      return move_string();
  }
  return Verdict::not_ours;
}

/// Sends the thread the signal that a CPU with the instruction would raise at the portal's page. It
/// is delivered after this handler, at the same instruction. False: it cannot be delivered.
bool Execution::raise_fault(std::uint64_t target) noexcept {
  if ((word_of(frame_.context().uc_sigmask) & kernel::signal_bit(SIGSEGV)) != 0) return false;
  siginfo_t access{};
  access.si_signo = SIGSEGV;
  access.si_code = SEGV_ACCERR;
  access.si_addr = reinterpret_cast<void*>(target);
  // Not inside this handler. Returning from it restores the program's mask.
  const kernel::SignalSet former = kernel::set_mask(kernel::kAllSignals);
  if (kernel::call(__NR_rt_tgsigqueueinfo, kernel::call(__NR_getpid), kernel::call(__NR_gettid),
                   SIGSEGV, kernel::as_argument(&access)) == 0) {
    return true;
  }
  kernel::set_mask(former);
  return false;
}

Verdict Execution::submit(bool posted) noexcept {
  const std::uint64_t target =
      frame_.address_in(instruction_, instruction_.register_index, Segment::flat);
  const Place place = place_of(target);
  // A CPU with the instruction faults here because portals are inaccessible or, for ENQCMD, because
  // the process has no PASID. Any other fault is the program's.
  if (!refused_ && place.kind != PageKind::portal) return Verdict::not_ours;
  if (refused_ && place.kind == PageKind::portal && access_forced() && raise_fault(target)) {
    return Verdict::done;
  }
  if ((target & 63) != 0) return protection_fault();
  dsa::Descriptor descriptor;
  std::uint64_t fault = 0;
  if (!read(frame_.address(instruction_), std::as_writable_bytes(std::span(&descriptor, 1)),
            fault)) {
    return page_fault(fault, false);
  }
  switch (place.kind) {
    case PageKind::unmapped:
      return page_fault(target, true);
    case PageKind::ordinary:
      if (posted) {
        const auto reach = guarded::copy_up(target, reinterpret_cast<std::uint64_t>(&descriptor),
                                            sizeof(descriptor));
        return reach.fault ? page_fault(reach.fault->address, true) : finish();
      }
      frame_.set_flags(true, false);
      return finish();
    case PageKind::portal:
      break;
  }
  if (info_->si_signo == SIGILL) sites().count(frame_.instruction_pointer(), first_byte_);
  if (posted) {
    emu::submit(place.portal, descriptor, dsa::QueueMode::dedicated);
    return finish();
  }
  // The CPU overwrites PASID and privilege.
  descriptor.pasid = 0;
  descriptor.rsvd = 0;
  descriptor.priv = 0;
  const bool accepted = emu::submit(place.portal, descriptor, dsa::QueueMode::shared);
  frame_.set_flags(!accepted, false);
  return finish();
}

void Execution::store_bytes(PortalName portal, std::uint64_t address,
                            std::span<const std::byte> bytes) noexcept {
  static constinit thread_local Line line [[gnu::tls_model("initial-exec")]];
  while (!bytes.empty()) {
    const std::size_t room = 64 - (address & 63);
    const auto piece = bytes.first(bytes.size() < room ? bytes.size() : room);
    if (line.store(address, piece)) {
      dsa::Descriptor descriptor;
      for (std::size_t i = 0; i < 64; ++i) {
        reinterpret_cast<std::byte*>(&descriptor)[i] = line.bytes()[i];
      }
      emu::submit(portal, descriptor, dsa::QueueMode::dedicated);
    }
    address += piece.size();
    bytes = bytes.subspan(piece.size());
  }
}

Verdict Execution::store_piece() noexcept {
  const std::uint64_t target = frame_.address(instruction_);
  const std::uint64_t last = target + instruction_.byte_count - 1;
  // A store that crosses a portal's edge would need its other part done as well.
  if (target / kPageBytes != last / kPageBytes) return Verdict::not_ours;
  const Place place = place_of(target);
  if (place.kind != PageKind::portal) return Verdict::not_ours;
  std::byte bytes[64];
  const std::span piece = std::span(bytes).first(instruction_.byte_count);
  if (instruction_.kind == InstructionKind::vector_store) {
    frame_.read_vector(instruction_.register_index, piece);
  } else {
    std::uint64_t value = frame_.general(instruction_.register_index);
    if (instruction_.high_byte) value >>= 8;
    for (std::byte& byte : piece) {
      byte = static_cast<std::byte>(value & 0xff);
      value >>= 8;
    }
  }
  store_bytes(place.portal, target, piece);
  return finish();
}

Verdict Execution::move_string() noexcept {
  const std::uint64_t target = frame_.address_in(instruction_, kRdi, Segment::flat);
  const Place place = place_of(target);
  if (place.kind != PageKind::portal || frame_.moves_downwards()) return Verdict::not_ours;
  const std::uint64_t mask = instruction_.address_32 ? 0xffff'ffffU : ~std::uint64_t{0};
  std::uint64_t count = instruction_.repeated ? frame_.general(kRcx) & mask : 1;
  // To the end of the portal's page, or one unit at a time: the instruction then faults again.
  while (count != 0) {
    const std::uint64_t to = frame_.address_in(instruction_, kRdi, Segment::flat);
    if (to / kPageBytes != target / kPageBytes) return Verdict::done;
    std::byte piece[8];
    const std::span bytes = std::span(piece).first(instruction_.byte_count);
    std::uint64_t fault = 0;
    if (!read(frame_.address_in(instruction_, kRsi, instruction_.memory.segment), bytes, fault)) {
      return page_fault(fault, false);
    }
    store_bytes(place.portal, to, bytes);
    frame_.set_general(kRdi, (frame_.general(kRdi) + bytes.size()) & mask);
    frame_.set_general(kRsi, (frame_.general(kRsi) + bytes.size()) & mask);
    --count;
    if (instruction_.repeated) frame_.set_general(kRcx, count);
  }
  return finish();
}

Verdict Execution::umonitor() noexcept {
  const std::uint64_t address =
      frame_.address_in(instruction_, instruction_.register_index, instruction_.memory.segment);
  return watch(address) ? finish() : page_fault(address, false);
}

Verdict Execution::pause() noexcept {
  // Bit 0 selects the sleep state; the others are reserved.
  if ((frame_.general(instruction_.register_index) & 0xffff'fffeU) != 0) return protection_fault();
  const std::uint64_t deadline =
      (frame_.general(kRdx) & 0xffff'ffffU) << 32 | (frame_.general(kRax) & 0xffff'ffffU);
  bool limited = false;
  if (instruction_.kind == InstructionKind::tpause) {
    limited = wait(deadline, [] { return false; });
  } else if (watched.line != 0) {  // UMWAIT returns at once if nothing is watched.
    limited = wait(deadline, has_changed);
    watched.line = 0;
  }
  frame_.set_flags(false, limited);
  return finish();
}

/// Disables the thread's alternate stack during its lifetime. The handler's frame may be on that
/// stack, from which the entry switched to a private one; a fault in here would make the kernel
/// place its frame at the top of the alternate stack, over the first one.
///
/// Threading: owned.
class AlternateStackPause {
 public:
  explicit AlternateStackPause(const ucontext_t& context) {
    const auto frame = reinterpret_cast<std::uint64_t>(&context);
    const stack_t& alternate = context.uc_stack;
    const auto begin = reinterpret_cast<std::uint64_t>(alternate.ss_sp);
    if (alternate.ss_flags != 0 || frame - begin >= alternate.ss_size) return;
    alternate_ = &alternate;
    const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    kernel::call(__NR_sigaltstack, kernel::as_argument(&none));
  }
  AlternateStackPause& operator=(AlternateStackPause&&) = delete;
  ~AlternateStackPause() {
    if (alternate_ != nullptr) {
      kernel::call(__NR_sigaltstack, kernel::as_argument(alternate_));
    }
  }

 private:
  const stack_t* alternate_ = nullptr;
};

}  // namespace

Onward on_signal(siginfo_t& info, ucontext_t& context) noexcept {
  if (guarded::handle(info.si_signo, &info, &context)) return {};
  const int kept_errno = errno;
  const AlternateStackPause alternate_stack(context);
  Onward onward;
  // A signal sent by kill is never caused by an instruction.
  const Verdict verdict = info.si_code > 0 ? Execution(info, context).run() : Verdict::not_ours;
  if (verdict != Verdict::done) onward = deliver(info, context, verdict == Verdict::not_ours);
  errno = kept_errno;
  return onward;
}

}  // namespace headrace::emu
