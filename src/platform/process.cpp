// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/process.hpp"

#include <pthread.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstdlib>

namespace headrace::platform {

std::uint64_t process_id() {
  return static_cast<std::uint64_t>(::getpid());
}

std::uint64_t thread_id() {
  return static_cast<std::uint64_t>(::gettid());
}

bool has_borrowed_rights() {
  return ::getauxval(AT_SECURE) != 0;
}

std::optional<std::string> trusted_variable(const char* name) {
  if (has_borrowed_rights()) return std::nullopt;
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

namespace detail {
Atomic<std::uint32_t> fork_count{0};
}  // namespace detail

void watch_forks() noexcept {
  // If the C library has no memory for the handler, forks go undetected.
  static const int kRegistered = ::pthread_atfork(nullptr, nullptr, [] {
    detail::fork_count.fetch_add_relaxed(1); /* One thread. */
  });
  static_cast<void>(kRegistered);
}

namespace {

/// Not Mutex: fork() locks it in one function and unlocks it in another. Guards the list.
pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
ForkGuard* first_guard = nullptr;

}  // namespace

void close_in_child() noexcept {
  for (ForkGuard* guard = first_guard; guard != nullptr; guard = guard->next_) {
    ::close(guard->descriptor_);
    guard->fault_.store_relaxed(guard->value_);  // One thread.
  }
  ::pthread_mutex_unlock(&list_mutex);
}

ForkGuard::ForkGuard(int descriptor, Atomic<std::uint32_t>& fault, std::uint32_t value)
    : descriptor_(descriptor), fault_(fault), value_(value) {
  static const int kRegistered =
      ::pthread_atfork([] { ::pthread_mutex_lock(&list_mutex); },
                       [] { ::pthread_mutex_unlock(&list_mutex); }, close_in_child);
  static_cast<void>(kRegistered);
  ::pthread_mutex_lock(&list_mutex);
  next_ = first_guard;
  before_ = &first_guard;
  if (next_ != nullptr) next_->before_ = &next_;
  first_guard = this;
  ::pthread_mutex_unlock(&list_mutex);
}

ForkGuard::~ForkGuard() {
  ::pthread_mutex_lock(&list_mutex);
  *before_ = next_;
  if (next_ != nullptr) next_->before_ = before_;
  ::pthread_mutex_unlock(&list_mutex);
}

}  // namespace headrace::platform
