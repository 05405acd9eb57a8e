// SPDX-License-Identifier: Apache-2.0
// Shared by all hostile clients, without Headrace code: the submission instructions, a portal, a
// bounded wait. A failed expectation ends the process with its text.
#pragma once

#include <fcntl.h>
#include <linux/idxd.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#define EXPECT(condition)                                                                    \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      std::fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #condition, \
                   errno);                                                                   \
      std::_Exit(1);                                                                         \
    }                                                                                        \
  } while (false)

namespace hostile {

struct alignas(64) Descriptor : dsa_hw_desc {};
struct alignas(32) Record : dsa_completion_record {};

/// Returns true if accepted, false for retry.
inline bool enqcmd(volatile void* portal, const Descriptor& descriptor) {
  bool retry = false;
  asm volatile("enqcmd (%2), %1" : "=@ccz"(retry) : "r"(portal), "r"(&descriptor) : "memory");
  return !retry;
}
inline void movdir64b(volatile void* portal, const Descriptor& descriptor) {
  asm volatile("movdir64b (%1), %0" : : "r"(portal), "r"(&descriptor) : "memory");
}

inline std::string portal_path(const char* name) {
  const char* directory = std::getenv("HEADRACE_EMULATOR_PORTALS");
  return std::string(directory == nullptr ? "/dev/dsa" : directory) + "/" + name;
}
inline void* map_portal(const char* name) {
  const int file = ::open(portal_path(name).c_str(), O_RDWR);
  EXPECT(file >= 0);
  void* portal = ::mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  ::close(file);
  return portal;
}
inline void* open_portal(const char* name) {
  void* portal = map_portal(name);
  EXPECT(portal != MAP_FAILED);
  return portal;
}

inline Descriptor noop(Record& record) {
  Descriptor descriptor{};
  record.status = 0;
  descriptor.opcode = DSA_OPCODE_NOOP;
  descriptor.flags = IDXD_OP_FLAG_CRAV | IDXD_OP_FLAG_RCR;
  descriptor.completion_addr = reinterpret_cast<std::uint64_t>(&record);
  return descriptor;
}
inline Descriptor move(Record& record, void* target, const void* source, std::uint32_t byte_count) {
  Descriptor descriptor = noop(record);
  descriptor.opcode = DSA_OPCODE_MEMMOVE;
  descriptor.flags |= IDXD_OP_FLAG_BOF;
  descriptor.src_addr = reinterpret_cast<std::uint64_t>(source);
  descriptor.dst_addr = reinterpret_cast<std::uint64_t>(target);
  descriptor.xfer_size = byte_count;
  return descriptor;
}

inline std::uint8_t status(const Record& record) {
  return __atomic_load_n(&record.status, __ATOMIC_ACQUIRE);
}
inline double seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
/// Timeout of steps that normally complete at once; generous for slow, busy machines.
constexpr double kWaitSeconds = 90;
/// Waits for the status.
inline std::uint8_t wait(const Record& record) {
  const double limit = seconds() + kWaitSeconds;
  for (unsigned round = 0; status(record) == 0; ++round) {
    if (round % 64 == 63) ::sched_yield();
    EXPECT(round % 1024 != 0 || seconds() < limit);
  }
  return status(record);
}
/// Retries until accepted.
inline void submit(void* portal, const Descriptor& descriptor) {
  const double limit = seconds() + kWaitSeconds;
  for (unsigned round = 0; !enqcmd(portal, descriptor); ++round) {
    ::sched_yield();
    EXPECT(round % 1024 != 0 || seconds() < limit);
  }
}
/// One complete submission.
inline void expect_works(void* portal) {
  Record record{};
  const Descriptor descriptor = noop(record);
  submit(portal, descriptor);
  EXPECT(wait(record) == DSA_COMP_SUCCESS);
}

/// Content of a small file.
inline std::string read_file(const char* path) {
  char text[4096];
  const int file = ::open(path, O_RDONLY);
  EXPECT(file >= 0);
  const ssize_t count = ::read(file, text, sizeof(text));
  EXPECT(count >= 0);
  ::close(file);
  return {text, static_cast<std::size_t>(count)};
}

struct Scenario {
  const char* name;
  int (*run)();
};
/// Registers a scenario; `run` returns the exit code.
struct Registration {
  Registration(const char* name, int (*run)());
};
#define SCENARIO(name)                                                            \
  static int scenario_##name();                                                   \
  static const hostile::Registration registration_##name(#name, scenario_##name); \
  static int scenario_##name()

}  // namespace hostile
