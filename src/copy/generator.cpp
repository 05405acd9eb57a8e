// SPDX-License-Identifier: Apache-2.0
// Generates the machine code of a variant, with Xbyak. Not a compiler: one template, with the
// variant as its parameters.
//
// The template; a turn is an iteration that prefetches:
//
//   up to two blocks, if the registers hold them: load all, store all
//   overlapping and short ranges: jump to the fallback
//   the first line, unaligned; then advance to the next line boundary of the target
//   pages:     while as many pages are left as there are streams: touch the next pages, copy the
//              same turn of each page
//   turns:     while a turn and its prefetches end before the last block: prefetch, copy blocks
//   blocks:    while more than a block is left: copy a block
//   the last block, unaligned; it may overlap bytes that the loop has written
//
// A string move has no blocks: each turn is one string move, and so is the rest.
//
// Registers: rax original target, the return value; rdi and rsi current position; rdx length; r8
// and r9 the last block of source and target; r10 and r11 ends of loops; data in rcx and rdx
// (word), mm0-mm7 or vector registers 0-15, or 16-31 if available, which need no vzeroupper. All
// are caller-saved in the System V ABI.
#include "generator.hpp"

// No exceptions: the assembler's errors are checked after each function.
#define XBYAK_NO_EXCEPTION
#include <xbyak/xbyak.h>

#include <algorithm>
#include <cstdint>

#include "headrace/base/check.hpp"
#include "headrace/platform/cpu.hpp"

// Displacements are signed, but the assembler takes std::size_t, and checks that they fit.
#pragma GCC diagnostic ignored "-Wsign-conversion"

namespace headrace::copy::detail {
namespace {

constexpr int kLine = static_cast<int>(kLineBytes);
constexpr int kPage = 4096;

class Writer : public Xbyak::CodeGenerator {
 public:
  Writer(const Variant& variant, Move fallback, std::span<std::byte> room)
      : Xbyak::CodeGenerator(room.size(), room.data()),
        variant_(variant),
        fallback_(fallback),
        block_bytes_(variant.block_line_count * kLine),
        high_registers_(platform::cpu_features().avx512) {}

  void write() {
    mov(rax, rdi);
    if (variant_.through == Register::rep_movsb || variant_.through == Register::rep_movsq) {
      write_string_move();
    } else {
      write_loops();
    }
    L(to_fallback_);
    mov(r11, reinterpret_cast<std::uintptr_t>(fallback_));
    jmp(r11);
  }

 private:
  [[nodiscard]] int register_bytes() const {
    switch (variant_.through) {
      case Register::ymm:
        return 32;
      case Register::zmm:
        return 64;
      case Register::xmm:
        return 16;
      default:
        return 8;
    }
  }
  /// Number of data registers; xmm uses only SSE encodings.
  [[nodiscard]] int register_count() const {
    switch (variant_.through) {
      case Register::word:
        return 2;
      case Register::mmx:
        return 8;
      default:
        return 16;
    }
  }
  [[nodiscard]] Xbyak::Reg64 word_register(int index) const { return index == 0 ? rcx : rdx; }
  [[nodiscard]] int vector_index(int index) const {
    return high_registers_ && variant_.through != Register::xmm ? 16 + index : index;
  }

  void load(int index, const Xbyak::Address& from) {
    switch (variant_.through) {
      case Register::mmx:
        return movq(Xbyak::Mmx(index), from);
      case Register::xmm:
        return movups(Xbyak::Xmm(index), from);
      case Register::ymm:
        return vmovups(Xbyak::Ymm(vector_index(index)), from);
      case Register::zmm:
        return vmovups(Xbyak::Zmm(vector_index(index)), from);
      default:
        return mov(word_register(index), from);
    }
  }

  void store(const Xbyak::Address& to, int index, bool nontemporal) {
    switch (variant_.through) {
      case Register::mmx:
        return nontemporal ? movntq(to, Xbyak::Mmx(index)) : movq(to, Xbyak::Mmx(index));
      case Register::xmm:
        return nontemporal ? movntps(to, Xbyak::Xmm(index)) : movups(to, Xbyak::Xmm(index));
      case Register::ymm:
        return nontemporal ? vmovntdq(to, Xbyak::Ymm(vector_index(index)))
                           : vmovups(to, Xbyak::Ymm(vector_index(index)));
      case Register::zmm:
        return nontemporal ? vmovntdq(to, Xbyak::Zmm(vector_index(index)))
                           : vmovups(to, Xbyak::Zmm(vector_index(index)));
      default:
        return nontemporal ? movnti(to, word_register(index)) : mov(to, word_register(index));
    }
  }

