// SPDX-License-Identifier: Apache-2.0
// Programs that handle SIGILL, SIGSEGV and SIGBUS themselves.
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#include <thread>

#include "client.hpp"

namespace hostile {
namespace {

volatile int counted = 0;
void* volatile shared_portal = nullptr;
sigjmp_buf jump;

/// Steps over the two bytes of ud2.
void count_ud2(int, siginfo_t* info, void* context) {
  EXPECT(info->si_signo == SIGILL);
  counted = counted + 1;
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP] += 2;
}

void handle(int signal, void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action{};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  ::sigfillset(&action.sa_mask);
  EXPECT(::sigaction(signal, &action, nullptr) == 0);
}

/// Runs `work` in a child and returns its wait status.
template <typename Work>
int ending(Work work) {
  const pid_t child = ::fork();
  EXPECT(child >= 0);
  if (child == 0) {
    work();
    std::_Exit(0);
  }
  int ended = 0;
  EXPECT(::waitpid(child, &ended, 0) == child);
  return ended;
}

SCENARIO(own_handler_of_sigill) {
  handle(SIGILL, count_ud2, 0);
  void* portal = open_portal("wq0.0");
  for (int i = 0; i < 100; ++i) {
    asm volatile("ud2");
    expect_works(portal);
  }
  EXPECT(counted == 100);
  struct sigaction shown{};
  EXPECT(::sigaction(SIGILL, nullptr, &shown) == 0);
  EXPECT(shown.sa_sigaction == count_ud2 && (shown.sa_flags & SA_SIGINFO) != 0);
  EXPECT(::sigismember(&shown.sa_mask, SIGSEGV) == 1);
  return 0;
}

SCENARIO(blocked_signals) {
  void* portal = open_portal("wq0.0");
  sigset_t all;
  sigset_t former;
  ::sigfillset(&all);
  EXPECT(::pthread_sigmask(SIG_SETMASK, &all, &former) == 0);
  EXPECT(::sigismember(&former, SIGILL) == 0);
  expect_works(portal);
  sigset_t now;
  EXPECT(::sigprocmask(SIG_BLOCK, nullptr, &now) == 0);
  EXPECT(::sigismember(&now, SIGILL) == 1 && ::sigismember(&now, SIGSEGV) == 1);
  // A thread inherits the mask, and submits as well.
  std::thread([portal] {
    sigset_t inherited;
    EXPECT(::pthread_sigmask(SIG_BLOCK, nullptr, &inherited) == 0);
    EXPECT(::sigismember(&inherited, SIGILL) == 1);
    expect_works(portal);
  }).join();
  // A blocked SIGILL that an instruction raises ends the process, handler or not.
  const int ended = ending([] {
    handle(SIGILL, count_ud2, 0);
    asm volatile("ud2");
  });
  EXPECT(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGILL);
  EXPECT(::pthread_sigmask(SIG_SETMASK, &former, &now) == 0);
  EXPECT(::sigismember(&now, SIGBUS) == 1);
  EXPECT(::pthread_sigmask(SIG_SETMASK, nullptr, &now) == 0);
  EXPECT(::sigismember(&now, SIGBUS) == 0);
  return 0;
}

void count_sent(int, siginfo_t* info, void*) {
  EXPECT(info->si_code <= 0);
  counted = counted + 1;
}

SCENARIO(faults_that_somebody_sends) {
  handle(SIGSEGV, count_sent, 0);
  // Two at a time, so that the second may arrive at any instruction of the first one's delivery.
  const pthread_t target = ::pthread_self();
  volatile bool over = false;
  std::thread sender([target, &over] {
    for (int i = 0; i < 100; ++i) {
      const int before = counted;
      EXPECT(::pthread_kill(target, SIGSEGV) == 0 && ::pthread_kill(target, SIGSEGV) == 0);
      const double limit = seconds() + 60;
      for (; counted == before; ::sched_yield()) EXPECT(seconds() < limit);
    }
    over = true;
  });
  while (!over) ::sched_yield();
  sender.join();
  EXPECT(counted > 0);
  expect_works(open_portal("wq0.0"));
  return 0;
}

void submit_in_handler(int) {
  expect_works(shared_portal);
  counted = counted + 1;
}

SCENARIO(submission_in_a_handler_on_8_kib) {
  shared_portal = open_portal("wq0.0");
  alignas(64) static char stack[8192];
  const stack_t alternate{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof(stack)};
  EXPECT(::sigaltstack(&alternate, nullptr) == 0);
  struct sigaction action{};
  action.sa_handler = submit_in_handler;
  action.sa_flags = SA_ONSTACK;
  ::sigfillset(&action.sa_mask);
  EXPECT(::sigaction(SIGUSR1, &action, nullptr) == 0);
  // The program's SIGILL handler is on that stack too.
  handle(SIGILL, count_ud2, SA_ONSTACK);
  handle(SIGSEGV, count_ud2, SA_ONSTACK);
  for (int i = 0; i < 50; ++i) {
    EXPECT(::raise(SIGUSR1) == 0);
    expect_works(shared_portal);
    asm volatile("ud2");
  }
  EXPECT(counted == 100);
  stack_t now{};
  EXPECT(::sigaltstack(nullptr, &now) == 0);
  EXPECT(now.ss_sp == stack && now.ss_size == sizeof(stack) && now.ss_flags == 0);
  return 0;
}

SCENARIO(handlers_interrupt_submissions_anywhere) {
  shared_portal = open_portal("wq0.0");
  struct sigaction action{};
  action.sa_handler = submit_in_handler;
  EXPECT(::sigaction(SIGUSR1, &action, nullptr) == 0);
  const pthread_t target = ::pthread_self();
  volatile bool over = false;
  std::thread sender([target, &over] {
    for (int i = 0; i < 500; ++i) {
      const int before = counted;
      EXPECT(::pthread_kill(target, SIGUSR1) == 0);
      const double limit = seconds() + kWaitSeconds;
      for (; counted == before; ::sched_yield()) EXPECT(seconds() < limit);
    }
    over = true;
  });
  while (!over) expect_works(shared_portal);
  sender.join();
  return 0;
}

void jump_out(int, siginfo_t* info, void*) {
  static_cast<void>(info);
  siglongjmp(jump, 1);
}

SCENARIO(siglongjmp_out_of_a_handler) {
  void* portal = open_portal("wq0.0");
  struct sigaction action{};
  action.sa_sigaction = jump_out;
  action.sa_flags = SA_SIGINFO;
  EXPECT(::sigaction(SIGSEGV, &action, nullptr) == 0);
  static int i;
  for (i = 0; i < 1000; ++i) {
    if (sigsetjmp(jump, 1) == 0) {
      *static_cast<volatile int*>(nullptr) = 1;
      EXPECT(false);
    }
    sigset_t now;
    EXPECT(::sigprocmask(SIG_BLOCK, nullptr, &now) == 0);
    EXPECT(::sigismember(&now, SIGSEGV) == 0);
    if (i % 10 == 0) expect_works(portal);
  }
  return 0;
}

SCENARIO(older_calls_for_handlers) {
  void* portal = open_portal("wq0.0");
  EXPECT(::signal(SIGILL, SIG_IGN) == SIG_DFL);
  expect_works(portal);
  EXPECT(::signal(SIGILL, SIG_DFL) == SIG_IGN);
  EXPECT(::sysv_signal(SIGSEGV, SIG_IGN) == SIG_DFL);
  expect_works(portal);
  struct sigaction shown{};
  EXPECT(::sigaction(SIGSEGV, nullptr, &shown) == 0 && shown.sa_handler == SIG_IGN);
  EXPECT((static_cast<unsigned>(shown.sa_flags) & SA_RESETHAND) != 0);
  struct sigaction action{};
  action.sa_sigaction = count_ud2;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESETHAND);
  EXPECT(::sigaction(SIGILL, &action, nullptr) == 0);
  asm volatile("ud2");
  EXPECT(counted == 1);
  EXPECT(::sigaction(SIGILL, nullptr, &shown) == 0 && shown.sa_handler == SIG_DFL);
  expect_works(portal);
  return 0;
}

