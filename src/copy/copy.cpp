// SPDX-License-Identifier: Apache-2.0
// Names of the kernels, which of them run here, and the dispatch among them.
#include "headrace/copy/copy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "headrace/base/check.hpp"

namespace headrace::copy {
namespace {

constexpr std::array<std::string_view, kKernelCount> kNames = {
    "libc",
    "rep_movsb",
    "avx2_temporal",
    "avx2_nontemporal",
    "avx512_temporal",
    "avx512_nontemporal",
};
constexpr std::array<Kernel, 1> kAvailable = {Kernel::libc};

}  // namespace

std::string_view name(Kernel kernel) {
  const auto index = static_cast<std::size_t>(kernel);
  HEADRACE_CHECK(index < kNames.size(), "the kernel is one of the enumerators", index);
  return kNames[index];
}

Result<Kernel> parse_kernel(std::string_view text) {
  const auto* const found = std::ranges::find(kNames, text);
  if (found == kNames.end()) {
    return fail(Code::invalid_argument, fmt::format("choose the copy kernel '{}'", text),
                "there is no kernel of that name",
                fmt::format("use one of {}", fmt::join(kNames, ", ")));
  }
  return static_cast<Kernel>(found - kNames.begin());
}

std::span<const Kernel> available_kernels() {
  return kAvailable;
}

Kernel choose_kernel(std::size_t /*byte_count*/) {
  return Kernel::libc;
}

void copy_bytes(std::span<std::byte> target, std::span<const std::byte> source) {
  HEADRACE_CHECK(target.size() == source.size(), "source and target have the same length",
                 target.size(), source.size());
  if (source.empty()) return;  // The data of an empty span may be null, which memmove forbids.
  std::memmove(target.data(), source.data(), source.size());
}

void copy_bytes_with(Kernel kernel, std::span<std::byte> target,
                     std::span<const std::byte> source) {
  HEADRACE_CHECK(std::ranges::count(available_kernels(), kernel) == 1,
                 "the kernel is available on this machine", name(kernel));
  copy_bytes(target, source);
}

}  // namespace headrace::copy
