// SPDX-License-Identifier: Apache-2.0
// Whether the loader loads an injected library into a program, judged by its ELF header.
#pragma once

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace headrace::inject {

/// Why not; empty if it does, or if unknown. `read` is bool(std::uint64_t offset, void* into,
/// std::size_t byte_count); false if the file is too short.
template <typename Read>
std::string_view why_unreachable(Read read) noexcept {
  Elf64_Ehdr header;
  if (!read(0, &header, sizeof header)) return "its ELF header is truncated";
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) {
    return "it is not a 64-bit x86 program";
  }
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!read(header.e_phoff + i * header.e_phentsize, &segment, sizeof segment)) return {};
    if (segment.p_type != PT_INTERP) continue;
    char loader[256];
    const std::size_t length = std::min<std::uint64_t>(segment.p_filesz, sizeof loader);
    if (!read(segment.p_offset, loader, length)) return {};
    const bool is_glibc =
        std::string_view(loader, length).find("ld-linux") != std::string_view::npos;
    return is_glibc ? std::string_view() : "its loader is not glibc's";
  }
  return "it is statically linked";
}

/// What can be done about it.
inline constexpr std::string_view kReachRemedy =
    "build it for x86-64 and glibc, dynamically linked";

}  // namespace headrace::inject
