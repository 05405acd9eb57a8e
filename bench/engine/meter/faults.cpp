// SPDX-License-Identifier: Apache-2.0
// What does a submission cost on a device that does not work?
//
//   headrace-bench-faults COUNT
//
// An engine with one worker thread and one device, which follows a script (Kind). Copies of kBytes,
// more than a submission carries out itself, are submitted by path `auto`. Counted by single steps
// inside Engine::submit alone: instructions. Timed likewise: the processor time of the calling
// thread, of which p99.9 also has what interrupts it. Then the worker is held, so that no thread
// but the caller can write to the targets: bytes that are there when a submission returns are the
// caller's. Devices move no bytes. Prints one JSON object.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/cpu/mover.hpp"
#include "engine/dsa/queue.hpp"
#include "headrace/base/atomic.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/engine/route.hpp"
#include "measure.hpp"
#include "stepper.hpp"

namespace headrace::bench {
namespace {

using engine::DsaQueue;
using engine::Engine;
using engine::Job;
using engine::Mover;
using engine::Operation;
using engine::Submit;

constexpr std::size_t kBytes = std::size_t{256} << 10U;
static_assert(kBytes > engine::kInlineBytesMax);
constexpr std::size_t kJobs = 16;
constexpr std::size_t kStepped = 32;
constexpr double kSlowNs = 200'000;
constexpr std::size_t kLostEvery = 16;

enum class Kind : std::uint8_t {
  healthy,      ///< Answers at once.
  slow,         ///< Answers after kSlowNs.
  page_faults,  ///< Answers with a page fault, and with success when asked again.
  lost,         ///< Never answers one in kLostEvery.
  silent,       ///< Never answers.
  refusing,     ///< Its queue is full, for less than the timeout.
  closed,       ///< Its queue is full, for longer than the timeout.
};

/// Threading: owned.
class ScriptedDevice final : public dsa::Portal {
 public:
  explicit ScriptedDevice(Kind kind) : kind_(kind) {}
  [[nodiscard]] const dsa::QueueInfo& info() const override { return info_; }
  [[nodiscard]] bool submit(const dsa::Descriptor& descriptor) noexcept override {
    const auto record = descriptor.completion_addr;
    switch (kind_) {
      case Kind::healthy:
        answer(record, DSA_COMP_SUCCESS);
        break;
      case Kind::slow:
        due_.push_back({now_ns(CLOCK_MONOTONIC) + kSlowNs, record});
        break;
      case Kind::page_faults: {
        bool& faulted = faulted_[record];
        faulted = !faulted;
        reinterpret_cast<dsa::CompletionRecord*>(record)->fault_addr = descriptor.src_addr;
        answer(record, faulted ? DSA_COMP_PAGE_FAULT_NOBOF : DSA_COMP_SUCCESS);
        break;
      }
      case Kind::lost:
        if (++count_ % kLostEvery != 0) answer(record, DSA_COMP_SUCCESS);
        break;
      case Kind::silent:
        break;
      case Kind::refusing:
      case Kind::closed:
        return false;
    }
    return true;
  }
  /// Writes the answers that are due.
  void look() noexcept {
    while (!due_.empty() && due_.front().first <= now_ns(CLOCK_MONOTONIC)) {
      answer(due_.front().second, DSA_COMP_SUCCESS);
      due_.pop_front();
    }
  }

 private:
  static void answer(std::uint64_t record, std::uint8_t status) noexcept {
    // Relaxed: the submitting thread is the one that polls.
    store_relaxed(*reinterpret_cast<std::uint8_t*>(record), status);
  }

  const Kind kind_;
  dsa::QueueInfo info_{.name = "scripted",
                       .entry_count = 63,
                       .batch_max = 32,
                       .transfer_bytes_max = 2U << 20U,
                       .block_on_fault = false};
  std::size_t count_ = 0;
  std::map<std::uint64_t, bool> faulted_;
  std::deque<std::pair<double, std::uint64_t>> due_;
};

struct Script {
  const char* name;
  Kind kind;
  std::chrono::milliseconds timeout;  ///< Of a descriptor.
};
constexpr std::array kScripts{
    Script{"healthy", Kind::healthy, std::chrono::seconds(60)},
    Script{"slow", Kind::slow, std::chrono::seconds(60)},
    Script{"page_faults", Kind::page_faults, std::chrono::seconds(60)},
    Script{"lost", Kind::lost, std::chrono::milliseconds(1)},
    Script{"silent", Kind::silent, std::chrono::milliseconds(500)},
    Script{"refusing", Kind::refusing, std::chrono::seconds(60)},
    Script{"closed", Kind::closed, std::chrono::milliseconds(1)},
};

class Bench {
 public:
  explicit Bench(const Script& script) {
    const topo::Machine machine = must(topo::discover({.find_movers = false}));
    const topo::Node& node = machine.nodes.front();
    std::vector<std::unique_ptr<Mover>> movers;
    movers.push_back(
        must(engine::make_cpu_mover({.node = node.id, .cpus = node.cpus, .thread_count = 1})));
    auto portal = std::make_unique<ScriptedDevice>(script.kind);
    device_ = portal.get();
    auto queue = must(DsaQueue::make(std::move(portal), {.device = {.timeout = script.timeout}}));
    queue_ = queue.get();
    movers.push_back(std::move(queue));
    engine_ = must(Engine::make(std::move(movers)));
    // The state of the device is known.
    for (int i = 0; i < 3; ++i) {
      for (std::size_t k = 0; k < kJobs; ++k) submit(k);
      for (std::size_t k = 0; k < kJobs; ++k) end(k);
      ::usleep(2000);
    }
  }

