// SPDX-License-Identifier: Apache-2.0
#include "launch/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

namespace headrace::launch {
namespace {

/// The caller's mask; saved by block_signals().
sigset_t former_mask;

/// Executes the command, or reports the errno that prevented it.
[[noreturn]] void become(const Command& command, int line, pid_t launcher, bool ignores_children) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);
  for (const auto& [name, value] : command.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (command.fixed_addresses) {
    const int before = ::personality(0xffffffff);
    ::personality(static_cast<unsigned long>(before) | ADDR_NO_RANDOMIZE);
  }
  std::vector<char*> words;
  // exec does not modify the words.
  for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  if (ignores_children) ::signal(SIGCHLD, SIG_IGN);
  ::sigprocmask(SIG_SETMASK, &former_mask, nullptr);
  // execvp passes a script without "#!" to the shell.
  ::execvp(command.path.c_str(), words.data());
  const int error = errno;
  static_cast<void>(::write(line, &error, sizeof error) < 0);
  ::_exit(kExitNotExecutable);
}

bool is_job_stop(int number) {
  return number == SIGSTOP || number == SIGTSTP || number == SIGTTIN || number == SIGTTOU;
}

}  // namespace

void occupy_closed_files() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (::fcntl(number, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR | O_CLOEXEC));
  }
}

void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  // Faults of this process must still end it.
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) {
    ::sigdelset(&all, number);
  }
  ::sigprocmask(SIG_BLOCK, &all, &former_mask);
}

Result<Child> Child::start(const Command& command) {
  // An inherited "ignore" of SIGCHLD is passed on to the command; the launcher cannot use it.
  struct sigaction by_default{};
  struct sigaction former{};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &by_default, &former);
  std::array<int, 2> line{};
  if (::pipe2(line.data(), O_CLOEXEC) != 0) {
    return fail(Code::capacity_exceeded, "start the command", "a pipe cannot be created",
                "raise the limit of open files (ulimit -n)", errno);
  }
  const pid_t launcher = ::getpid();
  Child child;
  child.process_id_ = ::fork();
  if (child.process_id_ == 0) {
    ::close(line[0]);
    become(command, line[1], launcher, former.sa_handler == SIG_IGN);
  }
  const int fork_error = errno;
  ::close(line[1]);
  int error = 0;
  ssize_t count = 0;
  do {
    // The pipe closes with the exec.
    count = ::read(line[0], &error, sizeof error);
  } while (count < 0 && errno == EINTR);
  ::close(line[0]);
  if (child.process_id_ < 0) {
    return fail(Code::io_failed, "start the command", "process limit reached", "end some processes",
                fork_error);
  }
  if (count == 0) return child;
  ::waitpid(child.process_id_, nullptr, 0);
  if (error == E2BIG) {
    return fail(Code::capacity_exceeded, "run the command",
                "its arguments and environment, to which the launcher adds its own variables, are "
                "longer than the system allows",
                "pass them in a file, or raise the limit (ulimit -s unlimited)", error);
  }
  return fail(error == ENOENT ? Code::not_found : Code::permission_denied, "run the command",
              "the system refused it", "check the file", error);
}

std::optional<int> Child::wait(const std::function<bool(pid_t)>& ended) {
  sigset_t all;
  ::sigfillset(&all);
  while (true) {
    int status = 0;
    const pid_t changed = ::waitpid(-1, &status, WNOHANG | WUNTRACED);
    if (changed == process_id_) {
      if (!WIFSTOPPED(status)) return status;
      // Stops this process too, so that the shell sees the job stop. A command in another process
      // group is a shell, or manages its stops itself.
      if (is_job_stop(WSTOPSIG(status)) && ::getpgid(process_id_) == ::getpgrp()) {
        ::kill(::getpid(), SIGSTOP);
        ::kill(process_id_, SIGCONT);
      }
      continue;
    }
    if (changed > 0) {
      if (!WIFSTOPPED(status) && ended(changed)) return std::nullopt;
      continue;
    }
    siginfo_t info{};
    const int number = ::sigwaitinfo(&all, &info);
    if (number < 0 || number == SIGCHLD) continue;
    // The terminal signals the whole process group, including the command. On hang-up, it sends
    // SIGHUP to the session leader only.
    const bool is_ours = number == SIGHUP && ::getsid(0) == ::getpid();
    if ((info.si_code == SI_KERNEL && !is_ours) || info.si_pid == process_id_) continue;
    ::kill(process_id_, number);  // Not reaped yet, so the number is still valid.
  }
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

void complain(const std::string& sentence) {
  const std::string line = fmt::format("headrace: {}\n", sentence);
  // With stderr closed, only the exit code reports it.
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace headrace::launch
