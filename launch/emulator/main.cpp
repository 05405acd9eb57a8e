// SPDX-License-Identifier: Apache-2.0
// headrace-emulator: runs a command on emulated DSAs; the implementation of 'headrace emulate'.
// Exit codes: the command's; 1 if it could not be started, 2 for wrong use, 126 and 127 as of a
// shell.
#include <unistd.h>

#include <span>
#include <string>
#include <string_view>

#include "launch/child.hpp"
#include "launch/emulator/launch.hpp"
#include "launch/emulator/options.hpp"

namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

}  // namespace

int main(int argc, char** argv) {
  using namespace headrace;
  launch::occupy_closed_files();
  // For 'headrace top', which cannot parse registers.
  if (argc == 3 && std::string_view(argv[1]) == "--statistics-of") {
    const auto text = emu::statistics_of(argv[2]);
    if (!text) launch::complain(text.error().message());
    return text && ::write(STDOUT_FILENO, text->data(), text->size()) >= 0 ? 0 : kExitFailed;
  }
  const auto options =
      emu::parse_options(std::span(argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)));
  if (!options) {
    launch::complain(options.error().cause + "; see 'headrace emulate --help'");
    return kExitUsage;
  }
  if (options->help || options->version) {
    const std::string text = options->help ? emu::help_text() : "headrace " HEADRACE_VERSION "\n";
    return ::write(STDOUT_FILENO, text.data(), text.size()) < 0 ? kExitFailed : 0;
  }
  const auto ended = emu::launch_emulation(*options);
  if (!ended) {
    launch::complain(ended.error().message());
    ::_exit(kExitFailed);
  }
  launch::end_as(*ended);
}
