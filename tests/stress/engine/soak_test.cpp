// SPDX-License-Identifier: Apache-2.0
// The large soak: random operations of eight threads on four emulated devices with every kind of
// failure: full queues, page faults, errors, lost completions, resets, a device that dies and
// returns, one that dies for good. Every byte and result is compared with the same operation on a
// processor; every job ends once, nothing hangs, and no memory, file descriptor or queue entry
// leaks.
//
// Threads run freely: HEADRACE_SEED reproduces what is submitted, but not the interleaving
// (soak_repeat_test.cpp does). Runs at least HEADRACE_SOAK_OPERATIONS operations and at least
// HEADRACE_SOAK_SECONDS (scripts/soak: ten million, an hour).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "emu/device/trace.hpp"
#include "emulated.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/engine/awaitable.hpp"
#include "soak_work.hpp"
#include "support/detached.hpp"
#include "support/seed.hpp"

namespace headrace::engine::soak {
namespace {

using emu::FaultKind;
using emu::FaultRule;
using headrace::test::Detached;
using std::chrono::steady_clock;

constexpr std::size_t kThreadCount = 8;
constexpr std::size_t kWindow = 6;  ///< Jobs of one thread at a time.
constexpr std::uint32_t kDeviceCount = 4;
constexpr std::uint32_t kQueueCount = 2;   ///< Per device: one shared, one dedicated.
constexpr std::uint32_t kEntryCount = 24;  ///< Per queue: few, so that it is sometimes full.
/// Reset during work.
constexpr std::array kResetDevices{DeviceId(0), DeviceId(1)};
/// Dies and is reset later; also loses completions.
constexpr DeviceId kMendedDevice(2);
/// Dies for good.
constexpr DeviceId kDeadDevice(3);
/// On a loaded machine a live device may exceed this and is retired, too. That is a race between
/// it and the processor that repeats its work, which ThreadSanitizer would report.
constexpr std::chrono::nanoseconds kTimeoutMax =
    test::kReportsEveryRace ? std::chrono::seconds(20) : std::chrono::milliseconds(500);
/// Longer than any operation on any loaded machine: a hang.
constexpr std::chrono::nanoseconds kHang = std::chrono::seconds(240);
constexpr auto kTellEvery = std::chrono::seconds(10);
/// Maximum growth of the process from a quarter of the run to its end, besides retired memory.
constexpr std::uint64_t kGrowthMax = 48U << 20U;

/// For 'make test'; 'make check' has ten million.
constexpr std::uint64_t kOperations = 15'000;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const given = std::getenv(variable);
  return given != nullptr ? std::stoull(given) : otherwise;
}

emu::FaultScript troubles() {
  emu::FaultScript made = test::script({
      FaultRule{.kind = FaultKind::queue_full, .queue = 0, .probability = 0.02},
      // A dedicated queue does not report it: the descriptor is lost.
      FaultRule{.kind = FaultKind::queue_full, .device = 0, .queue = 1, .every = 2'000'003},
      FaultRule{.kind = FaultKind::page_fault, .probability = 0.01, .at_byte = 100},
      FaultRule{.kind = FaultKind::page_fault, .probability = 0.005, .at_byte = 8192},
      FaultRule{.kind = FaultKind::page_fault, .probability = 0.01, .write = true},
      FaultRule{.kind = FaultKind::page_fault, .probability = 0.005, .at_byte = 64, .write = true},
      FaultRule{.kind = FaultKind::status, .probability = 0.005, .raw_status = DSA_COMP_HW_ERR1},
      FaultRule{.kind = FaultKind::status, .probability = 0.002, .raw_status = DSA_COMP_BAD_OPCODE},
      FaultRule{.kind = FaultKind::slow, .probability = 0.001, .delay_ns = 300'000},
  });
  if constexpr (!test::kReportsEveryRace) {
    // The completion never arrives, not even by a reset: few of these, or no entry would be left.
    made.rules[made.rule_count++] =
        FaultRule{.kind = FaultKind::lost_completion, .device = 2, .nth = 1000};
    made.rules[made.rule_count++] =
        FaultRule{.kind = FaultKind::lost_completion, .device = 2, .every = 1'000'003};
  }
  return made;
}

/// How a job is submitted and its end reported, in rotation.
enum class Way : std::uint8_t { job, then, coroutine, run, channel };

/// One job with its buffers. `begin` and `is_ended` are for its thread; others may visit().
class Place {
 public:
  Place(Random& random, Retired& retired) : random_(random), work_(random, retired) {}

  /// Draws new work and submits it, retrying until accepted. The job may depend on some of
  /// `earlier`, which this thread has begun since it last checked for ends.
  void begin(Engine& engine, std::span<const MoverPolicy> policies,
             std::unique_ptr<Channel>& channel, std::span<const std::unique_ptr<Place>> earlier) {
    const Lock lock(gate_);
    predecessors_.clear();
    const std::uint64_t shape = random_.below(40);
    work_.draw(shape == 0 ? 40 : shape < 7 ? 8 : 1);
    way_ = choose_way(channel != nullptr);
    stop_asked_ = false;
    end_.reset();
    for (Atomic<std::uint32_t>* const count : {&calls_, &thens_, &awaited_}) {
      count->store_relaxed(0);  // Before the submission.
    }
    if (way_ == Way::channel && !begin_in(*channel)) way_ = Way::job;
    if (way_ == Way::channel) return;
    const std::uint64_t drawn = random_.below(16);
    options_ = {.callback = count_call,
                .callback_context = &calls_,
                .path = drawn == 0   ? Path::cpu
                        : drawn == 1 ? Path::automatic
                                     : Path::dsa};
    // Those without a policy may share a descriptor.
    if (random_.chance(1, 2)) {
      options_.source_node = NodeId(static_cast<std::uint32_t>(random_.below(2)));
      options_.target_node = NodeId(static_cast<std::uint32_t>(random_.below(2)));
      options_.policy = &policies[random_.below(policies.size())];
    }
    if (way_ != Way::run && random_.chance(1, 4)) name_some_of(earlier);
    if (way_ == Way::coroutine) {
      await(engine);
      return;
    }
    if (way_ == Way::run) {
      end_.emplace();
      EXPECT_EQ(engine.run(work_.operations()[0], *end_, options_), Submit::accepted);
      return;
    }
    if (way_ == Way::then) {
      options_.then = count_then;
      options_.then_context = &thens_;
    }
    Submit answer = submit(engine);
    while (answer == Submit::full) {
      engine.poll();
      std::this_thread::yield();
      answer = submit(engine);
    }
    ASSERT_EQ(answer, Submit::accepted) << name(answer) << '\n' << work_.shown();
    if (random_.chance(1, 100)) stop();
  }

  /// Checks for the end, in a random way.
  [[nodiscard]] bool is_ended(Engine& engine, std::unique_ptr<Channel>& channel) {
    switch (way_) {
      case Way::run:
        return true;
      case Way::channel:
        return is_ended_in(*channel);
      case Way::coroutine:
        engine.poll();
        return awaited_.load_acquire() != 0;
      case Way::then:
        // Polled by all threads: the one that ends the job then calls `then`.
        engine.poll();
        return thens_.load_acquire() != 0;
      case Way::job:
        break;
    }
    switch (random_.below(3)) {
      case 0:
        return job_.wait_for(std::chrono::microseconds(200));
      case 1:
        engine.poll();
        return job_.state() != JobState::running;
      default:
        return job_.poll();
    }
  }

  /// Call once, when it has ended.
  void check(Tally& tally) {
    const Lock lock(gate_);  // No visits from here to the next submission.
    if (way_ != Way::channel) {
      EXPECT_EQ(calls_.load_relaxed(), 1U) << "not called back once";  // After the end.
    }
    if (way_ == Way::then) {
      EXPECT_EQ(thens_.load_relaxed(), 1U);  // As above.
      ++tally.continued;
    }
    if (way_ == Way::run) ++tally.runs;
    if (way_ == Way::channel) ++tally.channel_ends;
    if (way_ == Way::coroutine) ++tally.awaited;
    if (!predecessors_.empty()) ++tally.named_others;
    const Completion& end = end_ ? *end_ : job_.completion();
    // All have been checked and not resubmitted.
    const bool may_begin = std::ranges::all_of(
        predecessors_, [](const Job* job) { return job->completion().state == JobState::done; });
    if (end.cause == Cause::predecessor_failed) {
      EXPECT_FALSE(may_begin) << work_.shown();
      return work_.pass_over(tally);
    }
    EXPECT_TRUE(may_begin || end.state == JobState::stopped) << work_.shown();
    work_.check(end, stop_asked_, tally);
  }

  /// Called by any thread, concurrently: polls a job, waits for it or stops it. Returns false if
  /// there is no job.
  [[nodiscard]] bool visit(Random& random) HEADRACE_TSA(no_thread_safety_analysis) {
    if (!gate_.try_lock()) return false;
    const bool runs = way_ == Way::job && job_.state() == JobState::running;
    if (runs) {
      const std::uint64_t how = random.below(16);
      if (how == 0) stop();
      if (how < 8) {
        static_cast<void>(job_.poll());
      } else {
        static_cast<void>(job_.wait_for(std::chrono::microseconds(50)));
      }
    }
    gate_.unlock();
    return runs;
  }

  [[nodiscard]] bool is_in_channel() const { return way_ == Way::channel; }
  [[nodiscard]] std::string shown() const { return work_.shown(); }

 private:
  static void count_call(void* context, const Completion&) noexcept {
    static_cast<Atomic<std::uint32_t>*>(context)->fetch_add_relaxed(1);  // Read after the end.
  }
  static void count_then(void* context) noexcept {
    static_cast<Atomic<std::uint32_t>*>(context)->fetch_add_acq_rel(1);
  }

  Way choose_way(bool has_channel) {
    const std::uint64_t drawn = random_.below(16);
    if (drawn == 0) return Way::then;
    if (drawn <= 2) return Way::coroutine;
    if (drawn == 3 && !work_.is_batch()) return Way::run;
    if (drawn <= 7 && has_channel) return Way::channel;
    return Way::job;
  }

  /// Those whose end leaves the job valid as a predecessor.
  void name_some_of(std::span<const std::unique_ptr<Place>> earlier) {
    for (const std::unique_ptr<Place>& place : earlier) {
      const bool has_job = place->way_ == Way::job || place->way_ == Way::then;
      if (has_job && random_.chance(1, 2)) predecessors_.push_back(&place->job_);
    }
    options_.after = predecessors_;
  }

  Submit submit(Engine& engine) {
    return work_.is_batch() ? engine.submit_batch(job_, work_.batch(), options_)
                            : engine.submit(job_, work_.operations()[0], options_);
  }

  Detached await(Engine& engine) {
    Ended ended{.submit = Submit::full};
    while (ended.submit == Submit::full) {
      if (work_.is_batch()) {
        ended = co_await start(engine, work_.batch(), options_);
      } else {
        ended = co_await start(engine, work_.operations()[0], options_);
      }
      // Refused: this is still the submitting thread.
      if (ended.submit == Submit::full) {
        engine.poll();
        std::this_thread::yield();
      }
    }
    EXPECT_EQ(ended.submit, Submit::accepted);
    end_ = ended.completion;
    awaited_.store_release(1);
  }

  /// Returns false if refused.
  bool begin_in(Channel& channel) {
    const Submit answer = work_.is_batch() ? channel.submit_batch(work_.batch(), ticket_)
                                           : channel.submit(work_.operations()[0], ticket_);
    EXPECT_TRUE(answer == Submit::accepted || answer == Submit::full || answer == Submit::closed)
        << name(answer);
    return answer == Submit::accepted;
  }
  bool is_ended_in(Channel& channel) {
    Completion end;
    if (!channel.poll(ticket_, end)) return false;
    end_ = end;
    return true;
  }

  void stop() {
    stop_asked_ = true;
    job_.stop();
  }

  Random& random_;
  Work work_;
  Way way_ = Way::run;
  SubmitOptions options_;
  std::vector<Job*> predecessors_;
  std::optional<Completion> end_;
  Ticket ticket_{};
  Atomic<std::uint32_t> calls_{0};
  Atomic<std::uint32_t> thens_{0};
  Atomic<std::uint32_t> awaited_{0};
  /// Held while the job may not be visited: it is being submitted, or its end is being checked.
  Mutex gate_;
  bool stop_asked_ = false;
  Job job_;
};

/// State shared by the threads. `done`, `failed` and `over` are counters and requests: relaxed.
struct Stage {
  Stage(Engine& used, Retired& kept) : engine(used), retired(kept) {}

  Engine& engine;
  Retired& retired;
  std::array<Random, kThreadCount> chances = make_chances();
  std::vector<std::unique_ptr<Place>> places;  ///< kWindow per thread.
  Atomic<std::uint64_t> done{0};
  Atomic<bool> failed{false};
  Atomic<bool> over{false};
  Mutex mutex;
  Tally tally HEADRACE_GUARDED_BY(mutex);
  Condition thread_ended;

  static std::array<Random, kThreadCount> make_chances() {
    const std::uint64_t seed = headrace::test::seed();
    return []<std::size_t... i>(std::uint64_t first, std::index_sequence<i...>) {
      return std::array{Random(first + i * 7919)...};
    }(seed, std::make_index_sequence<kThreadCount>());
  }
  [[nodiscard]] bool is_over() const { return over.load_relaxed() || failed.load_relaxed(); }
};

std::string queue_name(std::uint64_t device, std::uint64_t queue) {
  return fmt::format("dsa{}/wq{}.{}", device, device, queue);
}

/// Sometimes opens or closes a channel of some queue, if there is room.
void change_channel(Stage& stage, Random& random, std::unique_ptr<Channel>& channel) {
  channel.reset();
  auto opened = stage.engine.open_channel(
      {.queue = queue_name(random.below(kDeviceCount), random.below(kQueueCount)),
       .depth = 1 + random.below(3)});
  if (opened) {
    channel = std::move(*opened);
  } else {
    EXPECT_EQ(opened.error().code, Code::capacity_exceeded) << opened.error().message();
  }
}

void work(Stage& stage, std::size_t index) {
  Random& random = stage.chances.at(index);
  Random visits(headrace::test::seed() + index);
  const std::array<MoverPolicy, 5> policies{movers::round_robin, movers::least_loaded, movers::all,
                                            movers::push_pull, movers::near_target};
  const std::span<const std::unique_ptr<Place>> mine =
      std::span(stage.places).subspan(index * kWindow, kWindow);
  std::unique_ptr<Channel> channel;
  Tally tally;
  while (!stage.is_over()) {
    if (random.chance(1, 64)) change_channel(stage, random, channel);
    for (std::size_t i = 0; i < kWindow; ++i) {
      mine[i]->begin(stage.engine, policies, channel, mine.first(i));
    }
    if (::testing::Test::HasFailure()) break;
    if (visits.chance(1, 2) && stage.places[visits.below(stage.places.size())]->visit(visits)) {
      ++tally.visits;
    }
    for (const auto& place : mine) {
      const std::uint64_t before = tally.operations;
      while (!place->is_ended(stage.engine, channel)) std::this_thread::yield();
      place->check(tally);
      stage.done.fetch_add_relaxed(tally.operations - before);  // A count.
    }
    if (::testing::Test::HasFailure()) stage.failed.store_relaxed(true);  // Relaxed: a request.
  }
  const Lock lock(stage.mutex);
  stage.tally.add(tally);
  stage.thread_ended.notify_one();
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

std::ptrdiff_t open_files() {
  namespace fs = std::filesystem;
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

std::uint64_t aborted(emu::Device& devices) {
  std::uint64_t sum = 0;
  for (const emu::DeviceStatistics& device : devices.control().statistics().devices) {
    for (const emu::QueueStatistics& queue : device.queues) sum += queue.aborted_count;
  }
  return sum;
}

/// Faults and resets of the devices while the threads work.
class Director {
 public:
  Director(Stage& stage, const test::Emulated& machine) : stage_(stage), machine_(machine) {}

  void direct() {
    const steady_clock::time_point begun = steady_clock::now();
    const std::uint64_t goal = number_from("HEADRACE_SOAK_OPERATIONS", kOperations);
    const auto seconds = static_cast<double>(number_from("HEADRACE_SOAK_SECONDS", 0));
    steady_clock::time_point told = begun;
    steady_clock::time_point moved = begun;
    std::uint64_t done_before = 0;
    while (!stage_.is_over()) {
      const steady_clock::time_point now = steady_clock::now();
      const std::uint64_t done = stage_.done.load_relaxed();  // A count.
      if (done != done_before) moved = now;
      done_before = done;
      const auto taken = std::chrono::duration<double>(now - begun).count();
      part_ = static_cast<double>(done) / static_cast<double>(goal);
      if (seconds > 0) part_ = std::min(part_, taken / seconds);
      if (part_ >= 1) stage_.over.store_relaxed(true);  // Relaxed: a request.
      act(done);
      if (now - told >= kTellEvery) {
        told = now;
        std::printf("soak: %.0f s, %llu operations, %.0f per second, %.0f %%, seed %llu\n", taken,
                    static_cast<unsigned long long>(done), static_cast<double>(done) / taken,
                    100 * part_, static_cast<unsigned long long>(headrace::test::seed()));
        std::fflush(stdout);
      }
      if (now - moved > kHang) {
        // Threads that hang cannot be ended.
        std::printf("soak: nothing has ended for %lld s: a hang\n",
                    static_cast<long long>(kHang.count() / 1'000'000'000));
        for (const auto& place : stage_.places) std::printf("%s", place->shown().c_str());
        std::fflush(stdout);
        std::abort();
      }
      const Lock lock(stage_.mutex);
      static_cast<void>(stage_.thread_ended.wait_for(stage_.mutex, std::chrono::milliseconds(1)));
    }
    seconds_ = std::chrono::duration<double>(steady_clock::now() - begun).count();
  }

  [[nodiscard]] double seconds() const { return seconds_; }
  [[nodiscard]] std::uint64_t done_at_death() const { return done_at_death_; }
  [[nodiscard]] std::uint64_t resident_at_quarter() const { return resident_at_quarter_; }
  [[nodiscard]] std::uint64_t retired_at_quarter() const { return retired_at_quarter_; }

 private:
  void act(std::uint64_t done) {
    emu::Control& control = machine_.devices->control();
    if (part_ >= next_reset_) {
      const DeviceId device = kResetDevices.at(reset_count_ % kResetDevices.size());
      // During work, unless the run is about to end.
      if (control.occupancy(device, QueueId(0)) > 0 || part_ >= next_reset_ + 0.01) {
        control.reset(device);
        ++reset_count_;
        next_reset_ += 0.01;
      }
    }
    if (step_ == 0 && part_ >= 0.25) {
      resident_at_quarter_ = resident_bytes();
      retired_at_quarter_ = stage_.retired.byte_count();
      control.halt(kMendedDevice);
      ++step_;
    } else if (step_ == 1 && part_ >= 0.35) {
      control.reset(kMendedDevice);
      ++step_;
    } else if (step_ == 2 && part_ >= 0.5) {
      control.halt(kDeadDevice);
      done_at_death_ = done;
      ++step_;
    }
  }

  Stage& stage_;
  const test::Emulated& machine_;
  double part_ = 0;
  double next_reset_ = 0.01;
  std::size_t reset_count_ = 0;
  int step_ = 0;
  double seconds_ = 0;
  std::uint64_t done_at_death_ = 0;
  std::uint64_t resident_at_quarter_ = 0;
  std::uint64_t retired_at_quarter_ = 0;
};

/// Entries of all queues that are not released after every device has been reset.
std::uint64_t missing_entries(const test::Emulated& machine) {
  for (std::uint32_t d = 0; d < kDeviceCount; ++d) machine.devices->control().reset(DeviceId(d));
  std::uint64_t missing = 0;
  for (std::uint32_t d = 0; d < kDeviceCount; ++d) {
    for (std::uint32_t q = 0; q < kQueueCount; ++q) {
      // A late answer is found by polling; records of a reset may take a moment.
      const auto until = steady_clock::now() + std::chrono::seconds(1);
      std::size_t depth = kEntryCount - 1;  // One remains for jobs.
      while (depth > 0) {
        machine.engine->poll();
        if (machine.engine->open_channel({.queue = queue_name(d, q), .depth = depth})) break;
        if (steady_clock::now() > until) --depth;
      }
      missing += kEntryCount - 1 - depth;
    }
  }
  return missing;
}

TEST(Soak, EveryByteIsRightAndEveryJobEndsOnceWhateverTheDevicesDo) {
  const std::ptrdiff_t files_before = open_files();
  {
    Retired retired_arenas;
    const test::Emulated machine = test::make_emulated({.device_count = kDeviceCount,
                                                        .dedicated_count = 1,
                                                        .engine_count = 2,
                                                        .transfer_bytes_max = 16U << 10U,
                                                        .entry_count = kEntryCount,
                                                        .device = {.timeout = kTimeoutMax},
                                                        .faults = troubles(),
                                                        .policy = movers::round_robin});
    Stage stage(*machine.engine, retired_arenas);
    for (std::size_t i = 0; i < kThreadCount * kWindow; ++i) {
      stage.places.push_back(std::make_unique<Place>(stage.chances.at(i / kWindow), stage.retired));
    }
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreadCount; ++i) threads.emplace_back([&, i] { work(stage, i); });
    Director director(stage, machine);
    director.direct();
    for (std::thread& thread : threads) thread.join();
    const std::uint64_t resident = resident_bytes();
    const std::uint64_t aborted_count = aborted(*machine.devices);
    const std::vector<DeviceStatistics> by_queue = machine.engine->device_statistics();
    std::uint64_t unanswered = 0;
    for (const emu::DeviceStatistics& device : machine.devices->control().statistics().devices) {
      for (const emu::QueueStatistics& queue : device.queues) unanswered += queue.dropped_count;
    }
    const Tally tally = [&] {
      const Lock lock(stage.mutex);
      return stage.tally;
    }();
    if (!::testing::Test::HasFailure()) {
      // Lost completions stay lost: at most the first and one of every million.
      const std::uint64_t lost_max = test::kReportsEveryRace ? 0 : 2 + tally.operations / 1'000'003;
      EXPECT_LE(missing_entries(machine), lost_max + unanswered) << "entries that no client has";
    }
    machine.engine->stop();

    const EngineStatistics totals = machine.engine->statistics();
    EXPECT_EQ(totals.jobs_submitted, totals.jobs_done + totals.jobs_stopped + totals.jobs_failed);
    EXPECT_EQ(totals.jobs_submitted, tally.jobs);
    DeviceStatistics sum;
    for (const DeviceStatistics& one : by_queue) {
      sum.descriptors += one.descriptors;
      sum.retries += one.retries;
      sum.page_faults += one.page_faults;
      sum.errors += one.errors;
      sum.lost += one.lost;
    }
    // Each kind of failure has occurred.
    EXPECT_GT(sum.retries, 0U) << "full queues";
    EXPECT_GT(sum.page_faults, 0U);
    EXPECT_GT(tally.resumed, 0U) << "partial completions";
    EXPECT_GT(sum.errors, 0U) << "error codes";
    EXPECT_GT(aborted_count, 0U) << "resets in the middle of work";
    EXPECT_GT(by_queue.at(3 * kQueueCount).lost + by_queue.at(3 * kQueueCount + 1).lost, 0U)
        << "the death of a device";
    EXPECT_GT(tally.operations, director.done_at_death()) << "and life after it";
    EXPECT_GT(director.done_at_death(), 0U);
    EXPECT_GT(totals.bytes_by_device, 0U);
    for (const std::uint64_t count :
         {tally.stopped, tally.failed, tally.fences_broken, tally.findings, tally.fell_back,
          tally.abandoned, tally.runs, tally.awaited, tally.continued, tally.channel_ends,
          tally.visits, tally.named_others, tally.never_begun}) {
      EXPECT_GT(count, 0U);
    }
    for (std::size_t kind = 0; kind < kOperationKindCount; ++kind) {
      EXPECT_GT(tally.by_kind.at(kind), 0U) << name(static_cast<OperationKind>(kind));
    }
    EXPECT_LT(tally.undecided, 1 + tally.jobs / 1000);
    const std::uint64_t retired = stage.retired.byte_count() - director.retired_at_quarter();
    EXPECT_LT(resident, director.resident_at_quarter() + retired + kGrowthMax) << "memory grows";
    const auto shown = [](std::uint64_t count) { return static_cast<unsigned long long>(count); };
    std::printf(
        "soak: %llu operations in %llu jobs, %.0f s, %.0f per second, seed %llu: %llu descriptors, "
        "%llu retries, %llu page faults (%llu resumed), %llu errors, %llu aborted, %llu lost, "
        "%llu fell back, %llu failed, %llu behind a broken fence, %llu found something, "
        "%llu durable, %llu stopped, %llu run, %llu awaited, %llu continued, %llu by channels, "
        "%llu visits, %llu after others, %llu of these never begun, %llu undecided; resident "
        "memory %llu MiB, %llu at a quarter\n",
        shown(tally.operations), shown(tally.jobs), director.seconds(),
        static_cast<double>(tally.operations) / director.seconds(), shown(headrace::test::seed()),
        shown(sum.descriptors), shown(sum.retries), shown(sum.page_faults), shown(tally.resumed),
        shown(sum.errors), shown(aborted_count), shown(sum.lost), shown(tally.fell_back),
        shown(tally.failed), shown(tally.fences_broken), shown(tally.findings),
        shown(tally.durable), shown(tally.stopped), shown(tally.runs), shown(tally.awaited),
        shown(tally.continued), shown(tally.channel_ends), shown(tally.visits),
        shown(tally.named_others), shown(tally.never_begun), shown(tally.undecided),
        shown(resident >> 20U), shown(director.resident_at_quarter() >> 20U));
  }
  EXPECT_EQ(open_files(), files_before) << "descriptors of files";
  std::printf("soak: %s\n", ::testing::Test::HasFailure() ? "FAILED" : "passed");
}

}  // namespace
}  // namespace headrace::engine::soak

// AddressSanitizer keeps up to 256 MiB of freed memory in quarantine, which the soak would count as
// growth. Its run time calls this; a small quarantine still finds use soon after free.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=16";
}
