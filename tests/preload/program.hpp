// SPDX-License-Identifier: Apache-2.0
// Runs another program, and keeps how it ended and what it printed.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace headrace::preload {

using Environment = std::vector<std::pair<std::string, std::string>>;

/// How a program ended, and what it printed on stdout and stderr.
struct Ending {
  int status = 0;
  std::string said;
  [[nodiscard]] int exit_code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }
  [[nodiscard]] int signal() const { return WIFSIGNALED(status) ? WTERMSIG(status) : 0; }
};

inline Ending run(const std::vector<std::string>& words, const Environment& environment) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {.status = -1, .said = "no pipe"};
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    ::unsetenv("LD_PRELOAD");
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::alarm(300);
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  Ending ending;
  std::array<char, 4096> chunk{};
  for (;;) {
    const ssize_t got = ::read(ends[0], chunk.data(), chunk.size());
    if (got <= 0) break;
    ending.said.append(chunk.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  ::waitpid(child, &ending.status, 0);
  return ending;
}

}  // namespace headrace::preload