  /// Copies `byte_count` bytes from [source] to [target]; loads as much as the registers hold
  /// before storing it.
  void copy_piece(const Xbyak::RegExp& target, const Xbyak::RegExp& source, int byte_count,
                  bool nontemporal) {
    const int width = register_bytes();
    const int group_bytes = width * register_count();
    for (int begin = 0; begin < byte_count; begin += group_bytes) {
      const int end = std::min(begin + group_bytes, byte_count);
      for (int at = begin; at < end; at += width) {
        load((at - begin) / width, ptr[source + at]);
      }
      for (int at = begin; at < end; at += width) {
        store(ptr[target + at], (at - begin) / width, nontemporal);
      }
    }
  }

  void leave() {
    // Non-temporal stores may become visible after later stores. sfence orders them before the next
    // store of this thread, such as a completion flag.
    if (variant_.store_nontemporal) sfence();
    // MMX registers alias the x87 stack, which must be empty on return.
    if (variant_.through == Register::mmx) emms();
    const bool dirtied = variant_.through == Register::ymm || variant_.through == Register::zmm;
    if (dirtied && !high_registers_) vzeroupper();
    ret();
  }

  /// Jumps to the fallback if the ranges share a byte: target - source in (-length, length).
  void leave_if_overlapping() {
    mov(rcx, rdi);
    sub(rcx, rsi);
    lea(rcx, ptr[rcx + rdx - 1]);
    lea(r8, ptr[rdx + rdx - 1]);
    cmp(rcx, r8);
    jb(to_fallback_, T_NEAR);
  }

  /// Copies up to two blocks, with any overlap.
  void write_ends() {
    Xbyak::Label longer;
    const int count = block_bytes_ / register_bytes();
    cmp(rdx, 2 * block_bytes_);
    ja(longer, T_NEAR);
    cmp(rdx, block_bytes_);
    jb(to_fallback_, T_NEAR);
    for (int i = 0; i < count; ++i) {
      load(i, ptr[rsi + static_cast<std::size_t>(i * register_bytes())]);
    }
    for (int i = 0; i < count; ++i) {
      load(count + i, ptr[rsi + rdx + (i * register_bytes() - block_bytes_)]);
    }
    for (int i = 0; i < count; ++i) {
      store(ptr[rdi + static_cast<std::size_t>(i * register_bytes())], i, false);
    }
    for (int i = 0; i < count; ++i) {
      store(ptr[rdi + rdx + (i * register_bytes() - block_bytes_)], count + i, false);
    }
    if (high_registers_ || variant_.through == Register::xmm) {
      ret();
    } else {
      vzeroupper();
      ret();
    }
    L(longer);
  }

  void write_loops() {
    if (has_ends(variant_)) {
      write_ends();
    } else {
      cmp(rdx, 2 * block_bytes_);
      jbe(to_fallback_, T_NEAR);
    }
    leave_if_overlapping();
    // The loop ends before the last block.
    lea(r8, ptr[rsi + rdx - block_bytes_]);
    lea(r9, ptr[rdi + rdx - block_bytes_]);
    if (variant_.align != Align::none) {
      copy_piece(rdi, rsi, kLine, false);
      advance_to_line();
    }
    write_turns();
    copy_piece(r9, r8, block_bytes_, false);
    leave();
  }

  /// Advances to the next line boundary of the target.
  void advance_to_line() {
    mov(rcx, rdi);
    neg(rcx);
    and_(ecx, kLine - 1);
    add(rdi, rcx);
    add(rsi, rcx);
  }

  void prefetch(const Xbyak::Address& at) {
    switch (variant_.prefetch) {
      case Prefetch::none:
        return;
      case Prefetch::t0:
        return prefetcht0(at);
      case Prefetch::t1:
        return prefetcht1(at);
      case Prefetch::t2:
        return prefetcht2(at);
      case Prefetch::nta:
        return prefetchnta(at);
    }
  }

  /// Prefetches the lines of one turn, `offset` bytes from the current position.
  void prefetch_lines(int offset) {
    for (int i = 0; i < variant_.prefetch_line_count; ++i) {
      prefetch(ptr[rsi + (offset + i * kLine)]);
      if (variant_.prefetch_target) prefetchw(ptr[rdi + (offset + i * kLine)]);
    }
  }

  void step(int byte_count) {
    add(rdi, byte_count);
    add(rsi, byte_count);
  }

  void copy_block(int place) {
    copy_piece(rdi + place, rsi + place, block_bytes_, variant_.store_nontemporal);
  }

  void write_turns() {
    const int prefetch_bytes = variant_.prefetch_line_count * kLine;
    const int turn_bytes = std::max(block_bytes_, prefetch_bytes);
    const int distance_bytes = variant_.prefetch_distance_lines * kLine;
    if (variant_.stream_count > 1 || variant_.touch != Touch::none) {
      write_pages(turn_bytes, distance_bytes);
    }
    if (prefetch_bytes != 0) write_prefetching(turn_bytes, distance_bytes);
    write_blocks();
  }

