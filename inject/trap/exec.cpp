// SPDX-License-Identifier: Apache-2.0
// Hooks of the exec calls. Reports on stderr a program that cannot load this library, because its
// submissions are illegal instructions. Where /etc/ld.so.preload is not available, adds the library
// to LD_PRELOAD in the program's environment.
#include <alloca.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <string_view>

#include "inject/kernel.hpp"
#include "inject/reach.hpp"
#include "inject/trap/connection.hpp"
#include "inject/trap/next.hpp"

extern char** environ;

namespace headrace::emu {
namespace {

using Words = char* const*;
using Execute = int(const char*, Words, Words);
using Spawn = int(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
                  Words, Words);

HEADRACE_NEXT<Execute> next_execve("execve");
HEADRACE_NEXT<Execute> next_execvpe("execvpe");
HEADRACE_NEXT<int(int, Words, Words)> next_fexecve("fexecve");
HEADRACE_NEXT<int(int, const char*, Words, Words, int)> next_execveat("execveat");
HEADRACE_NEXT<Spawn> next_spawn("posix_spawn");
HEADRACE_NEXT<Spawn> next_spawnp("posix_spawnp");

constexpr std::string_view kVariable = "LD_PRELOAD=";
constexpr std::string_view kLibrary = "/dev/dsa-emulator/libheadrace-dsa-trap.so";
/// If it exists, programs load the library by LD_PRELOAD only.
constexpr const char* kByEnvironmentPath = "/dev/dsa-emulator/by-environment";
constexpr std::size_t kWordsOnStack = 1024;
constexpr std::size_t kPathMax = 4096;

/// Text of fixed capacity; truncates.
struct Text {
  char bytes[kPathMax + 512];
  std::size_t length = 0;
  void add(std::string_view part) noexcept {
    for (const char each : part) {
      if (length + 1 < sizeof bytes) bytes[length++] = each;
    }
    bytes[length] = '\0';
  }
};

long open_to_read(const char* path) noexcept {
  return kernel::call(__NR_openat, AT_FDCWD, kernel::as_argument(path), O_RDONLY | O_CLOEXEC);
}

/// Reports the program `file` on stderr if it cannot load the library.
void warn_of(long file, std::string_view path) noexcept {
  if (file < 0) return;
  const auto read = [file](std::uint64_t offset, void* into, std::size_t byte_count) noexcept {
    const auto wanted = static_cast<long>(byte_count);
    return kernel::call(__NR_pread64, file, kernel::as_argument(into), wanted,
                        static_cast<long>(offset)) == wanted;
  };
  char magic[SELFMAG];
  if (!read(0, magic, sizeof magic) || std::string_view(magic, sizeof magic) != ELFMAG) return;
  const std::string_view why = inject::why_unreachable(read);
  if (why.empty()) return;
  Text text;
  text.add("headrace-dsa-trap: the emulated devices do not work in '");
  text.add(path);
  text.add("': ");
  text.add(why);
  text.add("; ");
  text.add(inject::kReachRemedy);
  text.add("\n");
  kernel::call(__NR_write, 2, kernel::as_argument(text.bytes), static_cast<long>(text.length));
}

void warn_of(const char* path) noexcept {
  if (path == nullptr) return;
  const long file = open_to_read(path);
  warn_of(file, path);
  if (file >= 0) kernel::call(__NR_close, file);
}

/// Searches PATH as execvp does.
void warn_of_name(const char* name) noexcept {
  if (name == nullptr || std::string_view(name).find('/') != std::string_view::npos) {
    return warn_of(name);
  }
  const char* variable = nullptr;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    if (std::string_view(*each).starts_with("PATH=")) variable = *each + 5;
  }
  std::string_view rest = variable != nullptr ? variable : "/bin:/usr/bin";
  while (true) {
    const std::size_t colon = rest.find(':');
    Text path;
    path.add(rest.substr(0, colon));
    path.add(path.length == 0 ? "./" : "/");
    path.add(name);
    if (kernel::call(__NR_access, kernel::as_argument(path.bytes), X_OK) == 0) {
      return warn_of(path.bytes);
    }
    if (colon == std::string_view::npos) return;
    rest.remove_prefix(colon + 1);
  }
}

std::size_t count_of(Words words) noexcept {
  std::size_t count = 0;
  while (words != nullptr && words[count] != nullptr) ++count;
  return count;
}

/// Whether the program's environment must be extended to load this library.
bool lacks_library(Words environment) noexcept {
  if (kernel::call(__NR_access, kernel::as_argument(kByEnvironmentPath), F_OK) != 0) return false;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry(*environment);
    if (entry.starts_with(kVariable)) return entry.find(kLibrary) == std::string_view::npos;
  }
  return true;
}