  Json measure(std::size_t count) {
    std::vector<double> instructions;
    for (std::size_t i = 0; i < kStepped; ++i) {
      end(i % kJobs);
      begin_stepping();
      submit(i % kJobs);
      instructions.push_back(static_cast<double>(end_stepping().instructions));
    }
    std::vector<double> times_ns;
    for (std::size_t i = 0; i < count; ++i) {
      end(i % kJobs);
      const double begin_ns = now_ns();
      submit(i % kJobs);
      times_ns.push_back(now_ns() - begin_ns);
    }
    const std::size_t bytes = caller_bytes();
    const engine::DeviceStatistics seen = queue_->statistics();
    return {{"instructions", mean(instructions)},
            {"instructions_max", at(instructions, 1)},
            {"submit_ns", median(times_ns)},
            {"submit_ns_p999", at(times_ns, 0.999)},
            {"caller_bytes", bytes},
            {"descriptors", seen.descriptors},
            {"retries", seen.retries},
            {"page_faults", seen.page_faults},
            {"lost", seen.lost}};
  }

 private:
  struct Place {
    std::vector<std::byte> source = std::vector<std::byte>(kBytes, std::byte{1});
    std::vector<std::byte> target = std::vector<std::byte>(kBytes);
    Job job;
  };
  static double at(std::vector<double> values, double share) {
    std::ranges::sort(values);
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
  }
  static double mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  }

  void submit(std::size_t index) {
    Place& place = places_[index];
    if (engine_->submit(place.job, Operation::copy(place.target, place.source)) !=
        Submit::accepted) {
      die("a copy was refused");
    }
  }
  void end(std::size_t index) {
    while (places_[index].job.state() != engine::JobState::idle && !places_[index].job.poll()) {
      device_->look();
    }
  }

  /// Bytes that the calling thread copied while the worker was held.
  std::size_t caller_bytes() {
    for (std::size_t k = 0; k < kJobs; ++k) end(k);
    Atomic<int> held{0};  // 1: the worker calls back; 2: it may go on; 3: it does.
    Place holder;
    const auto hold = [](void* context) noexcept {
      auto& state = *static_cast<Atomic<int>*>(context);
      state.store_relaxed(1);  // Relaxed throughout: publishes no data.
      while (state.load_relaxed() != 2) {
      }
      state.store_relaxed(3);
    };
    const engine::SubmitOptions options{
        .then = hold, .then_context = &held, .path = engine::Path::cpu};
    if (engine_->submit(holder.job, Operation::copy(holder.target, holder.source), options) !=
        Submit::accepted) {
      die("the worker refused");
    }
    while (held.load_relaxed() != 1) {
    }
    std::size_t bytes = 0;
    for (std::size_t k = 0; k < kJobs; ++k) {
      std::ranges::fill(places_[k].target, std::byte{0});
      submit(k);
      bytes += static_cast<std::size_t>(std::ranges::count(places_[k].target, std::byte{1}));
    }
    held.store_relaxed(2);
    while (held.load_relaxed() != 3) {
    }
    holder.job.wait();
    for (std::size_t k = 0; k < kJobs; ++k) end(k);
    return bytes;
  }

  std::unique_ptr<Engine> engine_;
  ScriptedDevice* device_ = nullptr;
  DsaQueue* queue_ = nullptr;
  std::array<Place, kJobs> places_;
};

int run(std::size_t count) {
  Json scripts = Json::object();
  for (const Script& script : kScripts) {
    scripts[script.name] = std::make_unique<Bench>(script)->measure(count);
  }
  print({{"bytes", kBytes}, {"submissions", count}, {"scripts", scripts}});
  return 0;
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  if (argc != 2) headrace::bench::die("usage: headrace-bench-faults COUNT");
  return headrace::bench::run(headrace::bench::parse_number(argv[1]));
}
