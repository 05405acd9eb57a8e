// SPDX-License-Identifier: Apache-2.0
// headrace-run: runs a command whose processes count their copies (HEADRACE_COUNTERS), and writes
// the sums as JSON when it has ended. The implementation of 'headrace run --stats', which validates
// the options. The counters are in a memfd that every process of the command maps, so they remain
// however the processes end.
//
//   headrace-run STATISTICS MACHINE CMD...   MACHINE: descriptor of the machine record
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "inject/copy/counters.hpp"
#include "launch/child.hpp"
#include "launch/output.hpp"

namespace headrace::launch {
namespace {

using Json = nlohmann::ordered_json;
using preload::Counters;

constexpr std::array<const char*, preload::kFunctionCount> kFunctions{"memcpy", "memmove", "memset",
                                                                      "memcmp"};
constexpr std::array<const char*, preload::kPathCount> kPaths{"libc", "tuned", "dsa"};
constexpr std::size_t kArgumentsMin = 4;
constexpr int kExitFailed = 1;

/// Totals of one function and path; those per length class in `lengths`.
struct Sums {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  double seconds = 0;
  Json lengths = Json::array();

  void add(const Counters& counters, std::size_t function, std::size_t path, std::size_t index);
};

void Sums::add(const Counters& counters, std::size_t function, std::size_t path,
               std::size_t index) {
  std::array<std::uint64_t, 4> cell{};
  for (const preload::Stripe& stripe : counters.stripes) {
    const preload::Cell& one = stripe.cells[function][path][index];
    // relaxed: the counting processes have ended.
    cell[0] += one.call_count.load_relaxed();
    cell[1] += one.byte_count.load_relaxed();
    cell[2] += one.timed_count.load_relaxed();
    cell[3] += one.timed_ns.load_relaxed();
  }
  if (cell[0] == 0) return;
  const double all_seconds = cell[2] == 0
                                 ? 0.0
                                 : static_cast<double>(cell[3]) / static_cast<double>(cell[2]) *
                                       static_cast<double>(cell[0]) * 1e-9;
  const bool is_zero_length = index == preload::kLengthClassCount - 1;
  calls += cell[0];
  bytes += cell[1];
  seconds += all_seconds;
  lengths.push_back({{"bytes_max", is_zero_length ? 0 : std::uint64_t{2} << index},
                     {"calls", cell[0]},
                     {"bytes", cell[1]},
                     {"calls_timed", cell[2]},
                     {"seconds", all_seconds}});
}

Json document_of(const Counters& counters, const Json& machine,
                 const std::vector<std::string>& command, int status) {
  Json functions = Json::object();
  Sums all;
  std::uint64_t bytes_moved = 0;
  std::uint64_t bytes_tuned = 0;
  for (std::size_t f = 0; f < kFunctions.size(); ++f) {
    for (std::size_t p = 0; p < kPaths.size(); ++p) {
      Sums sums;
      // The last class is length zero.
      sums.add(counters, f, p, preload::kLengthClassCount - 1);
      for (std::size_t i = 0; i + 1 < preload::kLengthClassCount; ++i) sums.add(counters, f, p, i);
      all.calls += sums.calls;
      all.bytes += sums.bytes;
      all.seconds += sums.seconds;
      const bool moves = f <= static_cast<std::size_t>(preload::Function::memmove);
      if (moves) bytes_moved += sums.bytes;
      if (moves && p == static_cast<std::size_t>(preload::Path::tuned)) bytes_tuned += sums.bytes;
      functions[kFunctions[f]][kPaths[p]] = {{"calls", sums.calls},
                                             {"bytes", sums.bytes},
                                             {"seconds", sums.seconds},
                                             {"lengths", std::move(sums.lengths)}};
    }
  }
  const preload::DeviceCells& device = counters.device;
  const std::string note(counters.note.data(),
                         ::strnlen(counters.note.data(), counters.note.size()));
  // relaxed, all of them: as above.
  return {{"schema", {{"name", "headrace-run"}, {"version", 1}}},
          {"machine", machine},
          {"results",
           {{"command", command},
            {"exit_code", WIFSIGNALED(status) ? Json(nullptr) : Json(WEXITSTATUS(status))},
            {"signal", WIFSIGNALED(status) ? Json(WTERMSIG(status)) : Json(nullptr)},
            {"profile", note.empty() ? "no program loaded the library: it is static, has more "
                                       "rights than its user, or may not open the counters"
                                     : note},
            {"functions", functions},
            {"device",
             {{"descriptors", device.descriptors.load_relaxed()},
              {"bytes", device.bytes.load_relaxed()},
              {"page_faults", device.page_faults.load_relaxed()},
              {"retries", device.retries.load_relaxed()},
              {"errors", device.errors.load_relaxed()},
              {"lost", device.lost.load_relaxed()},
              {"queues_taken", device.queues_taken.load_relaxed()}}}}},
          {"summary",
           {{"programs", counters.program_count.load_relaxed()},
            {"programs_tuned", counters.tuned_count.load_relaxed()},
            {"programs_device", counters.device_count.load_relaxed()},
            {"calls", all.calls},
            {"bytes", all.bytes},
            {"seconds", all.seconds},
            {"bytes_moved", bytes_moved},
            {"bytes_tuned", bytes_tuned},
            {"bytes_by_device", device.bytes.load_relaxed()}}}};
}

/// Creates the counters in a file that no process can truncate; null if memory is exhausted.
Counters* make_counters(int& file) {
  file = ::memfd_create("headrace-counters", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0 || ::ftruncate(file, sizeof(Counters)) != 0) return nullptr;
  ::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  void* memory = ::mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* counters = static_cast<Counters*>(memory);  // All zero is valid.
  counters->magic = preload::kCountersMagic;
  counters->byte_count = sizeof(Counters);
  return counters;
}

Json read_machine(int file) {
  struct stat status{};
  if (::fstat(file, &status) != 0) return nullptr;
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  if (::pread(file, text.data(), text.size(), 0) != status.st_size) return nullptr;
  Json machine = Json::parse(text, nullptr, false);
  return machine.is_discarded() ? Json(nullptr) : machine;
}

int run(const std::string& path, int machine_file, const std::vector<std::string>& words) {
  ::fcntl(machine_file, F_SETFD, FD_CLOEXEC);
  int file = -1;
  Counters* const counters = make_counters(file);
  if (counters == nullptr) {
    complain("cannot count copies: the system has no memory for the counters; free some memory");
    ::_exit(kExitFailed);
  }
  block_signals();
  const Command command{
      .path = words.front(),
      .words = words,
      .environment = {{"HEADRACE_COUNTERS", fmt::format("/proc/{}/fd/{}", ::getpid(), file)}}};
  auto child = Child::start(command);
  if (!child) {
    const int error = child.error().os_errno;
    const bool absent = error == ENOENT;
    complain(absent ? fmt::format("cannot run '{}': there is no such program; check the name",
                                  words.front())
                    : fmt::format("cannot run '{}': it cannot be executed ({}); check the file",
                                  words.front(), std::strerror(error)));
    ::_exit(absent ? kExitNotFound : kExitNotExecutable);
  }
  int status = *child->wait([](pid_t) { return false; });
  const Json document = document_of(*counters, read_machine(machine_file), words, status);
  const auto written =
      write_whole(path, document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  if (!written) {
    complain(fmt::format("cannot write the statistics '{}': {}; choose another place", path,
                         std::strerror(written.error().os_errno)));
    if (status == 0) status = W_EXITCODE(kExitFailed, 0);
  }
  return status;
}

}  // namespace
}  // namespace headrace::launch

int main(int argc, char** argv) {
  using namespace headrace::launch;
  if (argc < static_cast<int>(kArgumentsMin)) {
    complain("headrace-run belongs to 'headrace run --stats'; use that");
    return 2;
  }
  occupy_closed_files();
  end_as(run(argv[1], std::atoi(argv[2]), {argv + 3, argv + argc}));
}
