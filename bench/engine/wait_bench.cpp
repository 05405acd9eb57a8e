// SPDX-License-Identifier: Apache-2.0
// How late does a wait return, and how much processor time does it use, by Waiting?
//
// Jobs of a given duration, one at a time: by a mover with a thread, like workers, or by one that
// the waiting thread polls, like a device. Engines with each kind of Waiting take turns, twenty
// jobs each. Reports for each kind `late_us`, from the end of the work until wait() returns (median
// and upper decile), and `cpu_us`, the waiting thread's processor time per job (mean). Arguments: 1
// if polled, microseconds.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/base/mutex.hpp"
#include "headrace/engine/engine.hpp"
#include "measure.hpp"

namespace {

using headrace::Condition;
using headrace::Lock;
using headrace::Mutex;
using headrace::engine::Engine;
using headrace::engine::Job;
using headrace::engine::Mover;
using headrace::engine::MoverInfo;
using headrace::engine::Operation;
using headrace::engine::OperationSet;
using headrace::engine::Request;
using headrace::engine::Submit;
using headrace::engine::Waiting;
using Clock = std::chrono::steady_clock;

constexpr std::array kWays{Waiting::spin, Waiting::adaptive, Waiting::sleep};
constexpr int kJobs = 20;

/// Completes a request after a fixed time, without work. One request at a time.
///
/// Threading: shared.
class TimedMover final : public Mover {
 public:
  TimedMover(bool polled, Clock::duration takes) : polled_(polled), takes_(takes) {
    info_.polled = polled;
    if (!polled) thread_ = std::thread([this] { work(); });
  }
  ~TimedMover() override { stop(); }
  TimedMover(const TimedMover&) = delete;
  TimedMover& operator=(const TimedMover&) = delete;
  [[nodiscard]] const MoverInfo& info() const override { return info_; }
  [[nodiscard]] Submit post(Request& request) noexcept override {
    {
      const Lock lock(mutex_);
      request_ = &request;
      due_ = Clock::now() + takes_;
    }
    arrived_.notify_one();
    return Submit::accepted;
  }
  void reap() noexcept override {
    if (!polled_) return;
    Request* request = nullptr;
    {
      const Lock lock(mutex_);
      if (request_ == nullptr || Clock::now() < due_) return;
      request = std::exchange(request_, nullptr);
      ended_ = due_;  // The due time, not the time of this poll.
    }
    request->complete({});
  }
  void reap(const Request&) noexcept override { reap(); }
  void stop() noexcept override {
    {
      const Lock lock(mutex_);
      stopping_ = true;
    }
    arrived_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  /// End of the last job, which must be complete.
  [[nodiscard]] Clock::time_point ended() const { return ended_; }

 private:
  void work() {
    while (true) {
      Request* request = nullptr;
      {
        const Lock lock(mutex_);
        while (request_ == nullptr && !stopping_) arrived_.wait(mutex_);
        if (request_ == nullptr) return;
        request = std::exchange(request_, nullptr);
      }
      const Clock::time_point begun = Clock::now();
      while (Clock::now() - begun < takes_) {
      }
      ended_ = Clock::now();
      request->complete({});
    }
  }

  const bool polled_;
  const Clock::duration takes_;
  MoverInfo info_{.name = "timed", .operations = OperationSet::all()};
  Mutex mutex_;
  Condition arrived_;
  Request* request_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
  Clock::time_point due_ HEADRACE_GUARDED_BY(mutex_);
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  Clock::time_point ended_;  ///< Published to the waiting thread by the job's completion.
  std::thread thread_;
};

struct Subject {
  TimedMover* mover = nullptr;
  std::unique_ptr<Engine> engine;
  std::vector<double> late_us;
  double cpu_us = 0;
};

void do_jobs(Subject& subject) {
  const double begun_ns = headrace::bench::now_ns();
  for (int i = 0; i < kJobs; ++i) {
    Job job;
    if (subject.engine->submit(job, Operation::no_op()) != Submit::accepted) std::abort();
    job.wait();
    const std::chrono::duration<double, std::micro> late = Clock::now() - subject.mover->ended();
    subject.late_us.push_back(late.count());
  }
  subject.cpu_us += (headrace::bench::now_ns() - begun_ns) / 1e3 / kJobs;
}

void wait(benchmark::State& state) {
  const std::chrono::microseconds takes(state.range(1));
  std::array<Subject, kWays.size()> subjects;
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    auto mover = std::make_unique<TimedMover>(state.range(0) != 0, takes);
    subjects[i].mover = mover.get();
    std::vector<std::unique_ptr<Mover>> movers;
    movers.push_back(std::move(mover));
    auto engine = Engine::make(std::move(movers), {}, {.waiting = kWays[i]});
    if (!engine) return state.SkipWithError("no engine");
    subjects[i].engine = std::move(*engine);
  }
  std::size_t rounds = 0;
  for (auto round : state) {
    static_cast<void>(round);
    for (std::size_t k = 0; k < subjects.size(); ++k) {
      do_jobs(subjects[(k + rounds) % subjects.size()]);
    }
    ++rounds;
  }
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    const std::string way(name(kWays[i]));
    state.counters[way + "_late_us"] = headrace::bench::quantile(subjects[i].late_us, 0.5);
    state.counters[way + "_late_us_p90"] = headrace::bench::quantile(subjects[i].late_us, 0.9);
    state.counters[way + "_cpu_us"] = subjects[i].cpu_us / static_cast<double>(rounds);
  }
}

BENCHMARK(wait)->ArgsProduct({{0, 1}, {2, 20, 200, 2000}})->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
