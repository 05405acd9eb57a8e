// SPDX-License-Identifier: Apache-2.0
// The soak: random operations of eight threads on four emulated devices with every trouble there is
// - full queues, page faults, errors, lost answers, resets, a device that dies half-way. Every byte
// and every result is compared with what a processor makes of the same operation, every job ends
// once, and nothing hangs. HEADRACE_SOAK_OPERATIONS says how many (scripts/soak: ten million),
// HEADRACE_SEED repeats the choices of a run.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "emulated.hpp"
#include "engine/software/software.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/mutex.hpp"
#include "support/seed.hpp"

namespace headrace::engine {
namespace {

using emu::FaultKind;
using emu::FaultRule;

constexpr std::size_t kThreadCount = 8;
constexpr std::size_t kWindow = 6;  ///< Jobs of one thread at a time.
constexpr std::size_t kRoomBytes = 96U << 10U;
constexpr std::size_t kBatchMax = 12;
/// A device that lives may be later than that on a loaded machine, and then is given up, too.
constexpr std::chrono::nanoseconds kAnswerMax = std::chrono::milliseconds(500);
/// No job takes so long, however loaded the machine is: a hang.
constexpr std::chrono::nanoseconds kHang = std::chrono::seconds(120);

std::uint64_t operation_count() {
  const char* const given = std::getenv("HEADRACE_SOAK_OPERATIONS");
  return given != nullptr ? std::stoull(given) : 60'000;
}

emu::FaultScript troubles() {
  return test::script({
      FaultRule{.kind = FaultKind::queue_full, .probability = 0.02},
      FaultRule{.kind = FaultKind::page_fault, .probability = 0.02, .at_byte = 1000},
      FaultRule{.kind = FaultKind::page_fault, .probability = 0.01, .at_byte = 8192, .write = true},
      FaultRule{.kind = FaultKind::status, .probability = 0.005, .raw_status = DSA_COMP_HW_ERR1},
      FaultRule{.kind = FaultKind::status, .probability = 0.002, .raw_status = DSA_COMP_BAD_OPCODE},
      FaultRule{.kind = FaultKind::slow, .probability = 0.005, .delay_ns = 300'000},
      FaultRule{.kind = FaultKind::lost_completion, .device = 2, .every = 400'003},
      FaultRule{.kind = FaultKind::lost_completion, .device = 2, .nth = 1000},
  });
}

/// Memory of one job: what it works on, and the same for the processor that has to agree.
struct Room {
  explicit Room(Random& random) : source(kRoomBytes), other(kRoomBytes), expected(kRoomBytes) {
    refill(random);
  }
  void refill(Random& random) {
    for (std::size_t i = 0; i < kRoomBytes; i += 8) {
      const std::uint64_t word = random();
      std::memcpy(source.data() + i, &word, sizeof word);
    }
    other = source;
    const std::size_t changes = random.below(20);
    for (std::size_t i = 0; i < changes; ++i) other[random.below(kRoomBytes)] ^= std::byte{1};
  }

  std::vector<std::byte> source;
  std::vector<std::byte> other;
  std::vector<std::byte> expected;
};

/// A random operation that writes to `target`, which begins at a page.
Operation draw(Random& random, const Room& room, std::span<std::byte> target) {
  const std::size_t length_max = random.chance(1, 20) ? kRoomBytes / 2 - 8192 : 3000;
  const std::size_t length = 1 + random.below(length_max);
  const std::size_t even = std::max<std::size_t>(length / 8 * 8, 80);
  const std::size_t offset = random.below(4096);
  const std::span<const std::byte> source = std::span(room.source).subspan(offset, length);
  const std::span<std::byte> out = target.subspan(random.below(64), length);
  const std::size_t blocks = 1 + length / 520;
  switch (random.below(14)) {
    case 0:
      return Operation::fill(out, random());
    case 1:
      return Operation::fill(out, random(), random());
    case 2:
      return Operation::compare(source, std::span(room.other).subspan(offset, length));
    case 3:
      return Operation::compare_pattern(source, random());
    case 4:
      return Operation::create_delta(target.first(even), std::span(room.source).first(even),
                                     std::span(room.other).first(even));
    case 5:
      return Operation::dualcast(target.first(length), target.subspan(kRoomBytes / 2, length),
                                 source);
    case 6:
      return Operation::crc(
          source, {static_cast<std::uint32_t>(random()), random.chance(1, 2), random.chance(1, 2)});
    case 7:
      return Operation::copy_crc(out, source);
    case 8:
      return Operation::dif_insert(target.first(blocks * 520),
                                   std::span(room.source).first(blocks * 512), {},
                                   {.tags = {static_cast<std::uint32_t>(random()), 1, 2}});
    case 9:
      return Operation::no_op();
    default:
      return random.chance(1, 2) ? Operation::copy(out, source)
                                 : Operation::copy(out, source).into_cache();
  }
}

void call_counted(void* context, const Completion&) noexcept {
  static_cast<Atomic<std::uint32_t>*>(context)->fetch_add_relaxed(1);  // Read after the end.
}

struct alignas(4096) Pages {
  std::array<std::byte, kRoomBytes> target;
};

/// What a device that was given up may still write to. Outlives the devices.
struct Retired {
  void keep(std::unique_ptr<Pages> pages) {
    const Lock lock(mutex);
    kept.push_back(std::move(pages));
  }

  Mutex mutex;
  std::vector<std::unique_ptr<Pages>> kept HEADRACE_GUARDED_BY(mutex);
};

/// One job with all that it needs, and the check of its end.
///
/// Threading: confined.
class Ticket {
 public:
  Ticket(Random& random, Retired& retired)
      : random_(random),
        retired_(retired),
        room_(std::make_unique<Room>(random)),
        pages_(std::make_unique<Pages>()) {}

  [[nodiscard]] bool runs() const { return job_.state() == JobState::running; }
  [[nodiscard]] Job& job() { return job_; }

  /// Draws new work and submits it; does it in any case, sooner or later.
  void begin(Engine& engine, std::span<const MoverPolicy> policies) {
    if (random_.chance(1, 64)) room_->refill(random_);
    operations_.clear();
    const std::size_t count = random_.chance(1, 6) ? 2 + random_.below(kBatchMax - 1) : 1;
    std::memset(pages_->target.data(), 0x5a, kRoomBytes);
    std::memset(room_->expected.data(), 0x5a, kRoomBytes);
    outcomes_.clear();
    // Of a batch only the first writes: the order of several would be anybody's guess.
    for (std::size_t i = 0; i < count; ++i) {
      Operation made = draw_twice(i == 0);
      operations_.push_back(made);
    }
    call_count_.store_relaxed(0);  // Before the submission.
    const Path path = random_.chance(7, 8) ? Path::hardware : Path::automatic;
    const SubmitOptions options{.source_node = NodeId(static_cast<std::uint32_t>(random_.below(2))),
                                .target_node = NodeId(static_cast<std::uint32_t>(random_.below(2))),
                                .policy = &policies[random_.below(policies.size())],
                                .callback = call_counted,
                                .callback_context = &call_count_,
                                .path = path};
    completions_.assign(count, {});
    Submit answer = Submit::full;
    while (answer == Submit::full) {
      answer = count == 1 ? engine.submit(job_, operations_[0], options)
                          : engine.submit_batch(job_, {operations_, completions_}, options);
      if (answer != Submit::full) break;
      engine.poll();
      std::this_thread::yield();
    }
    ASSERT_EQ(answer, Submit::accepted) << name(answer) << ' ' << name(operations_[0].kind());
    stopped_ = random_.chance(1, 100);
    if (stopped_) job_.stop();
  }

  /// To be called once it has ended. Returns operations that were done.
  std::size_t check() {
    const Completion& end = job_.completion();
    EXPECT_EQ(call_count_.load_relaxed(), 1U);  // After the end.
    if (end.state == JobState::stopped) {
      EXPECT_TRUE(stopped_);
    } else {
      EXPECT_EQ(end.state, JobState::done) << name(end.cause) << ' ' << name(operations_[0].kind());
      if (operations_.size() == 1) completions_[0] = end;
      for (std::size_t i = 0; i < operations_.size(); ++i) {
        EXPECT_EQ(completions_[i].state, JobState::done)
            << i << " of " << operations_.size() << ' ' << name(operations_[i].kind()) << ' '
            << name(completions_[i].cause) << " status "
            << static_cast<unsigned>(completions_[i].device_status) << " fault "
            << completions_[i].fault_address << " target "
            << reinterpret_cast<std::uintptr_t>(operations_[i].target().data());
        EXPECT_EQ(completions_[i].result, outcomes_[i].result) << name(operations_[i].kind());
      }
      EXPECT_EQ(std::memcmp(pages_->target.data(), room_->expected.data(), kRoomBytes), 0)
          << name(operations_[0].kind());
    }
    if (end.late_write_possible) retire();
    return operations_.size();
  }

 private:
  /// The same operation on the device's target and, at once, on the processor's.
  Operation draw_twice(bool may_write) {
    while (true) {
      Random again = random_;
      const Operation made = draw(random_, *room_, pages_->target);
      if (!may_write && !made.target().empty()) continue;
      const Operation twin = draw(again, *room_, room_->expected);
      if (twin.validate() != Submit::accepted) continue;  // Aligned differently: draw another one.
      outcomes_.push_back(software::execute(twin));
      return made;
    }
  }

  /// A device may still write here: nobody uses it again.
  void retire() {
    retired_.keep(std::move(pages_));
    pages_ = std::make_unique<Pages>();
    // What is compared may still be read by the device, which harms nobody.
  }

  Random& random_;
  Retired& retired_;
  std::unique_ptr<Room> room_;
  std::unique_ptr<Pages> pages_;
  std::vector<Operation> operations_;
  std::vector<ShareOutcome> outcomes_;
  std::vector<Completion> completions_;
  Atomic<std::uint32_t> call_count_{0};
  bool stopped_ = false;
  Job job_;
};

struct Progress {
  Atomic<std::uint64_t> done{0};
  Atomic<std::uint64_t> jobs{0};
  Atomic<bool> failed{false};
};

void soak(Engine& engine, std::uint64_t seed, std::uint64_t goal, Retired& retired,
          Progress& progress) {
  Random random(seed);
  const std::array<MoverPolicy, 5> policies{movers::round_robin, movers::least_loaded, movers::all,
                                            movers::push_pull, movers::near_target};
  std::vector<std::unique_ptr<Ticket>> tickets;
  for (std::size_t i = 0; i < kWindow; ++i)
    tickets.push_back(std::make_unique<Ticket>(random, retired));
  // Relaxed: counts, and a wish to end.
  while (progress.done.load_relaxed() < goal && !progress.failed.load_relaxed()) {
    for (const auto& ticket : tickets) {
      ticket->begin(engine, policies);
      progress.jobs.fetch_add_relaxed(1);  // A count.
      if (::testing::Test::HasFailure()) break;
    }
    for (const auto& ticket : tickets) {
      if (ticket->job().state() == JobState::idle) continue;
      const std::uint64_t how = random.below(3);
      bool ended = false;
      if (how == 0) {
        ended = ticket->job().wait_for(kHang);
      } else {
        const auto begin = std::chrono::steady_clock::now();
        while (!ended && std::chrono::steady_clock::now() - begin < kHang) {
          if (how == 1) engine.poll();
          ended = how == 1 ? !ticket->runs() : ticket->job().poll();
          if (!ended) std::this_thread::yield();
        }
      }
      ASSERT_TRUE(ended) << "a job hangs";
      progress.done.fetch_add_relaxed(ticket->check());  // A count.
    }
    if (::testing::Test::HasFailure()) progress.failed.store_relaxed(true);  // A wish.
  }
}

TEST(Soak, EveryByteIsRightAndEveryJobEndsOnceWhateverTheDevicesDo) {
  const std::uint64_t goal = operation_count();
  test::EmulatedOptions options{.device_count = 4,
                                .dedicated_count = 1,
                                .engine_count = 2,
                                .transfer_bytes_max = 16U << 10U,
                                .device = {.answer_max = kAnswerMax},
                                .faults = troubles(),
                                .policy = movers::round_robin};
  Retired retired;
  const test::Emulated machine = test::make_emulated(std::move(options));
  Progress progress;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreadCount; ++i) {
    threads.emplace_back([&, i] {
      soak(*machine.engine, headrace::test::seed() + i * 7919, goal, retired, progress);
    });
  }
  // Meanwhile: device 1 is reset now and then, device 3 dies half-way.
  bool dead = false;
  std::uint64_t next_reset = goal / 10;
  while (progress.done.load_relaxed() < goal && !progress.failed.load_relaxed()) {  // Counts.
    if (progress.done.load_relaxed() >= next_reset) {
      next_reset += goal / 10;
      machine.devices->control().reset(DeviceId(1));
    }
    if (!dead && progress.done.load_relaxed() >= goal / 2) {
      dead = true;
      machine.devices->control().halt(DeviceId(3));
    }
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  machine.engine->stop();
  const EngineStatistics totals = machine.engine->statistics();
  EXPECT_EQ(totals.jobs_submitted, progress.jobs.load_relaxed());  // All have joined.
  EXPECT_EQ(totals.jobs_submitted, totals.jobs_done + totals.jobs_stopped + totals.jobs_failed);
  EXPECT_EQ(totals.jobs_failed, 0U);
  DeviceStatistics sum;
  for (const DeviceStatistics& one : machine.engine->device_statistics()) {
    sum.descriptors += one.descriptors;
    sum.retries += one.retries;
    sum.page_faults += one.page_faults;
    sum.errors += one.errors;
    sum.lost += one.lost;
  }
  // Nothing was tried in vain: each trouble has come.
  EXPECT_GT(sum.retries, 0U);
  EXPECT_GT(sum.page_faults, 0U);
  EXPECT_GT(sum.errors, 0U);
  EXPECT_GT(sum.lost, 0U);
  EXPECT_GT(totals.bytes_by_device, 0U);
  ::testing::Test::RecordProperty("operations", std::to_string(progress.done.load_relaxed()));
  std::printf(
      "soak: %llu operations in %llu jobs, %llu descriptors, %llu retries, %llu page "
      "faults, %llu errors, %llu lost\n",
      static_cast<unsigned long long>(progress.done.load_relaxed()),
      static_cast<unsigned long long>(totals.jobs_submitted),
      static_cast<unsigned long long>(sum.descriptors),
      static_cast<unsigned long long>(sum.retries),
      static_cast<unsigned long long>(sum.page_faults), static_cast<unsigned long long>(sum.errors),
      static_cast<unsigned long long>(sum.lost));
}

}  // namespace
}  // namespace headrace::engine