SCENARIO(endings_are_the_true_ones) {
  void* portal = open_portal("wq0.0");
  expect_works(portal);
  int ended = ending([] { asm volatile("ud2"); });
  EXPECT(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGILL);
  ended = ending([] { *static_cast<volatile int*>(nullptr) = 1; });
  EXPECT(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGSEGV);
  ended = ending([] { ::raise(SIGBUS); });
  EXPECT(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGBUS);
  ended = ending([] {
    ::signal(SIGSEGV, SIG_IGN);
    ::raise(SIGSEGV);  // Sent: ignored.
    *static_cast<volatile int*>(nullptr) = 1;
  });
  EXPECT(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGSEGV);
  // A handler that repeats the fault ends the process.
  ended = ending([] {
    handle(SIGSEGV, [](int, siginfo_t*, void*) { *static_cast<volatile int*>(nullptr) = 2; }, 0);
    *static_cast<volatile int*>(nullptr) = 1;
  });
  EXPECT(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGSEGV);
  // An unmapped descriptor is a page fault at its address.
  ended = ending([] {
    handle(
        SIGSEGV,
        [](int, siginfo_t* info, void*) {
          std::_Exit(info->si_addr == reinterpret_cast<void*>(0x1000) ? 42 : 1);
        },
        0);
    void* own = open_portal("wq0.0");
    static_cast<void>(enqcmd(own, *reinterpret_cast<const Descriptor*>(0x1000)));
  });
  EXPECT(WIFEXITED(ended) && WEXITSTATUS(ended) == 42);
  ended = ending([] {
    void* own = open_portal("wq0.0");
    static_cast<void>(enqcmd(own, *reinterpret_cast<const Descriptor*>(0x1000)));
  });
  EXPECT(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGSEGV);
  // A child of fork does not inherit the portal.
  ended = ending([portal] {
    Record record;
    static_cast<void>(enqcmd(portal, noop(record)));
  });
  EXPECT(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGSEGV);
  // The privileged form, and a misaligned portal address.
  ended = ending([] {
    void* own = open_portal("wq0.0");
    Record record;
    const Descriptor descriptor = noop(record);
    asm volatile("enqcmds (%1), %0" : : "r"(own), "r"(&descriptor) : "memory", "cc");
  });
  EXPECT(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGSEGV);
  ended = ending([] {
    Record record;
    static_cast<void>(enqcmd(static_cast<char*>(open_portal("wq0.0")) + 8, noop(record)));
  });
  EXPECT(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGSEGV);
  return 0;
}