  /// Prefetches a line of each page `offset` bytes from the current position.
  void touch_pages(int offset) {
    for (int stream = 0; stream < variant_.stream_count; ++stream) {
      const int place = offset + stream * kPage;
      if (variant_.touch == Touch::source || variant_.touch == Touch::both) {
        prefetcht0(ptr[rsi + place]);
      }
      if (variant_.touch == Touch::target || variant_.touch == Touch::both) {
        // Keep lines out of the caches that non-temporal stores will overwrite.
        variant_.store_nontemporal ? prefetchnta(ptr[rdi + place]) : prefetchw(ptr[rdi + place]);
      }
    }
  }

  /// Copies pages, interleaved if there are several streams, each a page after the one before. May
  /// touch up to a group of pages beyond the end: harmless, since prefetches do not fault.
  void write_pages(int turn_bytes, int distance_bytes) {
    const int group_bytes = variant_.stream_count * kPage;
    Xbyak::Label group;
    Xbyak::Label turn;
    Xbyak::Label done;
    // Add to the position: subtracting from the end could wrap below address zero.
    lea(r10, ptr[rdi + group_bytes]);
    cmp(r10, r9);
    ja(done, T_NEAR);
    align(16);
    L(group);
    touch_pages(group_bytes);
    lea(r11, ptr[rdi + kPage]);
    align(kLine);
    L(turn);
    for (int stream = 0; stream < variant_.stream_count; ++stream) {
      if (variant_.prefetch_line_count != 0) prefetch_lines(stream * kPage + distance_bytes);
    }
    for (int at = 0; at < turn_bytes; at += block_bytes_) {
      for (int stream = 0; stream < variant_.stream_count; ++stream) {
        copy_block(stream * kPage + at);
      }
    }
    step(turn_bytes);
    cmp(rdi, r11);
    jb(turn, T_NEAR);
    if (group_bytes != kPage) step(group_bytes - kPage);
    lea(r10, ptr[rdi + group_bytes]);
    cmp(r10, r9);
    jbe(group, T_NEAR);
    L(done);
  }

  /// Turns that prefetch, while the prefetched lines are within the copy.
  void write_prefetching(int turn_bytes, int distance_bytes) {
    Xbyak::Label turn;
    Xbyak::Label done;
    const int reach_bytes = turn_bytes + distance_bytes;
    const auto leave_unless_in_reach = [&] {
      lea(r10, ptr[rdi + reach_bytes]);
      cmp(r10, r9);
    };
    leave_unless_in_reach();
    ja(done, T_NEAR);
    align(kLine);
    L(turn);
    prefetch_lines(distance_bytes);
    for (int at = 0; at < turn_bytes; at += block_bytes_) copy_block(at);
    step(turn_bytes);
    leave_unless_in_reach();
    jbe(turn, T_NEAR);
    L(done);
  }

  /// Aligns every block loop to a line: a short loop that straddles two lines, as it may after the
  /// code of other classes, takes a tenth longer.
  void write_blocks() {
    Xbyak::Label block;
    Xbyak::Label done;
    cmp(rdi, r9);
    jae(done, T_NEAR);
    align(kLine);
    L(block);
    copy_block(0);
    step(block_bytes_);
    cmp(rdi, r9);
    jb(block, T_NEAR);
    L(done);
  }

  /// String moves, one per turn, while the prefetched lines are within the copy. Leaves the
  /// remaining byte count in rcx.
  void write_string_turns() {
    Xbyak::Label turn;
    Xbyak::Label done;
    const int turn_bytes = variant_.prefetch_line_count * kLine;
    const int distance_bytes = variant_.prefetch_distance_lines * kLine;
    const bool by_words = variant_.through == Register::rep_movsq;
    mov(r10, rcx);
    cmp(r10, turn_bytes + distance_bytes);
    jb(done, T_NEAR);
    align(16);
    L(turn);
    prefetch_lines(distance_bytes);
    mov(ecx, by_words ? turn_bytes / 8 : turn_bytes);
    rep();
    by_words ? movsq() : movsb();
    sub(r10, turn_bytes);
    cmp(r10, turn_bytes + distance_bytes);
    jae(turn, T_NEAR);
    L(done);
    mov(rcx, r10);
  }

