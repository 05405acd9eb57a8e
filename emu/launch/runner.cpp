// SPDX-License-Identifier: Apache-2.0
#include "emu/launch/runner.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "emu/launch/program.hpp"

namespace headrace::emu {
namespace {

constexpr long kLookEveryNs = 10'000'000;
constexpr int kGraceLooks = 100;
/// A process that forks and ends during a look hides its child from it: whoever becomes a daemon
/// does so twice.
constexpr int kEmptyLooksMin = 3;

/// What the child could not do.
enum class Step : int { enter, directory, execute };
struct Trouble {
  Step step;
  int error;
};

[[noreturn]] void report(int line, Step step) {
  const Trouble trouble{step, errno};
  static_cast<void>(::send(line, &trouble, sizeof trouble, MSG_NOSIGNAL));
  ::_exit(kExitNotExecutable);
}

/// The child's way: waits to be sent in, enters, becomes the command.
[[noreturn]] void become(const Command& command, int line, pid_t launcher, bool ignores_children) {
  std::error_code no_directory;
  const std::string directory = std::filesystem::current_path(no_directory);
  const std::vector<OwnedFile> namespaces = receive_files(line, 2, -1);
  if (namespaces.empty()) ::_exit(1);  // The launcher failed, and has said why.
  std::array<char, 1> with_users{};
  if (::recv(line, with_users.data(), 1, MSG_WAITALL) != 1) ::_exit(1);
  if (with_users[0] == 'u' && ::setns(namespaces[1].get(), CLONE_NEWUSER) != 0) {
    report(line, Step::enter);
  }
  if (::setns(namespaces[0].get(), CLONE_NEWNS) != 0) report(line, Step::enter);
  if (!no_directory && ::chdir(directory.c_str()) != 0) report(line, Step::directory);
  // After the change of namespaces, which forgets it.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);
  for (const auto& [name, value] : command.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (command.fixed_addresses) {
    const int before = ::personality(0xffffffff);
    ::personality(static_cast<unsigned long>(before) | ADDR_NO_RANDOMIZE);
  }
  std::vector<char*> words;
  // execv writes none of them.
  for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  if (ignores_children) ::signal(SIGCHLD, SIG_IGN);
  ::sigprocmask(SIG_SETMASK, &command.signal_mask, nullptr);
  ::execv(command.path.c_str(), words.data());
  if (errno == ENOEXEC) {
    // A script without "#!", which execvp hands to the shell as well.
    words[0] = const_cast<char*>(command.path.c_str());
    words.insert(words.begin(), const_cast<char*>("sh"));
    ::execv("/bin/sh", words.data());
  }
  report(line, Step::execute);
}

bool is_job_stop(int number) {
  return number == SIGTSTP || number == SIGTTIN || number == SIGTTOU;
}

}  // namespace

Result<Runner> Runner::fork_command(const Command& command) {
  auto sockets = make_socket_pair();
  if (!sockets) return fail(sockets.error());
  const pid_t launcher = ::getpid();
  // What the command leaves behind becomes our child, not that of a process outside.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // A parent that ignores SIGCHLD hands that down: the command gets it, but we have to be told.
  struct sigaction told{};
  struct sigaction former{};
  told.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &told, &former);
  const bool ignores_children = former.sa_handler == SIG_IGN;
  Runner runner;
  runner.process_id_ = ::fork();
  if (runner.process_id_ == 0) {
    sockets->ours.close();
    become(command, sockets->theirs.get(), launcher, ignores_children);
  }
  if (runner.process_id_ < 0) {
    return fail(Code::io_failed, "start the command", "the system allows no more processes",
                "end some", errno);
  }
  runner.line_ = std::move(sockets->ours);
  return runner;
}

Result<void> Runner::go(const Sandbox& sandbox) {
  const std::array<int, 2> files{sandbox.mount_namespace.get(), sandbox.user_namespace.get()};
  const char with_users = sandbox.has_user_namespace ? 'u' : '-';
  Trouble trouble{};
  ssize_t count = -1;
  if (send_files(line_.get(), files) && ::send(line_.get(), &with_users, 1, MSG_NOSIGNAL) == 1) {
    do {
      count = ::recv(line_.get(), &trouble, sizeof trouble, MSG_WAITALL);
    } while (count < 0 && errno == EINTR);
  }
  // The socket closes with the exec.
  if (count == 0) return {};
  if (count != static_cast<ssize_t>(sizeof trouble)) {
    return fail(Code::io_failed, "start the command", "its process is gone", "try again");
  }
  switch (trouble.step) {
    case Step::enter:
      return fail(Code::permission_denied, "enter the namespace of the emulated devices",
                  "the kernel refused it",
                  "a bwrap that is set-user-ID root cannot be used: clear the bit, or run as root",
                  trouble.error);
    case Step::directory:
      return fail(Code::not_found, "enter the current directory in the emulator's namespace",
                  "it is not there", "start from a directory outside /dev and /sys", trouble.error);
    case Step::execute:
      if (trouble.error != E2BIG) break;
      return fail(Code::capacity_exceeded, "run the command",
                  "its arguments and environment, to which the emulator adds its own variables, "
                  "are longer than the system allows",
                  "hand them over in a file, or raise the limit (ulimit -s unlimited)",
                  trouble.error);
  }
  return fail(Code::permission_denied, "run the command", "the system refused it", "",
              trouble.error);
}

int Runner::wait() {
  sigset_t all;
  ::sigfillset(&all);
  while (true) {
    int status = 0;
    const pid_t changed = ::waitpid(-1, &status, WNOHANG | WUNTRACED);
    if (changed == process_id_) {
      if (!WIFSTOPPED(status)) return status;
      // Whoever waits for us sees that the job has stopped. Where the command has a process group
      // of its own it is a shell's, or its own affair.
      if (is_job_stop(WSTOPSIG(status)) && ::getpgid(process_id_) == ::getpgrp()) {
        ::kill(::getpid(), SIGSTOP);
        ::kill(process_id_, SIGCONT);
      }
      continue;
    }
    if (changed > 0) continue;
    siginfo_t info{};
    const int number = ::sigwaitinfo(&all, &info);
    if (number < 0 || number == SIGCHLD) continue;
    // What comes from the terminal has come to the command, too; what the command itself sent to
    // its process group as well.
    if (info.si_code == SI_KERNEL || info.si_pid == process_id_) continue;
    ::kill(process_id_, number);
  }
}

void Runner::end_remains(const NamespaceIdentity& identity) {
  int look = 0;
  int empty_count = 0;
  while (empty_count < kEmptyLooksMin) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const int number = look == 0 ? SIGTERM : look < kGraceLooks ? 0 : SIGKILL;
    if (signal_namespace(identity, number) == 0) {
      ++empty_count;
      continue;
    }
    // A stopped process takes its SIGTERM when it goes on.
    if (look == 0) signal_namespace(identity, SIGCONT);
    empty_count = 0;
    ++look;
    const timespec pause{0, kLookEveryNs};
    ::nanosleep(&pause, nullptr);
  }
}

sigset_t block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  // Faults of our own are to end us where they happen.
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) {
    ::sigdelset(&all, number);
  }
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &all, &before);
  return before;
}

void end_as(int wait_status) {
  if (!WIFSIGNALED(wait_status)) ::_exit(WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::prctl(PR_SET_DUMPABLE, 0);
  ::signal(number, SIG_DFL);
  ::raise(number);
  sigset_t only;
  ::sigemptyset(&only);
  ::sigaddset(&only, number);
  ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
  ::_exit(128 + number);
}

}  // namespace headrace::emu
