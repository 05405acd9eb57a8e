// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/server.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "launch/emulator/namespace.hpp"
#include "launch/emulator/remains.hpp"

namespace headrace::emu {
namespace {

using Json = nlohmann::ordered_json;

const std::string kStart = "start the process that serves the files of the emulated devices";

struct Pipe {
  OwnedFile read;
  OwnedFile write;
};
Result<Pipe> make_pipe() {
  std::array<int, 2> files{};
  if (::pipe2(files.data(), O_CLOEXEC) != 0) {
    return fail(Code::capacity_exceeded, kStart, "a pipe cannot be created",
                "raise the limit of open files (ulimit -n)", errno);
  }
  return Pipe{OwnedFile(files[0]), OwnedFile(files[1])};
}

/// Serialises the error; "null" if there is none.
std::string to_text(const Result<void>& result) {
  if (result) return "null";
  const Error& error = result.error();
  return Json{error.code, error.os_errno, error.tried, error.cause, error.remedy}.dump();
}

Result<void> read_report(const OwnedFile& from) {
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t count = 0; (count = ::read(from.get(), part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  const Json said = Json::parse(text, nullptr, false);
  if (said.is_null()) return {};
  if (!said.is_array()) return fail(Code::io_failed, kStart, "it was killed", "try again");
  return fail(said[0], said[2], said[3], said[4], said[1]);
}

/// Runs the server. Never returns: libfuse's threads use this stack.
[[noreturn]] void serve(OwnedFile fuse, const Served& served, const OwnedFile& line,
                        OwnedFile ready) {
  // Must survive a kill of the launcher's process group.
  ::setsid();
  ::prctl(PR_SET_NAME, "headrace-files");
  auto reaper = Reaper::start(served.control);
  const Atomic<int>* trace_error = nullptr;
  Result<void> result{};
  if (!reaper) {
    result = fail(reaper.error());
  } else if (auto files = serve_files(std::move(fuse), served, **reaper); !files) {
    result = fail(files.error());
  } else {
    trace_error = *files;
    result = bind_files(served.trace_file >= 0);
  }
  const std::string report = to_text(result);
  static_cast<void>(::write(ready.get(), report.data(), report.size()) < 0);
  ready.reset();
  char byte = 0;
  ssize_t count = -1;
  do {
    count = ::read(line.get(), &byte, 1);
  } while (count < 0 && errno == EINTR);
  if (count == 0) static_cast<void>(end_processes(Ending::kill_in_namespace, {::getpid()}));
  ::_exit(trace_error == nullptr ? 0 : trace_error->load_relaxed());  // relaxed: a number, no order
}

}  // namespace

Result<Server> Server::start(OwnedFile fuse, const Served& served) {
  HEADRACE_TAKE(line, make_pipe());
  HEADRACE_TAKE(ready, make_pipe());
  Server server;
  server.process_id_ = ::fork();
  if (server.process_id_ == 0) {
    line->write.reset();
    ready->read.reset();
    serve(std::move(fuse), served, line->read, std::move(ready->write));
  }
  if (server.process_id_ < 0) {
    return fail(Code::capacity_exceeded, kStart, "process limit reached", "end some processes",
                errno);
  }
  ready->write.reset();
  server.line_ = std::move(line->write);
  if (auto good = read_report(ready->read); !good) {
    static_cast<void>(server.stop());
    return fail(good.error());
  }
  return server;
}

int Server::stop() {
  const char stop = 's';
  static_cast<void>(::write(line_.get(), &stop, 1) < 0);
  line_.reset();
  int status = 0;
  ::waitpid(process_id_, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

}  // namespace headrace::emu
