// SPDX-License-Identifier: Apache-2.0
// Portals are mapped and their files closed again: the program may close every file descriptor it
// finds, and a descriptor of ours that it reused for one of its files would be written to. So
// queues are used through their portal only, not by write(). A dedicated queue belongs to the first
// process that opens it until that process ends, so it is opened at the first long copy: shells and
// launchers make none, and leave it to the programs that they start.
#include "inject/copy/device.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "headrace/base/clock.hpp"
#include "headrace/dsa/portal.hpp"
#include "headrace/platform/attribute.hpp"
#include "headrace/platform/process.hpp"
#include "inject/copy/program.hpp"

namespace headrace::preload {
namespace {

constexpr const char* kDirectory = "/dev/dsa";
constexpr std::size_t kPathMax = 40;
/// Default time to wait for a device, in processor time of the waiting thread. Longer than the
/// engine's: after a time-out the program may reuse the memory at once.
constexpr std::uint64_t kAnswerSecondsMax = 60;

/// What a child reopens. Written by the constructor, read by children of fork.
struct Found {
  std::array<std::array<char, kPathMax>, kPortalMax> paths;
  std::array<std::uint32_t, kPortalMax> entry_counts;  ///< As in Device.
  std::uint32_t count;
  std::uint64_t piece_bytes_max;
  std::uint64_t pauses_max;
  std::uint32_t write_flags;
  std::uint64_t generation;  ///< Of the last process that opened the portals.
};
constinit Found found{};

/// A sysfs attribute of a queue or device.
std::string attribute(std::string_view queue, const char* name) {
  return platform::load_attribute(fmt::format("/sys/bus/dsa/devices/{}/{}", queue, name))
      .value_or("");
}

/// A numeric attribute; 0 if it is not a number.
std::uint64_t number_of(std::string_view queue, const char* name) {
  return platform::parse_number(attribute(queue, name)).value_or(0);
}

/// Whether the queue's attributes allow its use.
bool is_suitable(std::string_view queue, std::uint32_t& entry_count,
                 std::uint64_t& piece_bytes_max) {
  const std::string mode = attribute(queue, "mode");
  entry_count = 0;
  if (mode == "dedicated") {
    entry_count = static_cast<std::uint32_t>(number_of(queue, "size"));
    if (entry_count < 2) return false;  // One is reserved for a drain.
  } else if (mode != "shared") {
    return false;
  }
  const std::uint64_t bytes_max = number_of(queue, "max_transfer_size");
  if (bytes_max < kDeviceBytesMin) return false;
  // The length in a descriptor has 32 bits.
  constexpr std::uint64_t kLengthMax = std::uint64_t{1} << 31U;
  piece_bytes_max = std::min(piece_bytes_max, std::min(bytes_max, kLengthMax) & ~std::uint64_t{63});
  return true;
}

/// Whether the queue's device can write into the cache; yes if unknown.
bool has_cache_control(std::string_view queue) {
  const std::size_t dot = std::min(queue.find('.'), queue.size());
  const std::string text = attribute(fmt::format("dsa{}", queue.substr(2, dot - 2)), "gen_cap");
  const std::string_view digits = std::string_view(text).substr(text.starts_with("0x") ? 2 : 0);
  const auto capabilities = platform::parse_number(digits, 16);
  return !capabilities || (*capabilities & dsa::capability::cache_control_of_writes) != 0;
}

/// Maps the portal `path`; null if this process may not.
std::byte* map_portal(const char* path) noexcept {
  const int file = ::open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return nullptr;
  void* const page = ::mmap(nullptr, kPageBytes, PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return page == MAP_FAILED ? nullptr : static_cast<std::byte*>(page);
}

/// Calls `visit` with each name in the directory. Not opendir, which allocates with the program's
/// malloc.
template <typename Visit>
void for_each_name(const char* directory, Visit visit) {
  const int file = ::open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  alignas(8) std::array<char, 4096> buffer;
  for (;;) {
    const long got = ::syscall(SYS_getdents64, file, buffer.data(), buffer.size());
    if (got <= 0) break;
    for (long at = 0; at < got;) {
      // struct linux_dirent64: two words, the length of the entry, its type, its name.
      std::uint16_t entry_bytes = 0;
      __builtin_memcpy(&entry_bytes, buffer.data() + at + 16, sizeof entry_bytes);
      visit(std::string_view(buffer.data() + at + 19));
      at += entry_bytes;
    }
  }
  ::close(file);
}

/// HEADRACE_ANSWER_SECONDS, 1 to 86400; otherwise the default, with the reason in `note`.
std::uint64_t answer_seconds_max(std::string& note) {
  const std::string text = platform::trusted_variable("HEADRACE_ANSWER_SECONDS").value_or("");
  const auto seconds = platform::parse_number(text);
  if (seconds && *seconds >= 1 && *seconds <= 86'400) return *seconds;
  if (!text.empty()) {
    note += fmt::format(
        "; a device may be silent for {} s: HEADRACE_ANSWER_SECONDS is '{}', not 1 to 86400",
        kAnswerSecondsMax, text);
  }
  return kAnswerSecondsMax;
}

/// Number of pauses in the longest wait. The minimum of several measurements, because others were
/// interrupted.
std::uint64_t measure_pauses_max(std::uint64_t seconds) {
  constexpr std::uint64_t kPauses = 256;
  auto least = std::chrono::nanoseconds::max();
  for (int i = 0; i < 5; ++i) {
    const std::chrono::nanoseconds begin = SteadyClock::now();
    for (std::uint64_t j = 0; j < kPauses; ++j) platform::pause();
    least = std::min(least, SteadyClock::now() - begin);
  }
  const auto least_ns = static_cast<std::uint64_t>(std::max(least.count(), std::int64_t{1}));
  return seconds * 1'000'000'000 / least_ns * kPauses;
}

/// The file on stderr when the program started; no inode: closed.
struct stat messages_at_start{};

/// Opens the shared queues. Also runs in a child of fork, so it makes only system calls.
void open_found(Device& device) noexcept {
  std::uint32_t count = 0;
  bool has_dedicated = false;
  for (std::uint32_t i = 0; i < found.count; ++i) {
    if (found.entry_counts[i] != 0) {
      has_dedicated = has_dedicated || ::access(found.paths[i].data(), R_OK | W_OK) == 0;
    } else if (std::byte* const portal = map_portal(found.paths[i].data()); portal != nullptr) {
      device.portals[count++] = portal;
    }
  }
  if (count == 0 && !has_dedicated) return;
  device.portal_count.store_relaxed(count);  // Published by `usable`, as everything here.
  device.unopened.store_relaxed(has_dedicated);
  device.piece_bytes_max = found.piece_bytes_max;
  device.pauses_max = found.pauses_max;
  device.drain_pauses_max = found.pauses_max;
  device.write_flags = found.write_flags;
  device.share.store_relaxed(kShareUnits / 2);  // Published by `usable`, as is this:
  device.generation.store_relaxed(++found.generation);
  // edge: device-opened (release)
  device.usable.store_release(true);
}

/// Runs in a child of fork, which has none of the portals, and zeros in place of the devices. A
/// child of vfork shares its parent's memory and uses its portals; a child of a raw clone has no
/// devices.
void open_in_child() noexcept {
  Device* const device = program.device;
  if (device == nullptr) return;
  // A seccomp filter may kill the process for a system call that the program itself does not make.
  if (::prctl(PR_GET_SECCOMP) != 0) return;
  open_found(*device);
}

}  // namespace

std::uint32_t open_dedicated(Device& device) noexcept {
  bool is_unopened = true;  // Relaxed: one thread wins; portal_count orders it with the others.
  if (!device.unopened.compare_exchange_relaxed(is_unopened, false)) return 0;
  const int error = errno;
  int cancel_state = 0;
  // A copy is not a cancellation point; open() is.
  ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  const std::uint64_t generation = device.generation.load_relaxed();
  const std::uint32_t before = device.portal_count.load_relaxed();  // Only this thread writes it.
  std::uint32_t count = before;
  std::uint32_t taken = 0;
  // As in open_in_child().
  const bool may_open = ::prctl(PR_GET_SECCOMP) == 0;
  for (std::uint32_t i = 0; may_open && i < found.count && count < kPortalMax; ++i) {
    if (found.entry_counts[i] == 0) continue;
    errno = 0;
    std::byte* const portal = map_portal(found.paths[i].data());
    if (portal == nullptr) {
      taken += errno == EBUSY ? 1 : 0;
      continue;
    }
    device.entry_counts[count] = found.entry_counts[i];
    device.portals[count++] = portal;
  }
  // If a handler has forked meanwhile, this is the child, with devices already reopened.
  if (device.generation.load_relaxed() == generation) {
    // edge: device-opened (release)
    device.portal_count.store_release(count);
    if (count == 0) device.usable.store_relaxed(false);  // Advice.
    if (before == 0 && count != 0 && program.counters != nullptr) {
      program.counters->device_count.fetch_add_relaxed(1);  // relaxed: a sum, see Cell.
    }
  }
  ::pthread_setcancelstate(cancel_state, nullptr);
  errno = error;
  return taken;
}

void say(std::string_view line) noexcept {
  struct stat now{};
  // The program may have closed stderr and opened a data file under its number.
  if (messages_at_start.st_ino == 0 || ::fstat(STDERR_FILENO, &now) != 0 ||
      now.st_dev != messages_at_start.st_dev || now.st_ino != messages_at_start.st_ino) {
    return;
  }
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

Device* open_devices(bool dedicated_too, std::string& note) {
  if (::fstat(STDERR_FILENO, &messages_at_start) != 0) messages_at_start = {};
  found.piece_bytes_max = UINT64_MAX;
  const bool into_cache = platform::trusted_variable("HEADRACE_INTO_CACHE").value_or("0") == "1";
  if (into_cache) found.write_flags = dsa::flag::cache_control;
  std::size_t seen = 0;
  for_each_name(kDirectory, [&](std::string_view name) {
    if (!name.starts_with("wq") || found.count == kPortalMax) return;
    ++seen;
    const std::string path = fmt::format("{}/{}", kDirectory, name);
    std::uint32_t& entry_count = found.entry_counts[found.count];
    if (path.size() >= kPathMax || !is_suitable(name, entry_count, found.piece_bytes_max)) return;
    if (entry_count != 0 && !dedicated_too) return;
    path.copy(found.paths[found.count++].data(), kPathMax - 1);
    if (into_cache && !has_cache_control(name)) found.write_flags = 0;
  });
  if (found.count == 0) {
    note = "no DSA work queue can be used: they are disabled, or not of type user";
    if (!dedicated_too) note = "no DSA work queue is shared: dedicated ones need '--path dsa'";
    if (seen == 0) note = "there is no DSA work queue";
    return nullptr;
  }
  constexpr std::size_t kBytes = (sizeof(Device) + kPageBytes - 1) / kPageBytes * kPageBytes;
  void* const memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    note = "out of memory for DSA";
    return nullptr;
  }
  auto* const device = static_cast<Device*>(memory);  // All zero means no devices.
  std::string answer_note;
  found.pauses_max = measure_pauses_max(answer_seconds_max(answer_note));
  if (::madvise(memory, kBytes, MADV_WIPEONFORK) == 0) open_found(*device);
  const std::uint32_t shared_count = device->portal_count.load_relaxed();  // As in open_found().
  const bool has_dedicated = device->unopened.load_relaxed();
  if (shared_count == 0 && !has_dedicated) {
    ::munmap(memory, kBytes);
    note = "no DSA work queue can be mapped: 'headrace doctor' shows why";
    return nullptr;
  }
  // If this fails, children copy with the processor alone.
  static_cast<void>(::pthread_atfork(nullptr, nullptr, &open_in_child));
  if (shared_count != 0) {
    note = fmt::format("{} DSA work queue{}", shared_count, shared_count == 1 ? "" : "s");
    if (has_dedicated) note += " and dedicated ones that no other process uses";
  } else {
    note = "dedicated DSA work queues that no other process uses";
  }
  if (into_cache && found.write_flags == 0) note += ", which cannot write into the cache";
  note += answer_note;
  return device;
}

}  // namespace headrace::preload
