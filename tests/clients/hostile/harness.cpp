// SPDX-License-Identifier: Apache-2.0
// harness [VARIABLE=VALUE...] CMD...: runs CMD under the preload, with registers in a file and
// ordinary one-page files as portals, instead of the launcher's file system. One device: wq0.0
// shared with 16 entries, wq0.1 dedicated. Exits as CMD did, or with 1 and a message if CMD left an
// entry in use.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "emu/device/device.hpp"

namespace {

using namespace headrace;
using namespace headrace::emu;

[[noreturn]] void end(const std::string& why) {
  std::fprintf(stderr, "harness: %s\n", why.c_str());
  std::exit(1);
}

template <typename T>
T need(Result<T> result) {
  if (!result) end(result.error().message());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

DeviceConfig device() {
  DeviceConfig config = default_device(1, 1, 4, "hostile");
  config.queues[0].size = 16;
  config.queues[0].threshold = 16;
  config.queues[1].size = 16;
  return config;
}

}  // namespace

int main(int argc, char** argv) {
  ::alarm(300);  // Longer than any wait in a scenario.
  char directory[] = "/tmp/headrace-harness-XXXXXX";
  if (::mkdtemp(directory) == nullptr) end("no temporary directory");
  const std::filesystem::path root(directory);
  std::filesystem::create_directory(root / "dsa");
  for (const char* name : {"wq0.0", "wq0.1"}) {
    std::ofstream(root / "dsa" / name) << std::string(4096, '\0');
  }
  const std::string registers_path = root / "registers";
  const int file = ::open(registers_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const std::size_t byte_count = (registers_bytes() + 4095) / 4096 * 4096;
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(byte_count)) != 0) end("no registers");
  void* memory = ::mmap(nullptr, byte_count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  EmulatorConfig config;
  config.devices = {device()};
  if (std::getenv("HARNESS_DETERMINISTIC") != nullptr) {
    config.schedule = Schedule::deterministic;
    config.run_in_submission = true;
  }
  Control control = need(Control::create({static_cast<std::byte*>(memory), byte_count}, config));
  need(control.enable_device(DeviceId(0)));
  for (const std::uint32_t queue : {0U, 1U})
    need(control.enable_queue(DeviceId(0), QueueId(queue)));

  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("HEADRACE_EMULATOR_REGISTERS", registers_path.c_str(), 1);
    ::setenv("HEADRACE_EMULATOR_PORTALS", (root / "dsa").c_str(), 1);
    std::string preload = HEADRACE_TRAP;
    int first = 1;
    for (; first < argc && std::strchr(argv[first], '=') != nullptr; ++first) {
      std::string setting = argv[first];
      const std::size_t equals = setting.find('=');
      const std::string name = setting.substr(0, equals);
      if (name == "ALSO_PRELOAD") {
        preload += ":" + setting.substr(equals + 1);
      } else {
        ::setenv(name.c_str(), setting.substr(equals + 1).c_str(), 1);
      }
    }
    ::setenv("LD_PRELOAD", preload.c_str(), 1);
    ::execvp(argv[first], argv + first);
    ::_exit(127);
  }
  // As the launcher: releases entries of dead processes while others continue.
  pollfd watched{
      .fd = static_cast<int>(::syscall(SYS_pidfd_open, child, 0)), .events = POLLIN, .revents = 0};
  if (watched.fd < 0) end("the program cannot be watched");
  constexpr int kReapEveryMs = 20;
  do {
    control.reap();
  } while (::poll(&watched, 1, kReapEveryMs) == 0);
  ::close(watched.fd);
  int ended = 0;
  ::waitpid(child, &ended, 0);
  control.reap();
  const std::uint32_t left =
      control.occupancy(DeviceId(0), QueueId(0)) + control.occupancy(DeviceId(0), QueueId(1));
  std::filesystem::remove_all(root);
  if (left != 0) end(std::to_string(left) + " entries are still in use");
  if (WIFSIGNALED(ended)) end("ended by signal " + std::to_string(WTERMSIG(ended)));
  return WEXITSTATUS(ended);
}
