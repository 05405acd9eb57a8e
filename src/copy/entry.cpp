// SPDX-License-Identifier: Apache-2.0
// Generates the machine code of an entry: compares of the length, inline copies or fills, and
// jumps. Not for copies with a loop (generator.cpp).
//
// Registers: rax return value; rdi, rsi and rdx arguments; rcx and rsi, or vector registers 0-15,
// or 16-31 if available, which need no vzeroupper, hold data; r11 a far target. Fills use 0.
#include "generator.hpp"

// No exceptions: the assembler's errors are checked after each function.
#define XBYAK_NO_EXCEPTION
#include <xbyak/xbyak.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cstdint>
#include <utility>
#include <vector>

#include "headrace/platform/cpu.hpp"

// Displacements are signed, but the assembler takes std::size_t, and checks that they fit.
#pragma GCC diagnostic ignored "-Wsign-conversion"

namespace headrace::copy::detail {
namespace {

/// Range of a near jump, less the longest code.
constexpr std::uintptr_t kReachBytes = (std::uintptr_t{1} << 31U) - (std::uintptr_t{1} << 16U);

/// Lengths that an entry treats alike.
struct Leaf {
  std::size_t bytes_max = 0;
  /// The function that serves them; null if they are copied inline ...
  Move move = nullptr;
  /// ... by a head and a tail of this many bytes, through registers of this many.
  int end_bytes = 0;
  int register_bytes = 0;
  /// More compares than this on the way here would make the call longer than the C library's (a
  /// copy of the profile's) or longer by four instructions (others).
  int compares_max = 0;
  /// Share of calls, roughly: programs mostly copy a few words. More where the C library is
  /// shortest.
  int weight = 1;
};

/// The order of the compares: a tree over the leaves in which no leaf lies deeper than it should,
/// if possible, and which makes few compares and taken jumps on average.
class Plan {
 public:
  explicit Plan(std::span<const Leaf> leaves)
      : leaves_(leaves), best_(leaves.size() * leaves.size() * kDepthMax) {}

  struct Split {
    std::size_t last_left = 0;  ///< The last leaf of the shorter half.
    bool jumps_right = false;  ///< The longer half is behind a taken jump; else the shorter one is.
  };
  /// Of the leaves [first, last] at this depth.
  [[nodiscard]] Split split(std::size_t first, std::size_t last, std::size_t depth) {
    return best(first, last, depth).split;
  }

 private:
  static constexpr std::size_t kDepthMax = 12;
  static constexpr int kTooDeep = 1000;
  /// A taken jump costs as much time as this many compares.
  static constexpr int kTaken = 4;
  struct Best {
    int cost = -1;
    int weight = 0;
    Split split = {};
  };

  Best best(std::size_t first, std::size_t last, std::size_t depth) {
    if (first == last) {
      const Leaf& leaf = leaves_[first];
      const int compares = static_cast<int>(depth);
      const int too_deep = std::max(0, compares - leaf.compares_max);
      return {.cost = leaf.weight * compares + kTooDeep * too_deep, .weight = leaf.weight};
    }
    if (depth + 1 == kDepthMax) return {.cost = kTooDeep * kTooDeep, .split = {.last_left = first}};
    Best& found = best_[(first * leaves_.size() + last) * kDepthMax + depth];
    if (found.cost >= 0) return found;
    Best least{.cost = INT_MAX};
    for (std::size_t i = first; i < last; ++i) {
      const Best left = best(first, i, depth + 1);
      const Best right = best(i + 1, last, depth + 1);
      const int cost = left.cost + right.cost + kTaken * std::min(left.weight, right.weight);
      if (cost >= least.cost) continue;
      least = {.cost = cost,
               .weight = left.weight + right.weight,
               .split = {.last_left = i, .jumps_right = right.weight <= left.weight}};
    }
    return found = least;
  }

