// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/process.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>

namespace headrace::emu {
namespace {

constexpr std::uint64_t bits_of(std::initializer_list<int> signals) {
  std::uint64_t bits = 0;
  for (const int number : signals) bits |= std::uint64_t{1} << (number - 1);
  return bits;
}
/// Signals whose default action does not end a process.
constexpr std::uint64_t kHarmlessSignals =
    bits_of({SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU});

}  // namespace

void close_file(int file) noexcept {
  if (file >= 0) ::close(file);
}

std::int32_t process_of_thread(std::int32_t thread_id) {
  std::ifstream status("/proc/" + std::to_string(thread_id) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("Tgid:")) return std::stoi(line.substr(5));
  }
  return 0;
}

bool is_ending(std::int32_t thread_id) {
  std::ifstream status("/proc/" + std::to_string(thread_id) + "/status");
  if (!status) return ::kill(thread_id, 0) != 0 && errno == ESRCH;
  std::uint64_t pending = 0;
  std::uint64_t harmless = kHarmlessSignals;
  std::string line;
  while (std::getline(status, line)) {
    const auto mask = [&line](std::string_view name, std::uint64_t& into) {
      if (!line.starts_with(name)) return;
      const char* end = line.data() + line.size();
      std::uint64_t bits = 0;
      // "SigPnd:", a tab, hexadecimal digits.
      std::from_chars(line.data() + name.size() + 1, end, bits, 16);
      into |= bits;
    };
    mask("SigPnd:", pending);
    mask("ShdPnd:", pending);
    mask("SigBlk:", harmless);
    mask("SigIgn:", harmless);
    mask("SigCgt:", harmless);
  }
  return (pending & ~harmless) != 0;
}

}  // namespace headrace::emu
