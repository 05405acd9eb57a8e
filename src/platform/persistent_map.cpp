// SPDX-License-Identifier: Apache-2.0
// Persistent mappings, and the SIGBUS handler for mapped pages that vanish.
#include <fmt/format.h>
#include <libpmem2.h>
#include <sys/mman.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <utility>

#include "headrace/base/check.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/shared_file.hpp"

namespace headrace::platform {

namespace {

template <typename Handle, int (*kDelete)(Handle**)>
struct Deleter {
  void operator()(Handle* handle) const { kDelete(&handle); }
};
using Source = std::unique_ptr<pmem2_source, Deleter<pmem2_source, pmem2_source_delete>>;
using Config = std::unique_ptr<pmem2_config, Deleter<pmem2_config, pmem2_config_delete>>;

Failure describe(const std::string& tried, int code) {
  if (code == PMEM2_E_INVALID_FILE_TYPE) {
    return fail(Code::invalid_argument, tried, "it is a device, and not one of persistent memory",
                "name a file, or a device such as /dev/dax0.0");
  }
  const std::string cause = fmt::format("libpmem2: {}", pmem2_errormsg());
  const Code kind =
      code == -ENOMEM || code == PMEM2_E_LENGTH_UNALIGNED ? Code::out_of_memory : Code::io_failed;
  return fail(kind, tried, cause, "check the file and its permissions");
}

}  // namespace

Result<PersistentMap> PersistentMap::map(const SharedFile& file, bool writable) {
  const std::string tried = fmt::format("map '{}'", file.path());
  pmem2_source* raw_source = nullptr;
  if (const int code = pmem2_source_from_fd(&raw_source, file.descriptor()); code != 0) {
    return describe(tried, code);
  }
  const Source source(raw_source);
  std::size_t byte_count = 0;
  if (const int code = pmem2_source_size(source.get(), &byte_count); code != 0) {
    return describe(tried, code);
  }
  if (byte_count == 0) {
    return fail(Code::invalid_argument, tried, "it is empty", "name another file");
  }
  pmem2_config* raw_config = nullptr;
  if (const int code = pmem2_config_new(&raw_config); code != 0) return describe(tried, code);
  const Config config(raw_config);
  const unsigned protection =
      writable ? unsigned{PMEM2_PROT_READ} | unsigned{PMEM2_PROT_WRITE} : unsigned{PMEM2_PROT_READ};
  int code = pmem2_config_set_required_store_granularity(config.get(), PMEM2_GRANULARITY_PAGE);
  if (code == 0) code = pmem2_config_set_protection(config.get(), protection);
  pmem2_map* map = nullptr;
  if (code == 0) code = pmem2_map_new(&map, config.get(), source.get());
  if (code != 0) return describe(tried, code);
  return PersistentMap(map);
}

void PersistentMap::Unmap::operator()(pmem2_map* map) const {
  pmem2_map_delete(&map);
}

std::span<std::byte> PersistentMap::bytes() const {
  return {static_cast<std::byte*>(pmem2_map_get_address(map_.get())),
          pmem2_map_get_size(map_.get())};
}

StoreGranularity PersistentMap::granularity() const {
  static_assert(PMEM2_GRANULARITY_PAGE == static_cast<int>(StoreGranularity::page));
  return static_cast<StoreGranularity>(pmem2_map_get_store_granularity(map_.get()));
}

/// A guarded range. The handler may run at any moment, so a slot is in use from the store of
/// `begin`, which comes last, until `begin` is 0 again. Slots are reused and never freed.
struct FaultGuard::Slot {
  Atomic<std::uintptr_t> begin{0};
  Atomic<std::uintptr_t> end{0};
  Atomic<std::uint32_t>* fault = nullptr;
  std::uint32_t value = 0;
  Slot* next = nullptr;       ///< In the list of all; fixed once it is listed.
  Slot* next_free = nullptr;  ///< Under the mutex.

