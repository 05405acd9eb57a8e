// SPDX-License-Identifier: Apache-2.0
// Well-behaved clients that print the device's results on stdout, for tests that compare them.
#include <sys/wait.h>

#include "client.hpp"

namespace hostile {
namespace {

constexpr std::uint32_t kBytes = 64 << 10;

/// Timeout for completions that may never come; short only if the test expects none.
double patience_seconds() {
  const char* asked = std::getenv("HOSTILE_PATIENCE_S");
  return asked == nullptr ? kWaitSeconds : std::atof(asked);
}

/// Between two looks at something that may take seconds, or never come.
void rest() {
  ::usleep(100);
}

/// The status, or 0 after the timeout.
std::uint8_t wait_or_give_up(const Record& record) {
  const double limit = seconds() + patience_seconds();
  while (status(record) == 0 && seconds() < limit) rest();
  return status(record);
}

/// Four sequential copies of 64 KiB without block-on-fault. Prints a line each: status, bytes
/// completed, retries before acceptance, milliseconds, whether the completed bytes are correct.
SCENARIO(tell) {
  void* portal = open_portal("wq0.0");
  auto* source = static_cast<unsigned char*>(std::aligned_alloc(4096, kBytes));
  auto* target = static_cast<unsigned char*>(std::aligned_alloc(4096, kBytes));
  for (int number = 1; number <= 4; ++number) {
    std::memset(source, number, kBytes);
    std::memset(target, 0, kBytes);
    Record record{};
    Descriptor descriptor = move(record, target, source, kBytes);
    descriptor.flags &= ~static_cast<unsigned>(IDXD_OP_FLAG_BOF);
    const double begin = seconds();
    unsigned retries = 0;
    bool accepted = enqcmd(portal, descriptor);
    for (; !accepted && seconds() < begin + patience_seconds();
         accepted = enqcmd(portal, descriptor)) {
      if (retries < 3) ++retries;  // The number of further retries depends on timing.
      rest();
    }
    const unsigned code = accepted ? wait_or_give_up(record) : 0;
    const std::uint32_t done = code == DSA_COMP_SUCCESS ? kBytes : record.bytes_completed;
    std::printf("%02x %u %u %.0f %d\n", code, done, retries, (seconds() - begin) * 1e3,
                std::memcmp(source, target, done) == 0 ? 1 : 0);
    std::fflush(stdout);
  }
  return 0;
}

/// The same descriptors in the same order, some of them in batches, for traces that are compared.
SCENARIO(batches_one_after_the_other) {
  void* portal = open_portal("wq0.1");
  constexpr unsigned kCount = 16;
  auto* source = static_cast<unsigned char*>(std::aligned_alloc(4096, kBytes));
  auto* target = static_cast<unsigned char*>(std::aligned_alloc(4096, kBytes));
  std::memset(source, 5, kBytes);
  std::memset(target, 0, kBytes);
  static Descriptor list[kCount];
  static Record parts[kCount];
  for (int round = 0; round < 8; ++round) {
    for (unsigned i = 0; i < kCount; ++i) {
      list[i] = move(parts[i], target + i * 4096, source + i * 4096, 4096);
    }
    Record whole{};
    Descriptor batch = noop(whole);
    batch.opcode = DSA_OPCODE_BATCH;
    batch.desc_list_addr = reinterpret_cast<std::uint64_t>(list);
    batch.desc_count = kCount;
    movdir64b(portal, batch);
    EXPECT(wait(whole) == DSA_COMP_SUCCESS);
  }
  EXPECT(std::memcmp(source, target, kBytes) == 0);
  return 0;
}

/// A client that uses only write(): no instruction, no mapping.
SCENARIO(copies_by_write) {
  const int file = ::open(portal_path("wq0.0").c_str(), O_RDWR);
  EXPECT(file >= 0);
  static unsigned char source[kBytes];
  static unsigned char target[kBytes];
  for (int number = 1; number <= 20; ++number) {
    std::memset(source, number, kBytes);
    Record record{};
    const Descriptor descriptor = move(record, target, source, kBytes);
    EXPECT(::write(file, &descriptor, 64) == 64);
    EXPECT(wait(record) == DSA_COMP_SUCCESS);
    EXPECT(std::memcmp(source, target, kBytes) == 0);
  }
  // Refused by the driver: less than a descriptor, a misaligned record, a batch; and a child, whose
  // address space is not that of the opener.
  Record record{};
  Descriptor descriptor = noop(record);
  EXPECT(::write(file, &descriptor, 32) <= 0);
  descriptor.completion_addr += 8;
  EXPECT(::write(file, &descriptor, 64) == -1 && errno == EINVAL);
  Descriptor batch = noop(record);
  batch.opcode = DSA_OPCODE_BATCH;
  batch.desc_list_addr = reinterpret_cast<std::uint64_t>(&descriptor);
  batch.desc_count = 2;
  EXPECT(::write(file, &batch, 64) == -1 && errno == EINVAL);
  const pid_t child = ::fork();
  if (child == 0) {
    const Descriptor own = noop(record);
    const bool refused = ::write(file, &own, 64) == -1 && errno == EPERM;
    std::_Exit(refused ? 0 : 1);
  }
  int ended = 0;
  EXPECT(::waitpid(child, &ended, 0) == child && ended == 0);
  return 0;
}

/// Is killed by a signal with work done and work outstanding.
SCENARIO(crash_with_work_outstanding) {
  void* portal = open_portal("wq0.0");
  expect_works(portal);
  static Record records[8];
  static unsigned char source[1 << 20];
  static unsigned char target[1 << 20];
  for (Record& record : records) {
    static_cast<void>(enqcmd(portal, move(record, target, source, sizeof(source))));
  }
  *static_cast<volatile int*>(nullptr) = 1;
  return 0;
}

}  // namespace
}  // namespace hostile
