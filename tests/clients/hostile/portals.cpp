// SPDX-License-Identifier: Apache-2.0
// Every way to open a portal, and portals that disappear.
#include <cpuid.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <x86intrin.h>

#include <thread>

#include "client.hpp"

namespace hostile {
namespace {

SCENARIO(dedicated_queue) {
  void* portal = open_portal("wq0.1");
  Record record{};
  for (int i = 0; i < 200; ++i) {
    const Descriptor descriptor = noop(record);
    movdir64b(static_cast<char*>(portal) + i % 64 * 64, descriptor);
    EXPECT(wait(record) == DSA_COMP_SUCCESS);
  }
  return 0;
}

// No engine thread can be started: this is reported once, and each submission is answered as by a
// disabled WQ.
SCENARIO(no_thread_for_an_engine) {
  // By raw system calls, or the preload would make its connection while there are threads. 0L: of
  // the last of seven arguments, the system reads 64 bits.
  const auto map_silently = [](const char* name) {
    const long file = ::syscall(SYS_openat, AT_FDCWD, portal_path(name).c_str(), O_RDWR);
    const long page = ::syscall(SYS_mmap, nullptr, 4096, PROT_NONE, MAP_SHARED, file, 0L);
    EXPECT(file >= 0 && page != -1);
    return reinterpret_cast<void*>(page);
  };
  void* shared = map_silently("wq0.0");
  void* dedicated = map_silently("wq0.1");
  // Root is exempt from the limit. After setuid a process may not read its own maps unless it makes
  // itself dumpable.
  EXPECT(::geteuid() != 0 || ::setresuid(65534, 65534, 65534) == 0);
  EXPECT(::prctl(PR_SET_DUMPABLE, 1) == 0);
  const rlimit none{0, 0};
  EXPECT(::setrlimit(RLIMIT_NPROC, &none) == 0);
  int said[2];
  EXPECT(::pipe(said) == 0);
  const int kept = ::dup(STDERR_FILENO);
  EXPECT(::dup2(said[1], STDERR_FILENO) == STDERR_FILENO);
  Record record{};
  const Descriptor descriptor = noop(record);
  for (int i = 0; i < 100; ++i) {
    EXPECT(!enqcmd(shared, descriptor));
    movdir64b(dedicated, descriptor);
  }
  EXPECT(record.status == 0);
  EXPECT(::dup2(kept, STDERR_FILENO) == STDERR_FILENO);
  ::close(said[1]);
  char text[4096] = {};
  EXPECT(::read(said[0], text, sizeof(text) - 1) > 0);
  const std::string all = text;
  EXPECT(all.find("headrace-dsa-trap: cannot start the engine threads") == 0);
  EXPECT(all.find('\n') == all.size() - 1);
  return 0;
}

SCENARIO(ordinary_memory_is_no_portal) {
  alignas(64) static unsigned char memory[128];
  Record record{};
  const Descriptor descriptor = noop(record);
  EXPECT(!enqcmd(memory, descriptor));
  movdir64b(memory + 64, descriptor);
  EXPECT(std::memcmp(memory + 64, &descriptor, 64) == 0);
  for (int i = 0; i < 64; ++i) EXPECT(memory[i] == 0);
  EXPECT(record.status == 0);
  return 0;
}

SCENARIO(flags_are_what_the_instruction_says) {
  void* portal = open_portal("wq0.0");
  Record record{};
  const Descriptor descriptor = noop(record);
  unsigned long flags = 0;
  asm volatile(
      "movq $-1, %%rax\n\taddq $-1, %%rax\n\tstd\n\tcld\n\t"  // CF, SF, AF, PF set.
      "enqcmd (%2), %1\n\tpushfq\n\tpopq %0"
      : "=&r"(flags)
      : "r"(portal), "r"(&descriptor)
      : "memory", "cc", "rax");
  EXPECT((flags & 0x8d5) == 0);
  EXPECT(wait(record) == DSA_COMP_SUCCESS);
  return 0;
}

SCENARIO(munmap_of_a_portal) {
  void* portal = open_portal("wq0.0");
  expect_works(portal);
  EXPECT(::munmap(portal, 4096) == 0);
  void* page =
      ::mmap(portal, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  EXPECT(page == portal);
  Record record{};
  const Descriptor descriptor = noop(record);
  EXPECT(!enqcmd(page, descriptor));
  movdir64b(page, descriptor);
  EXPECT(std::memcmp(page, &descriptor, 64) == 0 && record.status == 0);
  return 0;
}

SCENARIO(map_fixed_over_a_portal) {
  void* portal = open_portal("wq0.0");
  expect_works(portal);
  EXPECT(::mmap(portal, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                0) == portal);
  Record record{};
  EXPECT(!enqcmd(portal, noop(record)));
  return 0;
}

SCENARIO(mremap_of_a_portal) {
  void* portal = open_portal("wq0.0");
  void* room = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* moved = ::mremap(portal, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, room);
  EXPECT(moved == room);
  expect_works(moved);
  return 0;
}

SCENARIO(portal_by_raw_system_calls) {
  const long file = ::syscall(SYS_openat, AT_FDCWD, portal_path("wq0.0").c_str(), O_RDWR);
  EXPECT(file >= 0);
  auto* portal =
      reinterpret_cast<void*>(::syscall(SYS_mmap, nullptr, 4096, PROT_WRITE, MAP_SHARED, file, 0L));
  EXPECT(portal != MAP_FAILED);
  ::syscall(SYS_close, file);
  expect_works(portal);
  return 0;
}

SCENARIO(all_files_closed) {
  void* portal = open_portal("wq0.0");
  ::close_range(0, ~0U, 0);
  expect_works(portal);
  // Files of the program's own get numbers that anything of ours may have had.
  EXPECT(::open("/dev/null", O_RDWR) == 0 && ::open("/dev/null", O_RDWR) == 1 &&
         ::open("/dev/null", O_RDWR) == 2);
  void* another = open_portal("wq0.0");
  expect_works(another);
  return 0;
}

SCENARIO(refused_mmap) {
  EXPECT(map_portal("wq0.0") == MAP_FAILED && errno == EPERM);
  return 0;
}

// The driver's response to a length that is not a page.
SCENARIO(odd_mmaps) {
  const int file = ::open(portal_path("wq0.0").c_str(), O_RDWR);
  EXPECT(::mmap(nullptr, 8192, PROT_WRITE, MAP_SHARED, file, 0) == MAP_FAILED && errno == EINVAL);
  void* portal = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  EXPECT(portal != MAP_FAILED);
  expect_works(portal);
  return 0;
}

SCENARIO(written_descriptors) {
  const int file = ::open(portal_path("wq0.0").c_str(), O_RDWR);
  EXPECT(file >= 0);
  Record records[2] = {};
  Descriptor descriptors[2] = {noop(records[0]), noop(records[1])};
  EXPECT(::write(file, descriptors, sizeof(descriptors)) == sizeof(descriptors));
  EXPECT(wait(records[0]) == DSA_COMP_SUCCESS && wait(records[1]) == DSA_COMP_SUCCESS);
  return 0;
}

#define STORES(text)                                                      \
  do {                                                                    \
    const Descriptor descriptor = noop(record);                           \
    asm volatile(text                                                     \
                 :                                                        \
                 : "r"(portal), "r"(&descriptor)                          \
                 : "memory", "xmm0", "xmm1", "rax", "rcx", "rsi", "rdi"); \
    EXPECT(wait(record) == DSA_COMP_SUCCESS);                             \
  } while (false)

SCENARIO(stores_of_64_bytes) {
  if (!__builtin_cpu_supports("avx512f")) return 77;
  void* portal = static_cast<char*>(open_portal("wq0.1")) + 128;
  Record record{};
  for (int i = 0; i < 20; ++i) {
    STORES("vmovdqu64 (%1), %%zmm0\n\tvmovdqa64 %%zmm0, (%0)");
    STORES("vmovdqu64 (%1), %%zmm19\n\tvmovdqu64 %%zmm19, (%0)");
    STORES("vmovdqu64 (%1), %%zmm1\n\tvmovntdq %%zmm1, 64(%0)");
    STORES("vmovups (%1), %%zmm19\n\tvmovntps %%zmm19, -64(%0)");
  }
  return 0;
}

SCENARIO(stores_in_pieces) {
  if (!__builtin_cpu_supports("avx2")) return 77;
  void* portal = open_portal("wq0.1");
  Record record{};
  STORES(
      "vmovdqu (%1), %%ymm0\n\tvmovdqu 32(%1), %%ymm1\n\t"
      "vmovdqa %%ymm0, (%0)\n\tvmovntdq %%ymm1, 32(%0)");
  STORES(
      "movdqu (%1), %%xmm0\n\tmovntdq %%xmm0, (%0)\n\tmovdqu 16(%1), %%xmm0\n\t"
      "movaps %%xmm0, 16(%0)\n\tmovdqu 32(%1), %%xmm0\n\tmovups %%xmm0, 32(%0)\n\t"
      "movdqu 48(%1), %%xmm0\n\tmovdqa %%xmm0, 48(%0)");
  STORES("movq %0, %%rdi\n\tmovq %1, %%rsi\n\tmovl $64, %%ecx\n\trep movsb");
  STORES("movq %0, %%rdi\n\tmovq %1, %%rsi\n\tmovl $8, %%ecx\n\trep movsq");
  STORES(
      "movq %0, %%rdi\n\tmovq %1, %%rsi\n\tmovsq\n\tmovsq\n\tmovsq\n\tmovsq\n\t"
      "movl $32, %%ecx\n\trep movsb");
  STORES(
      "movl $7, %%ecx\n\t1: movq (%1,%%rcx,8), %%rax\n\tmovnti %%rax, (%0,%%rcx,8)\n\t"
      "decl %%ecx\n\tjns 1b");
  return 0;
}

// One instruction each, as named functions.
extern "C" {
bool hostile_enqcmd(void* portal, const Descriptor* descriptor);
void hostile_movdir64b(void* portal, const Descriptor* descriptor);
extern const volatile unsigned char hostile_enqcmd_site[6];
extern const volatile unsigned char hostile_movdir64b_site[6];
}
asm(R"(
  .pushsection .text
hostile_enqcmd:
  xorl %eax, %eax
hostile_enqcmd_site:
  enqcmd (%rsi), %rdi
  setnz %al
  ret
hostile_movdir64b:
hostile_movdir64b_site:
  movdir64b (%rsi), %rdi
  ret
  .popsection
)");

/// Whether the processor traps on the instruction. CPUID does not decide: a hypervisor may hide an
/// instruction that the processor executes. A child without a handler of SIGILL tries it on
/// ordinary memory.
bool is_unknown(void (*execute)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    struct {
      void (*handler)(int);
      unsigned long flags;
      void (*restorer)();
      unsigned long mask;
    } none{};
    // System call, because the preload intercepts the library function.
    EXPECT(::syscall(SYS_rt_sigaction, SIGILL, &none, nullptr, 8) == 0);
    execute();
    std::_Exit(0);
  }
  int ended = 0;
  EXPECT(::waitpid(child, &ended, 0) == child);
  return WIFSIGNALED(ended) && WTERMSIG(ended) == SIGILL;
}

/// Whether the preload patches the site: in a virtual machine whose processor does not know the
/// instruction.
bool is_dear(void (*execute)()) {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & 1U << 31) == 0) return false;
  if (std::getenv("HEADRACE_EMULATOR_FORCE_ACCESS") != nullptr ||
      ::access("/dev/dsa-emulator/force-access", F_OK) == 0) {
    return false;
  }
  return is_unknown(execute);
}