  /// May be false for an address of a guard that is being set or removed; never for one whose
  /// memory the interrupted code may access.
  [[nodiscard]] bool holds(std::uintptr_t address) const {
    const std::uintptr_t first = begin.load_acquire();  // edge: fault-guard (acquire)
    if (first == 0 || address < first) return false;
    if (address >= end.load_acquire()) return false;  // edge: fault-guard-end (acquire)
    // Unchanged, so both belong to one guard: a later guard stores its end after this was 0.
    return begin.load_relaxed() == first;
  }
};

namespace {

Atomic<FaultGuard::Slot*> guard_slots{nullptr};  ///< The newest.
Mutex guard_mutex;
FaultGuard::Slot* free_slots HEADRACE_GUARDED_BY(guard_mutex) = nullptr;
struct sigaction previous_action;  // Written before our handler is installed.

/// True for a signal raised by a faulting instruction: it recurs when the handler returns. Other
/// signals were sent and arrive once.
bool is_of_instruction(const siginfo_t& info) {
  return info.si_code > 0 && info.si_code != BUS_MCEERR_AO;
}

void pass_on(int number, siginfo_t* info, void* context) {
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    return previous_action.sa_sigaction(number, info, context);
  }
  const bool is_ignored = previous_action.sa_handler == SIG_IGN;
  if (is_of_instruction(*info) && (is_ignored || previous_action.sa_handler == SIG_DFL)) {
    // The access is retried when we return, and then kills the process.
    ::signal(number, SIG_DFL);
  } else if (previous_action.sa_handler == SIG_DFL) {
    ::signal(number, SIG_DFL);
    ::raise(number);  // Blocked until we return.
  } else if (!is_ignored) {
    previous_action.sa_handler(number);
  }
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  // A signal sent by kill() has no address.
  const auto address =
      info->si_code > 0 ? reinterpret_cast<std::uintptr_t>(info->si_addr) : std::uintptr_t{0};
  // edge: fault-guard (acquire)
  for (const FaultGuard::Slot* slot = guard_slots.load_acquire(); slot != nullptr;
       slot = slot->next) {
    if (!slot->holds(address)) continue;
    const std::uintptr_t page = address / page_bytes() * page_bytes();
    // A direct system call, as async-signal safety requires.
    if (::mmap(reinterpret_cast<void*>(page), page_bytes(), PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
      break;
    }
    std::uint32_t none = 0;
    // relaxed: this thread reads it later; other readers need no particular moment.
    slot->fault->compare_exchange_relaxed(none, slot->value);
    errno = saved_errno;
    return;
  }
  errno = saved_errno;
  pass_on(number, info, context);
}

void put_handler_in_place() {
  static const bool kDone = [] {
    static_cast<void>(page_bytes());  // Cached before the handler needs it.
    struct sigaction action{};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    // Save the previous action first: our handler may run at once on another thread.
    ::sigaction(SIGBUS, nullptr, &previous_action);
    ::sigaction(SIGBUS, &action, nullptr);
    return true;
  }();
  static_cast<void>(kDone);
}

}  // namespace

FaultGuard::FaultGuard(std::span<std::byte> range, Atomic<std::uint32_t>& fault,
                       std::uint32_t value) {
  put_handler_in_place();
  const Lock lock(guard_mutex);
  if (free_slots == nullptr) {
    free_slots = new Slot;
    free_slots->next = guard_slots.load_relaxed();  // Written only under the mutex.
    // edge: fault-guard (release)
    guard_slots.store_release(free_slots);
  }
  slot_ = free_slots;
  free_slots = slot_->next_free;
  slot_->fault = &fault;
  slot_->value = value;
  const auto begin = reinterpret_cast<std::uintptr_t>(range.data());
  // edge: fault-guard-end (release)
  slot_->end.store_release(begin + range.size());
  // edge: fault-guard (release)
  slot_->begin.store_release(begin);
}

FaultGuard::~FaultGuard() {
  const Lock lock(guard_mutex);
  // edge: fault-guard (release)
  slot_->begin.store_release(0);
  slot_->next_free = free_slots;
  free_slots = slot_;
}

}  // namespace headrace::platform
