// SPDX-License-Identifier: Apache-2.0
#include "emu/launch/report.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "headrace/dsa/descriptor.hpp"

namespace headrace::emu {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

bool write_all(int file, const std::string& text) {
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = ::write(file, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) errno = ENOSPC;  // It would take nothing the next time either.
    if (count <= 0) return false;
    written += static_cast<std::size_t>(count);
  }
  return true;
}

Json queue_json(const QueueStatistics& queue) {
  return {{"name", queue.name},
          {"accepted", queue.accepted_count},
          {"retried", queue.retried_count},
          {"dropped", queue.dropped_count},
          {"written", queue.written_count},
          {"aborted", queue.aborted_count},
          {"occupancy_max", queue.occupancy_max}};
}

Json engine_json(const EngineStatistics& engine) {
  return {{"name", engine.name},
          {"descriptors", engine.descriptor_count},
          {"batches", engine.batch_count},
          {"bytes_read", engine.bytes_read},
          {"bytes_written", engine.bytes_written},
          {"page_faults", engine.page_fault_count},
          {"errors", engine.error_count},
          {"busy_ns", engine.busy_ns}};
}

Json opcodes_json(const DeviceStatistics& device) {
  Json opcodes = Json::object();
  for (std::size_t opcode = 0; opcode < device.operations_by_opcode.size(); ++opcode) {
    const std::uint64_t count = device.operations_by_opcode[opcode];
    if (count == 0) continue;
    const std::string_view known = dsa::name(static_cast<dsa::Opcode>(opcode));
    opcodes[known == "unknown" ? fmt::format("{:#04x}", opcode) : std::string(known)] = count;
  }
  return opcodes;
}

}  // namespace

std::string statistics_document(const Statistics& statistics, const RunFacts& facts) {
  Json devices = Json::array();
  std::uint64_t operations = 0;
  std::uint64_t batches = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t page_faults = 0;
  std::uint64_t errors = 0;
  std::uint64_t accepted = 0;
  std::uint64_t retried = 0;
  std::uint64_t dropped = 0;
  std::uint64_t aborted = 0;
  std::uint64_t injected = 0;
  for (const DeviceStatistics& device : statistics.devices) {
    Json queues = Json::array();
    for (const QueueStatistics& queue : device.queues) {
      queues.push_back(queue_json(queue));
      accepted += queue.accepted_count;
      retried += queue.retried_count;
      dropped += queue.dropped_count;
      aborted += queue.aborted_count;
    }
    Json engines = Json::array();
    for (const EngineStatistics& engine : device.engines) {
      engines.push_back(engine_json(engine));
      operations += engine.descriptor_count;
      batches += engine.batch_count;
      bytes_read += engine.bytes_read;
      bytes_written += engine.bytes_written;
      page_faults += engine.page_fault_count;
      errors += engine.error_count;
    }
    injected += device.injected_fault_count;
    devices.push_back({{"name", device.name},
                       {"queues", queues},
                       {"engines", engines},
                       {"operations", opcodes_json(device)},
                       {"injected_faults", device.injected_fault_count}});
  }
  utsname system{};
  ::uname(&system);
  Json command = {{"seconds", facts.seconds}};
  command["exit_code"] = facts.exit_code < 0 ? Json(nullptr) : Json(facts.exit_code);
  command["signal"] = facts.signal_number == 0 ? Json(nullptr) : Json(facts.signal_number);
  const Json document = {
      {"schema", {{"name", "headrace-emulate-statistics"}, {"version", kSchemaVersion}}},
      {"machine",
       {{"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
        {"processors", ::sysconf(_SC_NPROCESSORS_ONLN)}}},
      {"results",
       {{"command", command},
        {"deterministic", facts.deterministic},
        {"devices", devices},
        {"clients", statistics.client_count},
        {"lost_clients", statistics.lost_client_count}}},
      {"summary",
       {{"operations", operations},
        {"batches", batches},
        {"submissions", accepted},
        {"retries", retried},
        {"dropped", dropped},
        {"aborted", aborted},
        {"bytes_read", bytes_read},
        {"bytes_written", bytes_written},
        {"page_faults", page_faults},
        {"errors", errors},
        {"injected_faults", injected},
        {"clients", statistics.client_count},
        {"lost_clients", statistics.lost_client_count}}}};
  return document.dump(2) + "\n";
}

Result<void> check_writable(const std::string& option, const std::string& path) {
  const std::string tried = fmt::format("write '{}' ({})", path, option);
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) {
      return fail(Code::invalid_argument, tried, "it is a directory", "name a file");
    }
    if (::access(path.c_str(), W_OK) != 0) {
      return fail(Code::permission_denied, tried, "it may not be written", "name another file");
    }
    if (!S_ISREG(status.st_mode)) return {};
  }
  const std::string directory = directory_of(path);
  if (::access(directory.c_str(), F_OK) != 0) {
    return fail(Code::not_found, tried, "its directory does not exist", "make it first");
  }
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    return fail(Code::permission_denied, tried, "its directory may not be written to",
                "name another one");
  }
  return {};
}

bool is_regular(int file) {
  struct stat status{};
  return ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
}
bool is_same_file(int one, int other) {
  struct stat first{};
  struct stat second{};
  return ::fstat(one, &first) == 0 && ::fstat(other, &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

Result<void> write_whole(const std::string& path, const std::string& text) {
  const std::string tried = fmt::format("write '{}'", path);
  const auto failed = [&](int error) {
    return fail(Code::io_failed, tried, "the system refused it", "name another file", error);
  };
  struct stat status{};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    // A device, a pipe or a link stays what it is: what it leads to is written. Through a link like
    // /dev/stdout that may be the file that CMD wrote to: what is there stays, too.
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
    if (file < 0) return failed(errno);
    const bool ours = is_same_file(file, STDOUT_FILENO) || is_same_file(file, STDERR_FILENO);
    const bool placed =
        !is_regular(file) || (ours ? ::lseek(file, 0, SEEK_END) >= 0 : ::ftruncate(file, 0) == 0);
    const bool written = placed && write_all(file, text);
    const int error = errno;
    ::close(file);
    if (!written) return failed(error);
    return {};
  }
  std::string beside = path + ".XXXXXX";
  const int file = ::mkstemp(beside.data());
  if (file < 0) return failed(errno);
  // A file that is replaced keeps its mode, and its owner where that is allowed.
  const bool replaces = status.st_nlink != 0;
  mode_t mode = status.st_mode & 07777;
  if (replaces) {
    static_cast<void>(::fchown(file, status.st_uid, status.st_gid) == 0);
  } else {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    mode = 0666 & ~mask;
  }
  const bool done = write_all(file, text) && ::fchmod(file, mode) == 0 &&
                    ::rename(beside.c_str(), path.c_str()) == 0;
  const int error = errno;
  ::close(file);
  if (done) return {};
  ::unlink(beside.c_str());
  return failed(error);
}

}  // namespace headrace::emu