  std::span<const Leaf> leaves_;
  std::vector<Best> best_;
};

/// What is made inline in place of the C library's: through registers of at most so many bytes, up
/// to so many bytes.
struct Own {
  int register_bytes_max = 0;
  std::size_t bytes_max = 0;
};
/// The C library copies through registers of 64 bytes, if there are any, except on processors of
/// Intel's that run slower for them: those without AVX-VNNI (its init_cpu_features()).
bool has_wide_copies() {
  const platform::CpuFeatures& features = platform::cpu_features();
  return features.avx512 &&
         (features.avx_vnni || platform::cpu_identity().vendor != "GenuineIntel");
}
/// Up to so many bytes, and from half of them on, the C library takes no jump: two of its
/// registers.
int straight_bytes() {
  return has_wide_copies() ? 128 : 64;
}
Own own_copies() {
  if (has_wide_copies()) return {.register_bytes_max = 64, .bytes_max = 512};
  if (platform::cpu_features().avx2) return {.register_bytes_max = 32, .bytes_max = 512};
  return {.register_bytes_max = 16, .bytes_max = 128};
}
/// Broadcasting a byte needs AVX2.
Own own_fills() {
  if (!platform::cpu_features().avx2) return {};
  return {.register_bytes_max = 32, .bytes_max = 256};
}

/// The longest copy that any registers hold.
constexpr std::size_t kInlineBytesMax = 1024;

/// Compares that leave an inline copy of up to `bytes_max` bytes as short as the C library's, by
/// callgrind.
constexpr int own_compares(int bytes_max) {
  if (bytes_max > 64) return 5;
  return bytes_max > 16 ? 2 : bytes_max > 8 ? 3 : 4;
}
/// A compare and its jump are two instructions: a call that stays with the C library is at most
/// four longer. From a page on it may be longer, so that a short one meets fewer compares.
constexpr int kStayingCompares = 2;
constexpr std::size_t kPageBytes = 4096;
constexpr int kAnyCompares = 99;

/// The register of a variant that is a head and a tail for all lengths in (bytes_max / 2,
/// bytes_max]; 0 if it is not.
int register_of_ends(const Variant& variant, std::size_t bytes_max) {
  const bool straight =
      has_ends(variant) && 2 * kLineBytes * variant.block_line_count == std::bit_ceil(bytes_max);
  if (!straight) return 0;
  return variant.through == Register::zmm ? 64 : variant.through == Register::ymm ? 32 : 16;
}

/// Where they end; as in the C library, with 64-byte registers 64 bytes are copied as 65 to 128
/// are.
std::vector<std::size_t> ends_of(const Own& own) {
  if (own.bytes_max == 0) return {};
  std::vector<std::size_t> ends{3, 7, 15, 31};
  ends.push_back(own.register_bytes_max == 64 ? 63 : 64);
  for (std::size_t end = 128; end <= own.bytes_max; end *= 2) ends.push_back(end);
  // With a head and a tail of 256 bytes, 257 to 384 would take longer than in the C library.
  if (own.bytes_max == 512 && own.register_bytes_max == 32) ends.push_back(384);
  return ends;
}

std::vector<Leaf> leaves_of(std::span<const Range> ranges, Move fallback, const Own& own) {
  std::vector<std::size_t> ends = ends_of(own);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const bool stays_next = i + 1 == ranges.size() || ranges[i + 1].move == nullptr;
    if (ranges[i].move != nullptr || !stays_next) ends.push_back(ranges[i].bytes_max);
  }
  ends.push_back(SIZE_MAX);
  std::ranges::sort(ends);
  ends.erase(std::ranges::unique(ends).begin(), ends.end());
  std::vector<Leaf> leaves;
  auto range = ranges.begin();
  std::size_t begin = 0;
  const int straight = straight_bytes();
  for (const std::size_t end : ends) {
    while (range != ranges.end() && range->bytes_max < end) ++range;
    const bool stays = range == ranges.end() || range->move == nullptr;
    const int whole = end <= 3 || end > kInlineBytesMax ? 0 : static_cast<int>(std::bit_ceil(end));
    const int ends_by = !stays && range->variant ? register_of_ends(*range->variant, end) : 0;
    // A head and a tail of half of the longest.
    const int longest = whole != 0 && end % kLineBytes == 0 ? static_cast<int>(end) : whole;
    Leaf leaf{.bytes_max = end, .end_bytes = longest / 2, .compares_max = kAnyCompares};
    // To eight of its registers the C library takes one jump less than to four.
    const bool is_near = whole == 8 * own.register_bytes_max;
    const int weight = whole == straight ? 64 : is_near ? 16 : 3;
    if (stays && end <= own.bytes_max) {
      leaf.register_bytes = std::min(leaf.end_bytes, own.register_bytes_max);
      leaf.compares_max = own_compares(whole) + kStayingCompares;
      leaf.weight = std::max(weight, whole <= 64 ? 4 : 3);
    } else if (ends_by != 0) {
      leaf.register_bytes = ends_by;
      if (whole <= 256) leaf.compares_max = own_compares(whole);
      leaf.weight = weight;
    } else {
      leaf.move = stays ? fallback : range->move;
    }
    // The leaf before may be one with this one.
    const bool alike =
        !leaves.empty() && leaves.back().move == leaf.move &&
        (leaf.move != nullptr || (begin != 0 && leaves.back().end_bytes == leaf.end_bytes));
    begin = alike ? begin : leaves.empty() ? 0 : leaves.back().bytes_max + 1;
    if (alike) leaves.pop_back();
    if (leaf.move == fallback && begin < kPageBytes) leaf.compares_max = kStayingCompares;
    leaves.push_back(leaf);
  }
  return leaves;
}

/// Writes a tree of compares whose leaves are inline copies or fills, and jumps to functions. A
/// jump has its target in itself: nothing is loaded before the bytes.
class EntryWriter : public Xbyak::CodeGenerator {
 public:
  EntryWriter(std::vector<Leaf> leaves, std::span<std::byte> room, std::uintptr_t place,
              bool fills = false)
      : Xbyak::CodeGenerator(room.size(), room.data()),
        fills_(fills),
        leaves_(std::move(leaves)),
        plan_(leaves_),
        moved_by_(reinterpret_cast<std::uintptr_t>(room.data()) - place),
        place_(place),
        high_registers_(platform::cpu_features().avx512),
        far_(leaves_.size()) {}

