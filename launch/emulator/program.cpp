// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/program.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>

#include "inject/reach.hpp"
#include "launch/emulator/process.hpp"

namespace headrace::emu {
namespace {

constexpr int kScriptDepthMax = 4;
constexpr std::size_t kHeadBytes = 4096;

/// The first bytes of a file; nothing if unreadable (it may be execute-only).
std::optional<std::string> head_of(const std::string& path) {
  const OwnedFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  std::string head(kHeadBytes, '\0');
  const ssize_t count = ::read(file.get(), head.data(), head.size());
  head.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return head;
}

Refusal refuse(std::string sentence) {
  return Refusal{.exit_code = kExitNotExecutable, .sentence = std::move(sentence)};
}

/// Judges the ELF file `path`; `whose` says how it relates to the command, unless it is the
/// command.
Refusal judge_elf(const std::string& path, const std::string& whose) {
  const OwnedFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const std::string_view why =
      inject::why_unreachable([&](std::uint64_t offset, void* into, std::size_t byte_count) {
        return ::pread(file.get(), into, byte_count, static_cast<off_t>(offset)) ==
               static_cast<ssize_t>(byte_count);
      });
  if (why.empty()) return {};
  return refuse(
      fmt::format("cannot run '{}'{}: {}, so the emulator's library cannot be loaded into it; {}, "
                  "or run it on a machine with a DSA",
                  path, whose, why, inject::kReachRemedy));
}

/// The interpreter of a "#!" line; empty if `head` has none.
std::string interpreter_of(std::string_view head) {
  if (!head.starts_with("#!")) return "";
  std::string_view line = head.substr(2, head.find('\n') - 2);
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  line.remove_prefix(begin);
  return std::string(line.substr(0, line.find_first_of(" \t\r")));
}

/// The program that "#!/usr/bin/env NAME" runs; empty for other lines.
std::string name_behind_env(std::string_view head) {
  const std::string_view line = head.substr(0, head.find('\n'));
  const std::size_t env = line.find("/env ");
  if (env == std::string_view::npos) return "";
  std::string_view rest = line.substr(env + 5);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  if (rest.starts_with("-S ")) rest.remove_prefix(3);
  if (rest.empty() || rest[0] == '-' || rest.find('=') != std::string_view::npos) return "";
  return std::string(rest.substr(0, rest.find_first_of(" \t\r")));
}

/// As execvp: the first executable file of that name, or why there is none.
std::string find_in_path(const std::string& command, Refusal& refusal) {
  int worst = ENOENT;
  const auto is_good = [&worst](const std::string& path) {
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0) return false;
    if (S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0) return true;
    worst = S_ISDIR(status.st_mode) ? EISDIR : EACCES;
    return false;
  };
  const bool has_slash = command.find('/') != std::string::npos;
  if (has_slash && is_good(command)) return command;
  const char* variable = std::getenv("PATH");
  // An empty entry, also at the end, is the current directory.
  std::istringstream directories((variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin") +
                                 std::string(":"));
  for (std::string directory;
       !has_slash && !command.empty() && std::getline(directories, directory, ':');) {
    std::string path = (directory.empty() ? "." : directory) + "/" + command;
    if (is_good(path)) return path;
  }
  if (worst == ENOENT) {
    refusal = {.exit_code = kExitNotFound,
               .sentence = fmt::format("cannot run '{}': there is no such program{}", command,
                                       has_slash ? "" : " in PATH")};
  } else {
    refusal = refuse(fmt::format(
        "cannot run '{}': it is {}", command,
        worst == EISDIR ? "a directory" : "not executable for this user; see its mode"));
  }
  return "";
}

}  // namespace

Program judge_program(const std::string& command) {
  Program program;
  program.path = find_in_path(command, program.refusal);
  if (program.refusal.exit_code != 0) return program;
  struct stat status{};
  if (::stat(program.path.c_str(), &status) == 0 && (status.st_mode & (S_ISUID | S_ISGID)) != 0 &&
      (::geteuid() != 0 || status.st_uid != 0)) {
    program.note = fmt::format(
        "'{}' runs without the rights of its file's owner or group (set-user-ID): the emulator's "
        "namespace grants none",
        program.path);
  }
  std::string current = program.path;
  std::string whose;
  for (int depth = 0; depth <= kScriptDepthMax; ++depth) {
    const auto head = head_of(current);
    if (!head) return program;  // Executable but not readable: the loader decides.
    if (head->starts_with(ELFMAG)) {
      program.refusal = judge_elf(current, whose);
      return program;
    }
    std::string interpreter = interpreter_of(*head);
    // execvp passes a file without "#!" to the shell.
    if (interpreter.empty()) interpreter = "/bin/sh";
    Refusal unfound;
    std::string found = find_in_path(interpreter, unfound);
    if (found.empty()) {
      program.refusal = refuse(
          fmt::format("cannot run '{}': its interpreter '{}' cannot be run", current, interpreter));
      return program;
    }
    if (const std::string named = name_behind_env(*head); !named.empty()) {
      Refusal ignored;
      std::string behind = find_in_path(named, ignored);
      if (!behind.empty()) found = behind;
    }
    whose = fmt::format(", the interpreter of '{}',", program.path);
    current = found;
  }
  return program;
}

}  // namespace headrace::emu
