// SPDX-License-Identifier: Apache-2.0
#include "emu/launch/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <utility>

extern char** environ;

namespace headrace::emu {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFilesMax = 8;

constexpr std::uint64_t bits_of(std::initializer_list<int> signals) {
  std::uint64_t bits = 0;
  for (const int number : signals) bits |= std::uint64_t{1} << (number - 1);
  return bits;
}
/// Those that end nobody by default.
constexpr std::uint64_t kHarmlessSignals =
    bits_of({SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU});

/// Starts a program found in PATH with stdin and stdout at /dev/null.
int spawn(std::span<const std::string> words, int standard_error, pid_t& process_id) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  // posix_spawn writes none of them.
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  if (standard_error >= 0) {
    posix_spawn_file_actions_adddup2(&actions, standard_error, STDERR_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int error =
      ::posix_spawnp(&process_id, pointers[0], &actions, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

/// The process ids in /proc.
std::vector<pid_t> all_processes() {
  std::vector<pid_t> all;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    pid_t process_id = 0;
    const auto [stopped, error] =
        std::from_chars(name.data(), name.data() + name.size(), process_id);
    if (error == std::errc() && stopped == name.data() + name.size()) all.push_back(process_id);
  }
  return all;
}

}  // namespace

OwnedFile& OwnedFile::operator=(OwnedFile&& other) noexcept {
  if (this != &other) {
    close();
    file_ = other.release();
  }
  return *this;
}

int OwnedFile::release() {
  return std::exchange(file_, -1);
}

void OwnedFile::close() {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
}

Result<SocketPair> make_socket_pair() {
  std::array<int, 2> files{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, files.data()) != 0) {
    return fail(Code::io_failed, "make a pair of sockets", "the system refused it",
                "close what holds file descriptors", errno);
  }
  return SocketPair{OwnedFile(files[0]), OwnedFile(files[1])};
}

bool send_message(int socket, std::span<const std::byte> bytes, std::span<const int> files) {
  // sendmsg does not write to them.
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kFilesMax)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!files.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(files.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(files.size_bytes());
    std::memcpy(CMSG_DATA(header), files.data(), files.size_bytes());
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

bool receive_message(int socket, std::span<std::byte> bytes, std::vector<OwnedFile>& files) {
  files.clear();
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kFilesMax)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t count = 0;
  do {
    count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
  } while (count < 0 && errno == EINTR);
  if (count != static_cast<ssize_t>(bytes.size())) return false;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return true;
  const std::size_t found = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (std::size_t i = 0; i < found; ++i) {
    int file = -1;
    std::memcpy(&file, CMSG_DATA(header) + i * sizeof file, sizeof file);
    files.emplace_back(file);
  }
  return true;
}

bool send_files(int socket, std::span<const int> files) {
  const std::byte byte{'f'};
  return send_message(socket, {&byte, 1}, files);
}

std::vector<OwnedFile> receive_files(int socket, std::size_t count, int wait_max_ms) {
  std::vector<OwnedFile> received;
  pollfd wait{.fd = socket, .events = POLLIN, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&wait, 1, wait_max_ms);
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return received;
  std::byte byte{};
  if (!receive_message(socket, {&byte, 1}, received) || received.size() != count) received.clear();
  return received;
}

std::int32_t process_of_thread(std::int32_t thread_id) {
  std::ifstream status("/proc/" + std::to_string(thread_id) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("Tgid:")) return std::stoi(line.substr(5));
  }
  return 0;
}

bool is_ending(std::int32_t thread_id) {
  std::ifstream status("/proc/" + std::to_string(thread_id) + "/status");
  if (!status) return ::kill(thread_id, 0) != 0 && errno == ESRCH;
  std::uint64_t pending = 0;
  std::uint64_t harmless = kHarmlessSignals;
  std::string line;
  while (std::getline(status, line)) {
    const auto mask = [&line](std::string_view name, std::uint64_t& into) {
      if (!line.starts_with(name)) return;
      const char* end = line.data() + line.size();
      std::uint64_t bits = 0;
      // "SigPnd:", a tabulator, hexadecimal digits.
      std::from_chars(line.data() + name.size() + 1, end, bits, 16);
      into |= bits;
    };
    mask("SigPnd:", pending);
    mask("ShdPnd:", pending);
    mask("SigBlk:", harmless);
    mask("SigIgn:", harmless);
    mask("SigCgt:", harmless);
  }
  return (pending & ~harmless) != 0;
}

std::uint64_t start_time_of(std::int32_t process_id) {
  std::ifstream status("/proc/" + std::to_string(process_id) + "/stat");
  std::string text;
  std::getline(status, text);
  // The name, in parentheses, may hold anything; the 22nd field is the 20th behind it.
  std::size_t place = text.rfind(')');
  if (place == std::string::npos) return 0;
  for (int field = 0; field < 20 && place != std::string::npos; ++field) {
    place = text.find(' ', place + 1);
  }
  if (place == std::string::npos) return 0;
  std::uint64_t ticks = 0;
  std::from_chars(text.data() + place + 1, text.data() + text.size(), ticks);
  return ticks;
}

int run_quietly(std::span<const std::string> words) {
  pid_t process_id = 0;
  if (spawn(words, -1, process_id) != 0) return -1;
  int status = -1;
  while (::waitpid(process_id, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

Result<pid_t> start_program(std::span<const std::string> words, int standard_error) {
  pid_t process_id = 0;
  const int error = spawn(words, standard_error, process_id);
  if (error != 0) {
    return fail(error == ENOENT ? Code::not_found : Code::io_failed, "start " + words[0],
                error == ENOENT ? "there is no such program in PATH" : "the system refused it", "",
                error == ENOENT ? 0 : error);
  }
  return process_id;
}

NamespaceIdentity identity_of(const OwnedFile& mount_namespace) {
  struct stat status{};
  ::fstat(mount_namespace.get(), &status);
  return {status.st_dev, status.st_ino};
}

std::size_t signal_namespace(const NamespaceIdentity& identity, int number) {
  std::size_t count = 0;
  for (const pid_t process_id : all_processes()) {
    struct stat status{};
    const std::string link = "/proc/" + std::to_string(process_id) + "/ns/mnt";
    // A zombie has no namespace any more.
    if (::stat(link.c_str(), &status) != 0) continue;
    if (status.st_dev != identity.device || status.st_ino != identity.inode) continue;
    if (::kill(process_id, number) == 0) ++count;
  }
  return count;
}

}  // namespace headrace::emu
