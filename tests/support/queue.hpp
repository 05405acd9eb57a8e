// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of message queues: unwrapping results, messages, child processes.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "headrace/message/queue.hpp"

namespace headrace::test {

/// Returns the value; aborts with the error's message if `result` failed.
template <typename T>
T must(Result<T> result) {
  if (!result.has_value()) {
    std::fprintf(stderr, "%s\n", result.error().message().c_str());
    std::abort();
  }
  return std::move(*result);
}

inline std::vector<std::byte> bytes_of(std::uint64_t number, std::size_t byte_count) {
  std::vector<std::byte> bytes(byte_count);
  for (std::size_t i = 0; i < byte_count; ++i) {
    bytes[i] = static_cast<std::byte>(number * 131 + i * 7 + 1);
  }
  return bytes;
}

inline std::span<const std::byte> as_message(const std::uint64_t& number) {
  return std::as_bytes(std::span(&number, 1));
}

/// Runs `work` in a forked child, which exits with the value returned.
template <typename Work>
pid_t in_child(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  return child;
}

/// Waits for the child and returns its wait status.
inline int status_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
  }
  return status;
}

}  // namespace headrace::test