// The preload does not see this: its handler is gone, and the next submission is an illegal
// instruction.
SCENARIO(raw_rt_sigaction_escapes) {
  const int ended = ending([] {
    void* portal = open_portal("wq0.0");
    expect_works(portal);
    struct {
      void (*handler)(int);
      unsigned long flags;
      void (*restorer)();
      unsigned long mask;
    } raw{};
    EXPECT(::syscall(SYS_rt_sigaction, SIGILL, &raw, nullptr, 8) == 0);
    expect_works(portal);
  });
  EXPECT(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGILL);
  return 0;
}

// With the access trap forced: the signal that a CPU with the instruction would raise, in a program
// that has replaced our handler.
SCENARIO(the_access_is_what_faults) {
  static void* portal = open_portal("wq0.0");
  expect_works(portal);
  const int ended = ending([] {
    portal = open_portal("wq0.0");
    static const auto look = [](int, siginfo_t* info, void*) {
      std::_Exit(info->si_addr == portal && info->si_code == SEGV_ACCERR ? 42 : 1);
    };
    struct {
      void (*handler)(int, siginfo_t*, void*);
      unsigned long flags;
      void (*restorer)();
      unsigned long mask;
    } raw{look, SA_SIGINFO | 0x0400'0000, [] {}, 0};
    EXPECT(::syscall(SYS_rt_sigaction, SIGSEGV, &raw, nullptr, 8) == 0);
    expect_works(portal);
  });
  EXPECT(WIFEXITED(ended) && WEXITSTATUS(ended) == 42);
  return 0;
}

}  // namespace
}  // namespace hostile
