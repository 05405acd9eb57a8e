// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/server.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "launch/emulator/namespace.hpp"
#include "launch/emulator/remains.hpp"

namespace headrace::emu {
namespace {

const std::string kTried = "start the process that serves the files of the emulated devices";

struct Pipe {
  OwnedFile read;
  OwnedFile write;
};
Result<Pipe> make_pipe() {
  std::array<int, 2> files{};
  if (::pipe2(files.data(), O_CLOEXEC) != 0) {
    return fail(Code::capacity_exceeded, kTried, "the system refuses a pipe",
                "raise the limit of open files (ulimit -n)", errno);
  }
  return Pipe{OwnedFile(files[0]), OwnedFile(files[1])};
}

/// One byte 'e' and the parts of the error, each with a null byte behind it; or one byte '+'.
void report(const OwnedFile& to, const Result<void>& result) {
  std::string text = "+";
  if (!result) {
    const Error& error = result.error();
    text = "e" + std::to_string(static_cast<int>(error.code)) + '\0' +
           std::to_string(error.os_errno) + '\0' + error.tried + '\0' + error.cause + '\0' +
           error.remedy + '\0';
  }
  static_cast<void>(::write(to.get(), text.data(), text.size()) < 0);
}

Result<void> read_report(const OwnedFile& from) {
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t count = 0; (count = ::read(from.get(), part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  if (text == "+") return {};
  std::array<std::string, 5> parts;
  std::size_t at = 1;
  for (std::string& each : parts) {
    const std::size_t end = text.find('\0', at);
    if (end == std::string::npos) {
      return fail(Code::io_failed, kTried, "it was killed", "try again");
    }
    each = text.substr(at, end - at);
    at = end + 1;
  }
  return fail(static_cast<Code>(std::stoi(parts[0])), parts[2], parts[3], parts[4],
              std::stoi(parts[1]));
}

/// The server itself. Never returns: libfuse's threads use what is on this stack.
[[noreturn]] void serve(OwnedFile fuse, const Served& served, const OwnedFile& line,
                        OwnedFile ready) {
  // A kill of the launcher's process group must not reach it.
  ::setsid();
  ::prctl(PR_SET_NAME, "headrace-files");
  auto reaper = Reaper::start(served.control);
  Result<void> result{};
  if (!reaper) {
    result = fail(reaper.error());
  } else if (auto files = FileSystem::serve(std::move(fuse), served, **reaper); !files) {
    result = fail(files.error());
  } else {
    static_cast<void>(files->release());
    result = bind_files(served.trace_file >= 0);
  }
  report(ready, result);
  ready.close();
  char byte = 0;
  ssize_t count = -1;
  do {
    count = ::read(line.get(), &byte, 1);
  } while (count < 0 && errno == EINTR);
  if (count == 0) static_cast<void>(end_processes(Ending::kill_in_namespace, {::getpid()}));
  ::_exit(0);
}

}  // namespace

Result<Server> Server::start(OwnedFile fuse, const Served& served) {
  auto line = make_pipe();
  if (!line) return fail(line.error());
  auto ready = make_pipe();
  if (!ready) return fail(ready.error());
  Server server;
  server.process_id_ = ::fork();
  if (server.process_id_ == 0) {
    line->write.close();
    ready->read.close();
    serve(std::move(fuse), served, line->read, std::move(ready->write));
  }
  if (server.process_id_ < 0) {
    return fail(Code::capacity_exceeded, kTried, "the system allows no more processes", "end some",
                errno);
  }
  ready->write.close();
  server.line_ = std::move(line->write);
  if (auto good = read_report(ready->read); !good) {
    server.stop();
    return fail(good.error());
  }
  return server;
}

void Server::stop() {
  const char stop = 's';
  static_cast<void>(::write(line_.get(), &stop, 1) < 0);
  line_.close();
  ::waitpid(process_id_, nullptr, 0);
}

}  // namespace headrace::emu
