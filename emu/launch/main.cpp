// SPDX-License-Identifier: Apache-2.0
// headrace-emulator: runs a command on emulated DSAs; the front is 'headrace emulate'. Exit codes:
// the command's own; 1 if it could not be started, 2 for wrong use, 126 and 127 as of a shell.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <span>
#include <string>

#include "emu/launch/launch.hpp"
#include "emu/launch/options.hpp"
#include "emu/launch/runner.hpp"
#include "emu/launch/sandbox.hpp"

namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

/// Keeps our own files away from the numbers of the standard ones where the caller has closed
/// these; the command finds them closed again.
void occupy_closed_files() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (::fcntl(number, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR | O_CLOEXEC));
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace headrace;
  // The inner half, run by bubblewrap for a moment.
  if (argc == 3 && std::string(argv[1]) == "--hand-over") return emu::hand_over(std::atoi(argv[2]));
  occupy_closed_files();
  const auto options =
      emu::parse_options(std::span(argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)));
  if (!options) {
    emu::complain(options.error().cause + "; see 'headrace emulate --help'");
    return kExitUsage;
  }
  if (options->help) {
    const std::string text = emu::help_text();
    return ::write(STDOUT_FILENO, text.data(), text.size()) < 0 ? kExitFailed : 0;
  }
  const auto ended = emu::launch(*options);
  if (!ended) {
    emu::complain(ended.error().message());
    ::_exit(kExitFailed);
  }
  emu::end_as(*ended);
}
