// SPDX-License-Identifier: Apache-2.0
// Hooks of the calls that set or return a signal mask: the three signals are never blocked, their
// proxies are (inject/trap/signals.hpp).
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <csignal>

#include "inject/trap/connection.hpp"
#include "inject/trap/next.hpp"
#include "inject/trap/signals.hpp"

namespace headrace::emu {
namespace {

using SetMask = int(int, const sigset_t*, sigset_t*);

HEADRACE_NEXT<SetMask> next_sigprocmask("sigprocmask");
HEADRACE_NEXT<SetMask> next_pthread_sigmask("pthread_sigmask");
HEADRACE_NEXT<int(pthread_attr_t*, const sigset_t*)> next_setsigmask("pthread_attr_setsigmask_np");
HEADRACE_NEXT<int(const pthread_attr_t*, sigset_t*)> next_getsigmask("pthread_attr_getsigmask_np");
HEADRACE_NEXT<int(const sigset_t*)> next_sigsuspend("sigsuspend");
HEADRACE_NEXT<int(pollfd*, nfds_t, const timespec*, const sigset_t*)> next_ppoll("ppoll");
HEADRACE_NEXT<int(pollfd*, nfds_t, const timespec*, const sigset_t*, std::size_t)>
    next_ppoll_checked("__ppoll_chk");
HEADRACE_NEXT<int(int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*)> next_pselect(
    "pselect");
HEADRACE_NEXT<int(int, epoll_event*, int, int, const sigset_t*)> next_epoll_pwait("epoll_pwait");
HEADRACE_NEXT<int(int, epoll_event*, int, const timespec*, const sigset_t*)> next_epoll_pwait2(
    "epoll_pwait2");

/// The kernel form of a program's set, for the duration of a call.
///
/// Threading: owned.
class Changed {
 public:
  explicit Changed(const sigset_t* asked) {
    if (asked == nullptr) return;
    set_ = *asked;
    if (emulated()) set_word(set_, to_kernel(word_of(set_)));
    given_ = &set_;
  }
  [[nodiscard]] const sigset_t* get() const { return given_; }

 private:
  sigset_t set_{};
  const sigset_t* given_ = nullptr;
};

void show(sigset_t* kept) {
  if (kept != nullptr && emulated()) set_word(*kept, to_program(word_of(*kept)));
}

int change_mask(Next<SetMask>& next, int how, const sigset_t* asked, sigset_t* former) noexcept {
  const Changed changed(asked);
  const int result = next(how, changed.get(), former);
  if (result == 0) show(former);
  return result;
}

}  // namespace

extern "C" {

HEADRACE_HOOK int sigprocmask(int how, const sigset_t* asked, sigset_t* former) noexcept {
  return change_mask(next_sigprocmask, how, asked, former);
}
HEADRACE_HOOK int pthread_sigmask(int how, const sigset_t* asked, sigset_t* former) noexcept {
  return change_mask(next_pthread_sigmask, how, asked, former);
}
HEADRACE_HOOK int pthread_attr_setsigmask_np(pthread_attr_t* attributes, const sigset_t* asked) {
  return next_setsigmask(attributes, Changed(asked).get());
}
HEADRACE_HOOK int pthread_attr_getsigmask_np(const pthread_attr_t* attributes, sigset_t* kept) {
  const int result = next_getsigmask(attributes, kept);
  if (result == 0) show(kept);
  return result;
}

// These sleep with a temporary mask, under which handlers run.
HEADRACE_HOOK int sigsuspend(const sigset_t* mask) {
  return next_sigsuspend.get()(Changed(mask).get());
}
HEADRACE_HOOK int ppoll(pollfd* files, nfds_t count, const timespec* limit, const sigset_t* mask) {
  return next_ppoll.get()(files, count, limit, Changed(mask).get());
}
HEADRACE_HOOK int __ppoll_chk(pollfd* files, nfds_t count, const timespec* limit,
                              const sigset_t* mask, std::size_t files_bytes) {
  return next_ppoll_checked.get()(files, count, limit, Changed(mask).get(), files_bytes);
}
HEADRACE_HOOK int pselect(int count, fd_set* read, fd_set* write, fd_set* other,
                          const timespec* limit, const sigset_t* mask) {
  return next_pselect.get()(count, read, write, other, limit, Changed(mask).get());
}
HEADRACE_HOOK int epoll_pwait(int file, epoll_event* events, int count, int limit,
                              const sigset_t* mask) {
  return next_epoll_pwait.get()(file, events, count, limit, Changed(mask).get());
}
HEADRACE_HOOK int epoll_pwait2(int file, epoll_event* events, int count, const timespec* limit,
                               const sigset_t* mask) {
  return next_epoll_pwait2.get()(file, events, count, limit, Changed(mask).get());
}

}  // extern "C"
}  // namespace headrace::emu