alignas(64) Descriptor ordinary_memory{};

void execute_enqcmd() {
  const Descriptor descriptor{};
  asm volatile("enqcmd (%0), %1" ::"r"(&descriptor), "r"(&ordinary_memory) : "cc", "memory");
}

void execute_movdir64b() {
  const Descriptor descriptor{};
  asm volatile("movdir64b (%0), %1" ::"r"(&descriptor), "r"(&ordinary_memory) : "memory");
}

void submit_often(void* portal, void* dedicated) {
  Record record{};
  for (int i = 0; i < 100; ++i) {
    const Descriptor descriptor = noop(record);
    while (!hostile_enqcmd(portal, &descriptor)) ::sched_yield();
    EXPECT(wait(record) == DSA_COMP_SUCCESS);
    if (dedicated == nullptr) continue;
    const Descriptor posted = noop(record);
    hostile_movdir64b(dedicated, &posted);
    EXPECT(wait(record) == DSA_COMP_SUCCESS);
  }
}

// Sites that trap often are patched to trap cheaper; this must not be observable.
SCENARIO(sites_that_submit_often) {
  constexpr unsigned char kHlt = 0xf4;
  void* portal = open_portal("wq0.0");
  void* dedicated = open_portal("wq0.1");
  std::thread other([portal] { submit_often(portal, nullptr); });
  submit_often(portal, dedicated);
  other.join();
  EXPECT((hostile_enqcmd_site[0] == kHlt) == is_dear(execute_enqcmd));
  EXPECT((hostile_movdir64b_site[0] == kHlt) == is_dear(execute_movdir64b));
  EXPECT(hostile_enqcmd_site[1] == 0x0f && hostile_movdir64b_site[1] == 0x0f);
  // A child inherits the patched code, and relearns everything else.
  const pid_t child = ::fork();
  if (child == 0) {
    submit_often(open_portal("wq0.0"), nullptr);
    std::_Exit(0);
  }
  int ended = 0;
  EXPECT(::waitpid(child, &ended, 0) == child && ended == 0);
  // On other addresses they behave as usual.
  alignas(64) static Descriptor memory{};
  Descriptor stored{};
  stored.xfer_size = 7;
  hostile_movdir64b(&memory, &stored);
  EXPECT(memory.xfer_size == 7);
  EXPECT(!hostile_enqcmd(&memory, &stored));
  // A fault of an operand is reported at the instruction, as by the processor.
  static jmp_buf back;
  static void* told_at = nullptr;
  static void* stands_at = nullptr;
  struct sigaction action{};
  action.sa_sigaction = [](int, siginfo_t* info, void* context) {
    told_at = info->si_addr;
    stands_at =
        reinterpret_cast<void*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
    siglongjmp(back, 1);
  };
  action.sa_flags = SA_SIGINFO;
  EXPECT(::sigaction(SIGSEGV, &action, nullptr) == 0);
  if (sigsetjmp(back, 1) == 0) {
    hostile_enqcmd(portal, reinterpret_cast<const Descriptor*>(0x1000));
    EXPECT(false);
  }
  EXPECT(told_at == reinterpret_cast<void*>(0x1000));
  EXPECT(stands_at == const_cast<unsigned char*>(hostile_enqcmd_site));
  // HLT itself is unchanged.
  static bool met = false;
  action.sa_sigaction = [](int, siginfo_t*, void*) {
    met = true;
    siglongjmp(back, 1);
  };
  EXPECT(::sigaction(SIGSEGV, &action, nullptr) == 0);
  if (sigsetjmp(back, 1) == 0) asm volatile("hlt");
  EXPECT(met);
  return 0;
}

