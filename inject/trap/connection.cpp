// SPDX-License-Identifier: Apache-2.0
#include "inject/trap/connection.hpp"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <cerrno>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "emu/device/client.hpp"
#include "emu/operation/memory.hpp"
#include "inject/kernel.hpp"
#include "inject/trap/next.hpp"
#include "inject/trap/portals.hpp"
#include "inject/trap/process.hpp"
#include "inject/trap/signals.hpp"
#include "inject/trap/sites.hpp"
#include "inject/trap/stacks.hpp"

namespace headrace::emu {
namespace {

/// Process::connect_state. Zero in a new process.
enum Connect : std::uint32_t { kNone, kConnecting, kConnected, kFailed };

// Written once, before the program runs; a child made by fork keeps them.
constinit std::byte* registers_memory = nullptr;
constinit std::size_t registers_length = 0;
constinit bool refuses_mmap = false;
constinit bool forces_access = false;
constinit bool is_traced = false;

constexpr const char* kTracePath = "/dev/dsa-emulator/trace";

void say(std::string_view text) noexcept {
  constexpr long kStandardError = 2;
  kernel::call(__NR_write, kStandardError, kernel::as_argument(text.data()),
               static_cast<long>(text.size()));
}

void say(const Error& error, std::string_view consequence = {}) noexcept {
  say("headrace-dsa-trap: " + error.message() + std::string(consequence) + "\n");
}

/// Opens the file for each line: the program could close a descriptor that we kept, and reuse its
/// number.
void write_trace(const TraceEvent& event) noexcept {
  char line[kTraceLineMax + 1];
  std::size_t length = write_json(event, std::span(line).first(kTraceLineMax));
  line[length++] = '\n';
  const long file = kernel::call(__NR_openat, AT_FDCWD, kernel::as_argument(kTracePath),
                                 O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return;
  kernel::call(__NR_write, file, kernel::as_argument(line), static_cast<long>(length));
  kernel::call(__NR_close, file);
}

/// Nothing in a set-user-ID program: its environment belongs to a less privileged user.
std::string_view variable(char** environment, std::string_view name) {
  if (::getauxval(AT_SECURE) != 0) return {};
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry(*environment);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return {};
}

bool exists(const char* path) noexcept {
  return kernel::call(__NR_access, kernel::as_argument(path), 0) == 0;
}

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names of the ends of the section.
[[gnu::visibility("hidden")]] extern AnyNext __start_headrace_next[];
[[gnu::visibility("hidden")]] extern AnyNext __stop_headrace_next[];
// NOLINTEND(bugprone-reserved-identifier)
}

void find_next_functions() noexcept {
  for (AnyNext* each = __start_headrace_next; each != __stop_headrace_next; ++each) each->find();
}

/// Maps the registers and keeps no file open. False: not available.
bool map_registers(const char* path) noexcept {
  const long file =
      kernel::call(__NR_openat, AT_FDCWD, kernel::as_argument(path), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  struct stat status{};
  if (::fstat(static_cast<int>(file), &status) == 0 && status.st_size > 0) {
    registers_length = static_cast<std::size_t>(status.st_size);
    registers_memory =
        reinterpret_cast<std::byte*>(kernel::map(registers_length, MAP_SHARED, file));
  }
  kernel::call(__NR_close, file);
  return registers_memory != nullptr;
}

Client* connect() noexcept {
  ClientOptions options;
  if (is_traced) options.trace = write_trace;
  auto client =
      Client::attach({registers_memory, registers_length}, process_memory(), std::move(options));
  // Printed once per process: its submissions fail as on a WQ that is not enabled.
  constexpr std::string_view kConsequence =
      " (until this process is restarted, its ENQCMD are answered with retry and its MOVDIR64B "
      "are lost)";
  if (!client) {
    say(client.error(), kConsequence);
    return nullptr;
  }
  if (const auto started = (*client)->start(); !started) {
    say(started.error(), kConsequence);
    return nullptr;  // The destructor frees its place.
  }
  // Never destroyed: the program, and its threads, may end in any way at any time. The launcher
  // detects that the process is gone.
  return client->release();
}

/// Runs before every other library's constructor (-z initfirst) and before the C library's own, so
/// the environment comes from the arguments that the loader passes.
[[gnu::constructor, gnu::used]] void begin(int, char**, char** environment) {
  find_next_functions();
  // A seccomp filter set before exec.
  if (kernel::call(__NR_prctl, PR_GET_SECCOMP) != SECCOMP_MODE_DISABLED) keep_code();
  // The launcher's path; tests set another one.
  std::string_view path = variable(environment, "HEADRACE_EMULATOR_REGISTERS");
  if (path.empty()) path = "/dev/dsa-emulator/registers";
  if (!map_registers(path.data())) return;
  if (const auto opened = open_registers({registers_memory, registers_length}); !opened) {
    say(opened.error());
    kernel::call(__NR_munmap, kernel::as_argument(registers_memory),
                 static_cast<long>(registers_length));
    registers_memory = nullptr;
    return;
  }
  Client::begin_program({registers_memory, registers_length});
  const std::string_view portals = variable(environment, "HEADRACE_EMULATOR_PORTALS");
  if (!portals.empty()) set_portal_prefix(portals);
  refuses_mmap = variable(environment, "HEADRACE_EMULATOR_REFUSE_MMAP") == "1" ||
                 exists("/dev/dsa-emulator/refuse-mmap");
  forces_access = variable(environment, "HEADRACE_EMULATOR_FORCE_ACCESS") == "1" ||
                  exists("/dev/dsa-emulator/force-access");
  if (variable(environment, "HEADRACE_EMULATOR_KEEP_CODE") == "1") keep_code();
  is_traced = exists(kTracePath);
  wipe_process_at_fork();
  if (!reserve_stacks()) return;
  take_signals();
}

}  // namespace

bool emulated() noexcept {
  return signals_taken();
}

bool mmap_refused() noexcept {
  return refuses_mmap;
}

bool access_forced() noexcept {
  return forces_access;
}

Client* connection() noexcept {
  Process& self = process();
  // edge: trap-connection (acquire)
  if (Client* client = self.client.load_acquire(); client != nullptr) return client;
  const int kept_errno = errno;
  // A handler of this thread that submits meanwhile would wait for it forever.
  const kernel::SignalSet former = kernel::set_mask(kernel::kAllSignals);
  std::uint32_t state = kNone;
  // edge: trap-connection (acq_rel)
  while (!self.connect_state.compare_exchange_acq_rel(state, kConnecting) && state == kConnecting) {
    inject::sleep_while(self.connect_state, kConnecting);
    state = kNone;
  }
  if (state == kNone) {
    Client* made = connect();
    self.client.store_release(made);  // edge: trap-connection (release)
    // edge: trap-connection (release)
    self.connect_state.store_release(made == nullptr ? kFailed : kConnected);
    inject::wake_all(self.connect_state);
  }
  kernel::set_mask(former);
  errno = kept_errno;
  return self.client.load_acquire();  // edge: trap-connection (acquire)
}

bool submit(PortalName portal, const dsa::Descriptor& descriptor, dsa::QueueMode mode) noexcept {
  if (Client* client = connection()) {
    return client->submit(portal.device, portal.queue, descriptor, mode);
  }
  Client::refuse({registers_memory, registers_length}, portal.device, portal.queue, descriptor,
                 mode);
  return false;
}

}  // namespace headrace::emu
