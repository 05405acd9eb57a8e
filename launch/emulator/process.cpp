// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/process.hpp"

#include <signal.h>

#include <cerrno>
#include <cstdlib>
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

std::string status_field(const std::string& process, std::string_view name) {
  std::ifstream file("/proc/" + process + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return line.substr(line.find_first_not_of(" \t", name.size()));
  }
  return {};
}

std::int32_t process_of_thread(std::int32_t thread_id) {
  return std::atoi(status_field(std::to_string(thread_id), "Tgid:").c_str());
}

bool is_ending(std::int32_t thread_id) {
  if (::kill(thread_id, 0) != 0 && errno == ESRCH) return true;
  const auto mask = [thread = std::to_string(thread_id)](std::string_view name) {
    return std::strtoull(status_field(thread, name).c_str(), nullptr, 16);
  };
  const std::uint64_t harmless =
      kHarmlessSignals | mask("SigBlk:") | mask("SigIgn:") | mask("SigCgt:");
  return ((mask("SigPnd:") | mask("ShdPnd:")) & ~harmless) != 0;
}

}  // namespace headrace::emu