  void write_string_move() {
    const bool by_words = variant_.through == Register::rep_movsq;
    if (loop_bytes_min(variant_) > 1) {
      cmp(rdx, static_cast<std::uint32_t>(loop_bytes_min(variant_)));
      jb(to_fallback_, T_NEAR);
    } else {
      test(rdx, rdx);
      jz(to_fallback_, T_NEAR);
    }
    leave_if_overlapping();
    if (by_words) {
      lea(r8, ptr[rsi + rdx - 8]);
      lea(r9, ptr[rdi + rdx - 8]);
    }
    mov(rcx, rdx);
    if (variant_.align != Align::none) {
      lea(r10, ptr[rdi + rdx]);
      for (int at = 0; at < kLine; at += 16) movups(Xbyak::Xmm(at / 16), ptr[rsi + at]);
      for (int at = 0; at < kLine; at += 16) movups(ptr[rdi + at], Xbyak::Xmm(at / 16));
      advance_to_line();
      mov(rcx, r10);
      sub(rcx, rdi);
    }
    if (variant_.prefetch_line_count != 0) write_string_turns();
    if (by_words) {
      shr(rcx, 3);
      rep();
      movsq();
      mov(rcx, ptr[r8]);
      mov(ptr[r9], rcx);
    } else {
      rep();
      movsb();
    }
    ret();
  }

 public:
  static bool has_ends(const Variant& variant) {
    if (variant.store_nontemporal) return false;
    switch (variant.through) {
      case Register::xmm:
        return variant.block_line_count <= 2;
      case Register::ymm:
        return variant.block_line_count <= 4;
      case Register::zmm:
        return variant.block_line_count <= 8;
      default:
        return false;
    }
  }

 private:
  Variant variant_;
  Move fallback_;
  int block_bytes_;
  bool high_registers_;
  Xbyak::Label to_fallback_;
};

class ProbeWriter : public Xbyak::CodeGenerator {
 public:
  explicit ProbeWriter(std::span<std::byte> room)
      : Xbyak::CodeGenerator(room.size(), room.data()) {}

  /// Saves rdx, which rdtsc overwrites, in r9.
  void write(const ColdProbe& probe, Move warm, Move cold) {
    Xbyak::Label to_warm;
    cmp(rdx, kPage);
    jb(to_warm, T_NEAR);
    mov(r9, rdx);
    // The middle is representative: headers are written and reads stop at the ends.
    mov(r8, rdx);
    shr(r8, 1);
    for (const Xbyak::Reg64& side : {rdi, rsi}) {
      // Costs 15 of the 37 ns that the probe adds to a hot copy. Without it a caller's store that
      // misses the TLB makes most hot copies look cold.
      lfence();
      rdtsc();
      mov(r10d, eax);
      movzx(ecx, byte[side + r8]);
      lfence();
      rdtsc();
      mov(rdx, r9);
      sub(eax, r10d);
      sub(eax, probe.ticks_min);
      cmp(eax, probe.ticks_max - probe.ticks_min);
      jae(to_warm, T_NEAR);
    }
    mov(r11, reinterpret_cast<std::uintptr_t>(cold));
    jmp(r11);
    L(to_warm);
    mov(r11, reinterpret_cast<std::uintptr_t>(warm));
    jmp(r11);
  }
};

}  // namespace

void check_written() {
  const int problem = Xbyak::GetError();
  HEADRACE_CHECK(problem == Xbyak::ERR_NONE, "a valid variant can be written", problem,
                 Xbyak::ConvertErrorToString(problem));
}

bool has_ends(const Variant& variant) {
  return Writer::has_ends(variant);
}

std::size_t loop_bytes_min(const Variant& variant) {
  if (variant.through == Register::rep_movsb && variant.align == Align::none) return 1;
  if (variant.through == Register::rep_movsb || variant.through == Register::rep_movsq) {
    return 2 * kLineBytes;
  }
  const std::size_t block_bytes = variant.block_line_count * kLineBytes;
  return Writer::has_ends(variant) ? block_bytes : 2 * block_bytes + 1;
}

std::size_t generate(const Variant& variant, Move fallback, std::span<std::byte> room) {
  Xbyak::ClearError();
  Writer writer(variant, fallback, room);
  writer.write();
  check_written();
  return writer.getSize();
}

void generate_probe(const ColdProbe& probe, Move warm, Move cold, std::span<std::byte> room) {
  Xbyak::ClearError();
  ProbeWriter writer(room);
  writer.write(probe, warm, cold);
  check_written();
}

void generate_guard(Move other, std::span<std::byte> room) {
  Xbyak::ClearError();
  Xbyak::CodeGenerator code(kLine, room.data());
  code.lea(code.ecx, code.ptr[code.rdi - 1]);
  code.sub(code.ecx, code.esi);
  code.test(code.ecx, kPage - 32);
  code.jz(static_cast<const void*>(room.data() + kLine));
  code.mov(code.r11, reinterpret_cast<std::uintptr_t>(other));
  code.jmp(code.r11);
  check_written();
}

}  // namespace headrace::copy::detail