/// Calls `next` with an environment that has the library in LD_PRELOAD. The copy is on the stack,
/// or in pages released by the exec: a child of vfork must not allocate.
template <typename Call>
int with_library(Words environment, Call next) noexcept {
  if (!emulated() || !lacks_library(environment)) return next(environment);
  const std::size_t count = count_of(environment);
  const std::size_t byte_count = (count + 2) * sizeof(char*);
  char** copy = nullptr;
  if (count < kWordsOnStack) {
    copy = static_cast<char**>(alloca(byte_count));
  } else {
    copy = reinterpret_cast<char**>(kernel::map(byte_count));
    if (copy == nullptr) return next(environment);
  }
  Text variable;
  variable.add(kVariable);
  variable.add(kLibrary);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view entry(environment[i]);
    if (!entry.starts_with(kVariable)) {
      copy[kept++] = environment[i];
    } else if (entry.size() > kVariable.size()) {
      variable.add(":");
      variable.add(entry.substr(kVariable.size()));
    }
  }
  copy[kept++] = variable.bytes;
  copy[kept] = nullptr;
  const int result = next(copy);
  if (count >= kWordsOnStack) {
    kernel::call(__NR_munmap, kernel::as_argument(copy), static_cast<long>(byte_count));
  }
  return result;
}

int execute(const char* path, Words words, Words environment) noexcept {
  if (emulated()) warn_of(path);
  return with_library(environment, [=](Words given) { return next_execve(path, words, given); });
}

int execute_name(const char* name, Words words, Words environment) noexcept {
  if (emulated()) warn_of_name(name);
  return with_library(environment, [=](Words given) { return next_execvpe(name, words, given); });
}

}  // namespace

extern "C" {

HEADRACE_HOOK int execve(const char* path, Words words, Words environment) noexcept {
  return execute(path, words, environment);
}
HEADRACE_HOOK int execv(const char* path, Words words) noexcept {
  return execute(path, words, environ);
}
HEADRACE_HOOK int execvp(const char* name, Words words) noexcept {
  return execute_name(name, words, environ);
}
HEADRACE_HOOK int execvpe(const char* name, Words words, Words environment) noexcept {
  return execute_name(name, words, environment);
}
HEADRACE_HOOK int fexecve(int file, Words words, Words environment) noexcept {
  if (emulated()) warn_of(file, "a file that is open");
  return with_library(environment, [=](Words given) { return next_fexecve(file, words, given); });
}
HEADRACE_HOOK int execveat(int directory, const char* path, Words words, Words environment,
                           int flags) noexcept {
  return with_library(environment, [=](Words given) {
    return next_execveat(directory, path, words, given, flags);
  });
}

// Collects the arguments after `first` up to a null pointer, on the stack.
#define HEADRACE_WORDS(first)                                              \
  std::size_t count = 1;                                                   \
  va_list arguments;                                                       \
  va_start(arguments, first);                                              \
  while (va_arg(arguments, char*) != nullptr) ++count;                     \
  va_end(arguments);                                                       \
  char** words = static_cast<char**>(alloca((count + 1) * sizeof(char*))); \
  words[0] = const_cast<char*>(first);                                     \
  va_start(arguments, first);                                              \
  for (std::size_t i = 1; i <= count; ++i) words[i] = va_arg(arguments, char*)

HEADRACE_HOOK int execl(const char* path, const char* first, ...) noexcept {
  HEADRACE_WORDS(first);
  va_end(arguments);
  return execute(path, words, environ);
}
HEADRACE_HOOK int execlp(const char* name, const char* first, ...) noexcept {
  HEADRACE_WORDS(first);
  va_end(arguments);
  return execute_name(name, words, environ);
}
HEADRACE_HOOK int execle(const char* path, const char* first, ...) noexcept {
  HEADRACE_WORDS(first);
  char** environment = va_arg(arguments, char**);
  va_end(arguments);
  return execute(path, words, environment);
}
#undef HEADRACE_WORDS

HEADRACE_HOOK int posix_spawn(pid_t* process, const char* path,
                              const posix_spawn_file_actions_t* actions,
                              const posix_spawnattr_t* attributes, Words words, Words environment) {
  if (emulated()) warn_of(path);
  return with_library(environment, [=](Words given) {
    return next_spawn(process, path, actions, attributes, words, given);
  });
}
HEADRACE_HOOK int posix_spawnp(pid_t* process, const char* name,
                               const posix_spawn_file_actions_t* actions,
                               const posix_spawnattr_t* attributes, Words words,
                               Words environment) {
  if (emulated()) warn_of_name(name);
  return with_library(environment, [=](Words given) {
    return next_spawnp(process, name, actions, attributes, words, given);
  });
}

/// AddressSanitizer requires its runtime to be the first library, which fails with a preload; this
/// function returns the option that disables that check.
HEADRACE_HOOK const char* __asan_default_options() noexcept {
  return "verify_asan_link_order=0";
}

}  // extern "C"
}  // namespace headrace::emu
