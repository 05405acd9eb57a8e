// SPDX-License-Identifier: Apache-2.0
// Generated code and the memory that it lives in.
#include "headrace/copy/generated.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "generator.hpp"
#include "headrace/platform/executable.hpp"

namespace headrace::copy {
namespace {

/// Functions begin at lines, so that where others lie changes nothing.
std::size_t round_up_to_lines(std::size_t byte_count) {
  return (byte_count + kLineBytes - 1) / kLineBytes * kLineBytes;
}

}  // namespace

struct GeneratedCode::State {
  platform::ExecutablePages pages;
  std::vector<Move> moves;
  std::size_t code_bytes = 0;
};

Move libc_move() {
  return &std::memmove;
}

Result<GeneratedCode> GeneratedCode::make(std::span<const Variant> variants, Move fallback) {
  for (const Variant& variant : variants) {
    if (const auto valid = check(variant); !valid) return fail(valid.error());
    if (!can_run(variant)) {
      return fail(Code::unsupported, fmt::format("generate a copy '{}'", to_text(variant)),
                  detail::kHasGenerator ? "this processor lacks its instructions"
                                        : "this build generates no code",
                  "choose another");
    }
  }
  if (variants.empty()) return GeneratedCode(nullptr);
  // Written apart and brought together then, so that no page is mapped for what is not written.
  std::vector<std::byte> room(detail::kCodeBytesMax);
  std::vector<std::byte> code;
  std::vector<std::size_t> begins;
  for (const Variant& variant : variants) {
    // Code may be moved: jumps are relative, and the fallback's address is absolute.
    const std::size_t byte_count = detail::generate(variant, fallback, room);
    begins.push_back(code.size());
    code.insert(code.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(byte_count));
    code.resize(round_up_to_lines(code.size()));
  }
  auto pages = platform::ExecutablePages::make(code.size());
  if (!pages) return fail(std::move(pages.error()));
  std::memcpy(pages->bytes().data(), code.data(), code.size());
  if (const auto sealed = pages->seal(); !sealed) return fail(sealed.error());
  std::vector<Move> moves;
  for (const std::size_t begin : begins) {
    moves.push_back(reinterpret_cast<Move>(pages->bytes().data() + begin));
  }
  return GeneratedCode(std::make_unique<State>(
      State{.pages = std::move(*pages), .moves = std::move(moves), .code_bytes = code.size()}));
}

GeneratedCode::GeneratedCode(std::unique_ptr<State> state) : state_(std::move(state)) {}
GeneratedCode::GeneratedCode(GeneratedCode&& other) noexcept = default;
GeneratedCode& GeneratedCode::operator=(GeneratedCode&& other) noexcept = default;
GeneratedCode::~GeneratedCode() = default;

std::span<const Move> GeneratedCode::moves() const {
  return state_ != nullptr ? std::span<const Move>(state_->moves) : std::span<const Move>();
}

std::size_t GeneratedCode::code_bytes() const {
  return state_ != nullptr ? state_->code_bytes : 0;
}

}  // namespace headrace::copy