// Code generated by the program may be rewritten at any time.
SCENARIO(code_of_the_programs_own_is_left_alone) {
  const unsigned char code[] = {0x31, 0xc0, 0xf2, 0x0f, 0x38, 0xf8,
                                0x3e, 0x0f, 0x95, 0xc0, 0xc3};  // As hostile_enqcmd.
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT(page != MAP_FAILED);
  std::memcpy(page, code, sizeof(code));
  EXPECT(::mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
  const auto submit_by_page = reinterpret_cast<bool (*)(void*, const Descriptor*)>(page);
  void* portal = open_portal("wq0.0");
  Record record{};
  for (int i = 0; i < 100; ++i) {
    const Descriptor descriptor = noop(record);
    while (!submit_by_page(portal, &descriptor)) ::sched_yield();
    EXPECT(wait(record) == DSA_COMP_SUCCESS);
  }
  EXPECT(std::memcmp(page, code, sizeof(code)) == 0);
  return 0;
}

bool has_waits() {
  // Here or trapped: the instructions themselves are what is tried.
  return true;
}

void umonitor(const void* address) {
  asm volatile("umonitor %0" : : "r"(address) : "memory");
}
/// CF: the system's limit ended it.
bool umwait(std::uint64_t deadline) {
  bool limited = false;
  asm volatile("umwait %1"
               : "=@ccc"(limited)
               : "r"(0U), "d"(static_cast<std::uint32_t>(deadline >> 32)),
                 "a"(static_cast<std::uint32_t>(deadline))
               : "memory");
  return limited;
}

SCENARIO(umwait_for_a_record) {
  EXPECT(has_waits());
  void* portal = open_portal("wq0.0");
  Record record{};
  for (int i = 0; i < 200; ++i) {
    submit(portal, noop(record));
    const double limit = seconds() + kWaitSeconds;
    while (status(record) == 0) {
      umonitor(&record);
      if (status(record) == 0) umwait(__rdtsc() + 1'000'000);
      EXPECT(seconds() < limit);
    }
    EXPECT(status(record) == DSA_COMP_SUCCESS);
  }
  // No write: ends at the deadline, or at the system's limit with the carry flag.
  Record never{};
  umonitor(&never);
  const std::uint64_t begin = __rdtsc();
  EXPECT(!umwait(begin + 20'000));
  EXPECT(__rdtsc() >= begin + 20'000);
  umonitor(&never);
  EXPECT(umwait(~std::uint64_t{0}));
  // Nothing monitored: returns at once.
  EXPECT(!umwait(~std::uint64_t{0}));
  bool limited = false;
  asm volatile("tpause %1" : "=@ccc"(limited) : "r"(1U), "d"(~0U), "a"(~0U));
  EXPECT(limited);
  return 0;
}

SCENARIO(client_in_a_library_loaded_later) {
  void* library = ::dlopen(std::getenv("HOSTILE_LIBRARY"), RTLD_NOW);
  EXPECT(library != nullptr);
  auto run = reinterpret_cast<int (*)()>(::dlsym(library, "hostile_library_run"));
  EXPECT(run != nullptr && run() == 1);
  EXPECT(::dlclose(library) == 0);
  return 0;
}

// For a preload that replaces memcpy by the device (early.cpp).
SCENARIO(memcpy_is_somebody_elses) {
  static unsigned char source[1 << 16];
  static unsigned char target[1 << 16];
  for (int i = 0; i < 100; ++i) {
    std::memset(source, i + 1, sizeof(source));
    void* (*volatile copy)(void*, const void*, std::size_t) = std::memcpy;
    copy(target, source, sizeof(source));
    EXPECT(target[0] == i + 1 && target[sizeof(target) - 1] == i + 1);
  }
  auto count = reinterpret_cast<unsigned (*)()>(::dlsym(RTLD_DEFAULT, "hostile_offloaded_count"));
  EXPECT(count != nullptr && count() >= 100);
  return 0;
}

/// Prints descriptors per second through the trap, and batched copies compared with memcpy.
SCENARIO(speed) {
  void* portal = open_portal("wq0.0");
  constexpr unsigned kCount = 50'000;
  constexpr unsigned kInFlight = 12;
  static Record records[kInFlight];
  for (int round = 0; round < 3; ++round) {
    const double begin = seconds();
    unsigned retries = 0;
    for (unsigned i = 0; i < kCount; ++i) {
      Record& record = records[i % kInFlight];
      if (i >= kInFlight) wait(record);
      const Descriptor descriptor = noop(record);
      while (!enqcmd(portal, descriptor)) ++retries;
    }
    for (Record& record : records) wait(record);
    const double taken = seconds() - begin;
    std::fprintf(stderr, "no-ops: %.0f per second, %u retries\n", kCount / taken, retries);
  }
  constexpr std::size_t kCopy = 1 << 20;
  constexpr unsigned kBatch = 32;
  auto* source = static_cast<char*>(std::aligned_alloc(4096, kCopy * kBatch));
  auto* target = static_cast<char*>(std::aligned_alloc(4096, kCopy * kBatch));
  std::memset(source, 1, kCopy * kBatch);
  std::memset(target, 2, kCopy * kBatch);
  static Descriptor list[kBatch];
  static Record parts[kBatch];
  static Record whole;
  for (int round = 0; round < 3; ++round) {
    double begin = seconds();
    for (int i = 0; i < 4; ++i) {
      for (unsigned n = 0; n < kBatch; ++n) {
        list[n] = move(parts[n], target + n * kCopy, source + n * kCopy, kCopy);
      }
      Descriptor batch = noop(whole);
      batch.opcode = DSA_OPCODE_BATCH;
      batch.desc_list_addr = reinterpret_cast<std::uint64_t>(list);
      batch.desc_count = kBatch;
      submit(portal, batch);
      EXPECT(wait(whole) == DSA_COMP_SUCCESS);
    }
    const double device = seconds() - begin;
    begin = seconds();
    for (int i = 0; i < 4; ++i) {
      for (unsigned n = 0; n < kBatch; ++n) {
        std::memcpy(target + n * kCopy, source + n * kCopy, kCopy);
      }
    }
    const double processor = seconds() - begin;
    std::fprintf(stderr, "copies: device %.2f GB/s, memcpy %.2f GB/s, ratio %.2f\n",
                 4.0 * kBatch * kCopy / device / 1e9, 4.0 * kBatch * kCopy / processor / 1e9,
                 processor / device);
  }
  return 0;
}

}  // namespace
}  // namespace hostile