  void write() {
    write_tree(0, leaves_.size() - 1, 0);
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      if (leaves_[i].move == nullptr || is_in_reach(leaves_[i])) continue;
      L(far_[i]);
      mov(r11, reinterpret_cast<std::uintptr_t>(leaves_[i].move));
      jmp(r11);
    }
  }

 private:
  [[nodiscard]] bool is_in_reach(const Leaf& leaf) const {
    const auto to = reinterpret_cast<std::uintptr_t>(leaf.move);
    return std::max(place_, to) - std::min(place_, to) < kReachBytes;
  }
  /// The target as seen from the room, where the code is written before it is moved.
  [[nodiscard]] const void* target(const Leaf& leaf) const {
    return reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(leaf.move) + moved_by_);
  }

  void write_tree(std::size_t first, std::size_t last, std::size_t depth) {
    if (first == last) return write_leaf(first);
    const Plan::Split planned = plan_.split(first, last, depth);
    const std::size_t split = planned.last_left;
    const std::size_t bytes_max = leaves_[split].bytes_max;
    if (bytes_max <= INT32_MAX) {
      cmp(rdx, static_cast<std::uint32_t>(bytes_max));
    } else {
      mov(rcx, bytes_max);
      cmp(rdx, rcx);
    }
    // What is only a jump needs no other one; of two, the one that has a limit.
    const bool jumps_left = split == first && leaves_[first].move != nullptr;
    const bool first_is_limited = jumps_left && leaves_[first].compares_max != kAnyCompares;
    if (split + 1 == last && leaves_[last].move != nullptr && !first_is_limited) {
      is_in_reach(leaves_[last]) ? ja(target(leaves_[last])) : ja(far_[last], T_NEAR);
      return write_tree(first, split, depth + 1);
    }
    if (jumps_left) {
      is_in_reach(leaves_[first]) ? jbe(target(leaves_[first])) : jbe(far_[first], T_NEAR);
      return write_tree(split + 1, last, depth + 1);
    }
    Xbyak::Label other;
    planned.jumps_right ? ja(other, T_NEAR) : jbe(other, T_NEAR);
    const auto write_left = [&] { write_tree(first, split, depth + 1); };
    const auto write_right = [&] { write_tree(split + 1, last, depth + 1); };
    planned.jumps_right ? write_left() : write_right();
    align(kLineBytes);
    L(other);
    planned.jumps_right ? write_right() : write_left();
  }

  /// rcx, and rsi, which the second load may overwrite.
  [[nodiscard]] Xbyak::Reg general(int index, int width) const {
    if (width == 8) return index == 0 ? rcx : rsi;
    return index == 0 ? ecx : esi;
  }
  /// Upper registers, if available, need no vzeroupper.
  [[nodiscard]] Xbyak::Xmm vector(int index, int width) const {
    const int number = high_registers_ ? 16 + index : index;
    if (width == 32) return Xbyak::Ymm(number);
    return Xbyak::Zmm(number);
  }

  void write_leaf(std::size_t index) {
    const Leaf& leaf = leaves_[index];
    if (leaf.move != nullptr) {
      is_in_reach(leaf) ? jmp(target(leaf)) : jmp(far_[index], T_NEAR);
      return;
    }
    mov(rax, rdi);
    if (fills_) return write_fill(leaf);
    if (leaf.end_bytes == 0) return write_shortest();
    const int width = leaf.register_bytes;
    const int count = leaf.end_bytes / width;
    const auto load = [&](int number, const Xbyak::Address& from) {
      if (width <= 8) return mov(general(number, width), from);
      width == 16 ? movups(Xbyak::Xmm(number), from) : vmovups(vector(number, width), from);
    };
    const auto store = [&](const Xbyak::Address& to, int number) {
      if (width <= 8) return mov(to, general(number, width));
      width == 16 ? movups(to, Xbyak::Xmm(number)) : vmovups(to, vector(number, width));
    };
    for (int i = 0; i < count; ++i) load(i, ptr[rsi + static_cast<std::size_t>(i * width)]);
    for (int i = 0; i < count; ++i) load(count + i, ptr[rsi + rdx + (i * width - leaf.end_bytes)]);
    for (int i = 0; i < count; ++i) store(ptr[rdi + static_cast<std::size_t>(i * width)], i);
    for (int i = 0; i < count; ++i) {
      store(ptr[rdi + rdx + (i * width - leaf.end_bytes)], count + i);
    }
    if (width > 16 && !high_registers_) vzeroupper();
    ret();
  }

  void write_fill(const Leaf& leaf) {
    const int width = leaf.register_bytes;
    if (leaf.end_bytes == 0) {  // Up to 3 bytes: the first and the last two.
      Xbyak::Label done;
      cmp(edx, 1);
      jb(done);
      mov(byte[rdi], sil);
      je(done);
      mov(byte[rdi + rdx - 1], sil);
      mov(byte[rdi + rdx - 2], sil);
      L(done);
      return ret();
    }
    if (width < 8) {
      movzx(ecx, sil);
      imul(ecx, ecx, 0x01010101);
    } else {
      vmovd(Xbyak::Xmm(0), esi);
      width <= 16 ? vpbroadcastb(Xbyak::Xmm(0), Xbyak::Xmm(0))
                  : vpbroadcastb(Xbyak::Ymm(0), Xbyak::Xmm(0));
    }
    const auto store = [&](const Xbyak::RegExp& to) {
      if (width == 2) return mov(ptr[to], cx);
      if (width == 4) return mov(ptr[to], ecx);
      if (width == 8) return vmovq(ptr[to], Xbyak::Xmm(0));
      width == 16 ? vmovups(ptr[to], Xbyak::Xmm(0)) : vmovups(ptr[to], Xbyak::Ymm(0));
    };
    for (int i = 0; i < leaf.end_bytes; i += width) store(rdi + static_cast<std::size_t>(i));
    for (int i = 0; i < leaf.end_bytes; i += width) store(rdi + rdx + (i - leaf.end_bytes));
    if (width == 32) vzeroupper();
    ret();
  }

  /// Up to 3 bytes.
  void write_shortest() {
    Xbyak::Label done;
    Xbyak::Label one;
    cmp(edx, 1);
    jb(done);
    movzx(ecx, byte[rsi]);
    je(one);
    movzx(esi, word[rsi + rdx - 2]);
    mov(word[rdi + rdx - 2], si);
    L(one);
    mov(byte[rdi], cl);
    L(done);
    ret();
  }

  bool fills_;
  std::vector<Leaf> leaves_;
  Plan plan_;
  std::uintptr_t moved_by_;
  std::uintptr_t place_;
  bool high_registers_;
  std::vector<Xbyak::Label> far_;
};

}  // namespace

