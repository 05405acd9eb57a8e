// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/launch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "emu/device/device.hpp"
#include "emu/device/faults.hpp"
#include "headrace/base/units.hpp"
#include "launch/child.hpp"
#include "launch/emulator/accel_config.hpp"
#include "launch/emulator/driver.hpp"
#include "launch/emulator/file_system.hpp"
#include "launch/emulator/namespace.hpp"
#include "launch/emulator/program.hpp"
#include "launch/emulator/remains.hpp"
#include "launch/emulator/report.hpp"
#include "launch/emulator/server.hpp"
#include "launch/output.hpp"

namespace headrace::emu {
namespace {

namespace fs = std::filesystem;
using launch::check_writable;
using launch::complain;
using launch::write_whole;

constexpr const char* kPreloadName = "libheadrace-dsa-trap.so";
constexpr std::size_t kTextBytesMax = 16U << 20U;

/// The emulated environment, prepared before anything starts.
struct Plan {
  EmulatorConfig config;
  std::vector<DeviceExtras> extras;
  std::vector<std::string> left_out;  ///< Ignored parts of the configuration, one sentence each.
  std::string preload_path;
  Program program;
};

Result<std::string> load_text(const std::string& option, const std::string& path) {
  const std::string tried = fmt::format("read '{}' ({})", path, option);
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return fail(Code::invalid_argument, tried, "it is a directory", "name a file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const bool absent = errno == ENOENT || errno == ENOTDIR;
    return fail(absent ? Code::not_found : Code::permission_denied, tried,
                absent ? "there is no such file" : "permission denied", "name another one");
  }
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (text.size() > kTextBytesMax) {
    return fail(Code::corrupt_data, tried, "it is longer than 16 MiB", "name the right file");
  }
  return text;
}

Result<std::string> find_preload(const Options& options) {
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error);
  const std::string tried = "find the library that catches a program's submissions";
  if (error) {
    return fail(Code::unsupported, tried, "/proc is not mounted", "mount -t proc proc /proc");
  }
  const std::string path = options.preload_path.value_or(own.parent_path() / kPreloadName);
  if (::access(path.c_str(), R_OK) != 0) {
    return fail(Code::not_found, tried, fmt::format("'{}' cannot be read", path),
                "reinstall Headrace, or name it with --preload");
  }
  return std::string(fs::canonical(path, error));
}

DeviceConfig make_device(const Options& options) {
  const bool shared = options.queues != QueueChoice::dedicated;
  const bool dedicated = options.queues != QueueChoice::shared;
  DeviceConfig device =
      default_device(shared ? 1 : 0, dedicated ? 1 : 0, options.engine_count.value_or(kEngineMax),
                     options.queue_name);
  std::uint32_t number = 0;
  for (QueueConfig& queue : device.queues) {
    if (queue.size == 0) continue;
    const bool kept_from_dpdk =
        options.queue_name.starts_with(kDpdkPrefix) && queue.mode == dsa::QueueMode::shared;
    queue.name = kept_from_dpdk ? "shared" : fmt::format("{}{}", options.queue_name, number++);
  }
  return device;
}

Result<Plan> make_plan(const Options& options) {
  Plan plan;
  plan.program = judge_program(options.command.front());
  if (plan.program.refusal.exit_code != 0) return plan;
  if (options.config_path) {
    HEADRACE_TAKE(text, load_text("--config", *options.config_path));
    HEADRACE_TAKE(parsed, parse_accel_config(*text, *options.config_path));
    const std::size_t count = parsed->devices.size();
    if (options.device_count && *options.device_count != count) {
      return fail(Code::invalid_argument,
                  fmt::format("emulate {}", counted(*options.device_count, "device")),
                  fmt::format("the configuration '{}' has {}", *options.config_path, count),
                  fmt::format("give --devices {}, or leave it out", count));
    }
    plan.left_out = std::move(parsed->left_out);
    plan.config.devices = std::move(parsed->devices);
    plan.extras = std::move(parsed->extras);
  } else {
    plan.config.devices.assign(options.device_count.value_or(1), make_device(options));
  }
  if (!options.device_nodes.empty() && options.device_nodes.size() != plan.config.devices.size()) {
    return fail(
        Code::invalid_argument, "place the devices on nodes",
        fmt::format("--device-nodes has {} for {}", counted(options.device_nodes.size(), "node"),
                    counted(plan.config.devices.size(), "device")),
        "give a node for each");
  }
  for (std::size_t d = 0; d < options.device_nodes.size(); ++d) {
    plan.config.devices[d].numa_node = options.device_nodes[d];
  }
  if (options.faults_path) {
    HEADRACE_TAKE(text, load_text("--faults", *options.faults_path));
    HEADRACE_TAKE(script, parse_fault_script(*text, *options.faults_path));
    plan.config.faults = *script;
    for (const std::string& sentence : faults_never_met(plan.config)) complain(sentence);
  }
  plan.config.pace = options.pace;
  if (options.seed) {
    plan.config.schedule = Schedule::deterministic;
    plan.config.run_in_submission = true;
    plan.config.seed = *options.seed;
  }
  if (options.statistics_path) {
    HEADRACE_TRY(check_writable("--stats", *options.statistics_path));
  }
  if (options.trace_path) {
    HEADRACE_TRY(check_writable("--trace", *options.trace_path));
  }
  HEADRACE_TAKE(preload, find_preload(options));
  plan.preload_path = std::move(*preload);
  return plan;
}

/// LD_PRELOAD with our library first, for when ld.so.preload is not available. The loader ignores
/// the second entry that a nested emulation gets.
std::string preload_variable() {
  const char* given = std::getenv("LD_PRELOAD");
  return given == nullptr ? kPreloadPath : fmt::format("{}:{}", kPreloadPath, given);
}

std::span<std::byte> mapped_registers;

/// Every program of the command may write to the registers' file, and so may truncate it: replaces
/// the mapping by zeros, which is a disabled device.
void on_bus_error(int, siginfo_t* info, void*) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  const bool ours = at >= mapped_registers.data() &&
                    at < mapped_registers.data() + mapped_registers.size() && info->si_code > 0;
  if (ours && ::mmap(mapped_registers.data(), mapped_registers.size(), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
    return;
  }
  ::signal(SIGBUS, SIG_DFL);  // The fault recurs and ends this process.
}

Result<std::span<std::byte>> map_registers(int file) {
  const std::size_t byte_count = registers_bytes();
  void* memory = ::mmap(nullptr, byte_count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    return fail(Code::out_of_memory, "map the registers of the emulated devices",
                "the system refused it", "free memory", errno);
  }
  mapped_registers = std::span(static_cast<std::byte*>(memory), byte_count);
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
  return mapped_registers;
}

/// Enables what is configured, as 'accel-config load-config -e'.
Result<void> enable_all(Driver& driver, const EmulatorConfig& config) {
  for (std::uint32_t d = 0; d < config.devices.size(); ++d) {
    const auto& queues = config.devices[d].queues;
    const auto is_used = [](const QueueConfig& queue) {
      return queue.size > 0 && queue.type == "user";
    };
    bool any = false;
    for (const QueueConfig& queue : queues) any |= is_used(queue);
    if (!any) continue;
    int error = driver.bind_device(DeviceId(d));
    for (std::uint32_t q = 0; q < kQueueMax && error == 0; ++q) {
      if (is_used(queues[q])) error = driver.bind_queue(DeviceId(d), QueueId(q));
    }
    if (error != 0) {
      return fail(Code::invalid_argument, fmt::format("enable the WQs of dsa{}", d),
                  "its configuration is invalid", "compare with 'accel-config save-config'", error);
    }
  }
  return {};
}

Result<int> open_trace(const Options& options) {
  if (!options.trace_path) return -1;
  const int file =
      *options.trace_path == launch::kStdout
          ? ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
          : ::open(options.trace_path->c_str(),
                   O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
  if (file < 0) {
    return fail(Code::io_failed, fmt::format("write '{}' (--trace)", *options.trace_path),
                "the system refused it", "name another file", errno);
  }
  // What cannot be written is an error when events cannot (judge_trace).
  constexpr std::string_view kHead =
      "{\"format\": \"headrace-trace\", \"version\": 1, \"records\": \"json\"}\n";
  static_cast<void>(!::write(file, kHead.data(), kHead.size()));
  return file;
}

/// Creates the file that every program of the command maps; the file system gives it the access of
/// the portals. The trap's options are files beside it, so that it needs no environment variable.
Result<std::span<std::byte>> make_registers(const Options& options) {
  const auto make = [](const std::string& path) {
    return OwnedFile(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  };
  const OwnedFile file = make(kRegistersPath);
  if (!file.valid() || ::ftruncate(file.get(), static_cast<off_t>(registers_bytes())) != 0) {
    return fail(Code::out_of_memory, "make the registers of the emulated devices",
                "the system refused it", "free memory", errno);
  }
  if (options.refuse_mmap) static_cast<void>(make(kRefuseMmapPath));
  if (options.force_access_trap) static_cast<void>(make(kForceAccessPath));
  return map_registers(file.get());
}

/// A running emulation, in this process.
struct Emulation {
  std::optional<Control> control;
  std::optional<Driver> driver;
  Tree tree;
  OwnedFile trace_file;
  std::optional<Server> server;
  bool everywhere = false;  ///< The trap is preloaded by ld.so.preload.
};

Result<void> build(Emulation& emulation, const Options& options, Plan& plan) {
  HEADRACE_TAKE(trace_file, open_trace(options));
  emulation.trace_file = OwnedFile(*trace_file);
  // A command of root may change its user, who must read /etc whatever the caller's umask is.
  const mode_t callers = ::umask(022);
  add_real_links(emulation.tree);
  if (auto entered = enter_namespace(); !entered) return entered;
  HEADRACE_TAKE(fuse, make_places());
  HEADRACE_TAKE(memory, make_registers(options));
  HEADRACE_TAKE(control, Control::create(*memory, plan.config));
  emulation.control.emplace(*control);
  emulation.driver.emplace(*emulation.control, std::move(plan.extras));
  if (auto enabled = enable_all(*emulation.driver, plan.config); !enabled) return enabled;
  emulation.driver->add_files(emulation.tree);
  emulation.tree.add(std::string(kTracePath), {.kind = NodeKind::trace, .permissions = 0222});
  const Served served{emulation.tree, *emulation.control, options.refuse_mmap,
                      emulation.trace_file.get()};
  HEADRACE_TAKE(server, Server::start(std::move(*fuse), served));
  emulation.server.emplace(std::move(*server));
  HEADRACE_TAKE(everywhere, preload_everywhere(plan.preload_path));
  emulation.everywhere = *everywhere;
  ::umask(callers);
  return {};
}

Result<void> save_statistics(const Options& options, const Control& control, int wait_status,
                             double seconds) {
  if (!options.statistics_path) return {};
  const RunFacts facts{.seconds = seconds,
                       .exit_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1,
                       .signal_number = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0,
                       .deterministic = options.seed.has_value()};
  return write_whole(*options.statistics_path, statistics_document(control.statistics(), facts));
}

Result<void> judge_trace(const Options& options, int error) {
  if (error == 0) return {};
  return fail(Code::io_failed, fmt::format("write '{}' (--trace)", *options.trace_path),
              "events are missing in it", "free space there, or name another file", error);
}

/// Runs the command in the namespace until all its processes have ended. Returns its wait status.
Result<int> run(Emulation& emulation, const Options& options, const Program& program) {
  launch::Command command{
      .path = program.path, .words = options.command, .fixed_addresses = options.seed.has_value()};
  if (!emulation.everywhere) command.environment.emplace_back("LD_PRELOAD", preload_variable());
  // Orphans of the command become our children, not those of an outside process. What we have now
  // are the server, and children of the program that became the launcher by exec.
  std::vector<pid_t> spared = children_of_this_process();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  HEADRACE_TAKE(child, launch::Child::start(command));
  const pid_t server = emulation.server->process_id();
  const auto status = child->wait([&spared, server](pid_t ended) {
    std::erase(spared, ended);  // Its number may be used again.
    return ended == server;
  });
  if (!status) complain("the process that serves the emulated devices was killed: ending CMD");
  for (const pid_t left : end_processes(Ending::ask_descendants, spared)) {
    complain(fmt::format("process {} cannot be ended: it waits in the kernel (state D)", left));
  }
  return status.value_or(W_EXITCODE(1, 0));
}

}  // namespace

Result<int> launch_emulation(const Options& options) {
  HEADRACE_TAKE(plan, make_plan(options));
  if (plan->program.refusal.exit_code != 0) {
    complain(plan->program.refusal.sentence);
    return W_EXITCODE(plan->program.refusal.exit_code, 0);
  }
  if (!plan->program.note.empty()) complain(plan->program.note);
  for (const std::string& sentence : plan->left_out) complain(sentence);

  launch::block_signals();
  // Never destroyed: this process ends by exit or by a signal.
  auto& emulation = *new Emulation;
  auto built = build(emulation, options, *plan);
  const auto started = std::chrono::steady_clock::now();
  auto ran = built ? run(emulation, options, plan->program) : fail(built.error());
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - started;
  const int trace_error = emulation.server ? emulation.server->stop() : 0;
  if (!ran) return ran;
  static_cast<void>(emulation.control->reap());
  const auto saved = save_statistics(options, *emulation.control, *ran, spent.count());
  const auto traced = judge_trace(options, trace_error);
  for (const Result<void>* result : {&saved, &traced}) {
    if (!*result) complain(result->error().message());
  }
  return *ran == 0 && (!saved || !traced) ? W_EXITCODE(1, 0) : *ran;
}

Result<std::string> statistics_of(const std::string& path) {
  const std::string tried = fmt::format("read the registers '{}'", path);
  const OwnedFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    return fail(errno == ENOENT ? Code::not_found : Code::permission_denied, tried,
                "it cannot be opened", "name those of an emulation of this user", errno);
  }
  // A copy: no process can change or truncate it.
  const std::size_t byte_count = registers_bytes();
  void* memory =
      ::mmap(nullptr, byte_count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(Code::out_of_memory, tried, "no memory", "free some memory");
  }
  const ssize_t got = ::pread(file.get(), memory, byte_count, 0);
  if (got < 0) return fail(Code::io_failed, tried, "it cannot be read", "try again", errno);
  HEADRACE_TAKE(control, Control::open(std::span(static_cast<std::byte*>(memory),
                                                 static_cast<std::size_t>(got))));
  return statistics_document(control->statistics(), {});
}

}  // namespace headrace::emu