std::size_t generate_entry(std::span<const Range> ranges, Move fallback, std::span<std::byte> room,
                           std::uintptr_t place) {
  Xbyak::ClearError();
  EntryWriter writer(leaves_of(ranges, fallback, own_copies()), room, place);
  writer.write();
  check_written();
  return writer.getSize();
}

namespace {

/// Only its address is used.
Move as_move(const void* function) {
  // NOLINTNEXTLINE(bugprone-casting-through-void)
  return reinterpret_cast<Move>(const_cast<void*>(function));
}

}  // namespace

void generate_fill_entry(const void* libc, const void* longer, std::size_t bytes_min,
                         std::span<std::byte> room, std::uintptr_t place) {
  Xbyak::ClearError();
  std::vector<Range> ranges{{.bytes_max = bytes_min - 1}};
  if (bytes_min != SIZE_MAX) ranges.push_back({.bytes_max = SIZE_MAX, .move = as_move(longer)});
  EntryWriter(leaves_of(ranges, as_move(libc), own_fills()), room, place, true).write();
  check_written();
}

void generate_jumps(const void* shorter, const void* longer, std::size_t bytes_min,
                    std::span<std::byte> room, std::uintptr_t place) {
  Xbyak::ClearError();
  std::vector<Leaf> leaves{{.bytes_max = bytes_min - 1, .move = as_move(shorter)}};
  if (bytes_min != SIZE_MAX) leaves.push_back({.bytes_max = SIZE_MAX, .move = as_move(longer)});
  EntryWriter(std::move(leaves), room, place).write();
  check_written();
}

}  // namespace headrace::copy::detail
