// SPDX-License-Identifier: Apache-2.0
// The engine's use of movers: policies, refusals, failures, movers without a thread.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include <sched.h>

#include "fixtures.hpp"
#include "support/seed.hpp"
#include "support/test_data.hpp"

namespace headrace::engine {
namespace {

using test::Buffers;
using test::make_polled_engine;
using test::PolledMover;

/// Large enough for two parts, so that two movers are used.
constexpr std::size_t kTwoShares = 128U << 10U;

std::vector<MoverInfo> movers_on(const std::vector<std::optional<NodeId>>& nodes) {
  std::vector<MoverInfo> list;
  for (const std::optional<NodeId>& node : nodes) list.push_back({.name = "m", .node = node});
  return list;
}

std::vector<std::uint32_t> choose(const MoverPolicy& policy, const MoveContext& context) {
  MoverChoice choice;
  policy(context, choice);
  return {choice.chosen().begin(), choice.chosen().end()};
}

TEST(MoverPolicy, NearTargetChoosesAllMoversOfTheTargetsNode) {
  const auto list = movers_on({NodeId(0), NodeId(1), NodeId(0), std::nullopt});
  const auto near = [&](std::optional<NodeId> target) {
    return choose(movers::near_target, {.movers = list, .target_node = target});
  };
  EXPECT_EQ(near(NodeId(0)), (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(near(NodeId(1)), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(near(NodeId(9)), (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(near(std::nullopt), (std::vector<std::uint32_t>{0}));
}

TEST(MoverPolicy, NearTargetChoosesTheSourcesNodeIfTheTargetsHasNoMover) {
  const auto list = movers_on({NodeId(0), NodeId(1), NodeId(1)});
  EXPECT_EQ(choose(movers::near_target,
                   {.movers = list, .source_node = NodeId(1), .target_node = NodeId(9)}),
            (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(choose(movers::near_source,
                   {.movers = list, .source_node = NodeId(9), .target_node = NodeId(1)}),
            (std::vector<std::uint32_t>{1, 2}));
}

TEST(MoverPolicy, WhereNobodyIsNearAllTakeTurns) {
  const auto list = movers_on({NodeId(0), NodeId(1), std::nullopt});
  for (const auto policy :
       {movers::near_target, movers::near_source, movers::push_pull, movers::smart_copy}) {
    for (std::uint32_t i = 0; i < 7; ++i) {
      const std::vector<std::uint32_t> expected{i % 3};
      EXPECT_EQ(choose(policy, {.movers = list, .sequence = i}), expected);
      EXPECT_EQ(
          choose(
              policy,
              {.movers = list, .source_node = NodeId(8), .target_node = NodeId(9), .sequence = i}),
          expected);
    }
  }
}

TEST(MoverPolicy, NearSourceChoosesAllMoversOfTheSourcesNode) {
  const auto list = movers_on({NodeId(0), NodeId(1), NodeId(1)});
  EXPECT_EQ(choose(movers::near_source,
                   {.movers = list, .source_node = NodeId(1), .target_node = NodeId(0)}),
            (std::vector<std::uint32_t>{1, 2}));
}

TEST(MoverPolicy, AllChoosesAsManyAsAJobCanHave) {
  const auto two = movers_on({NodeId(0), NodeId(1)});
  EXPECT_EQ(choose(movers::all, {.movers = two}), (std::vector<std::uint32_t>{0, 1}));
  const auto ten = movers_on(std::vector<std::optional<NodeId>>(10));
  EXPECT_EQ(choose(movers::all, {.movers = ten}).size(), MoverChoice::kMoverMax);
}

TEST(MoverPolicy, AQueueOfEachDeviceIsChosenBeforeASecondOfAny) {
  // Four devices with two queues each on each of two nodes, in system order.
  std::vector<MoverInfo> list;
  for (std::uint32_t i = 0; i < 16; ++i) {
    list.push_back({.name = "queue", .node = NodeId(i / 8), .hardware = true, .queue_rank = i % 2});
  }
  const std::vector<NodePackage> packages{{NodeId(0), 0}, {NodeId(1), 0}};
  const auto chosen = [&](const MoverPolicy& policy) {
    return choose(
        policy,
        {.movers = list, .source_node = NodeId(1), .target_node = NodeId(0), .packages = packages});
  };
  using Chosen = std::vector<std::uint32_t>;
  EXPECT_EQ(chosen(movers::all), (Chosen{0, 2, 4, 6, 8, 10, 12, 14}));
  EXPECT_EQ(chosen(movers::smart_copy), (Chosen{0, 2, 4, 6, 8, 10, 12, 14}));
  EXPECT_EQ(chosen(movers::push_pull), (Chosen{8, 10, 12, 14, 0, 2, 4, 6}));
  EXPECT_EQ(chosen(movers::near_target), (Chosen{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(chosen(movers::near_source), (Chosen{8, 10, 12, 14, 9, 11, 13, 15}));
}

TEST(MoverPolicy, QueuesOfAnyRankAreChosenWhereThereIsRoom) {
  std::vector<MoverInfo> list;
  for (const std::uint32_t rank : {7U, 0U, ~0U, 0U}) {
    list.push_back({.name = "queue", .queue_rank = rank});
  }
  EXPECT_EQ(choose(movers::all, {.movers = list}), (std::vector<std::uint32_t>{1, 3, 0, 2}));
}

TEST(MoverPolicy, RoundRobinTakesTurns) {
  const auto list = movers_on({NodeId(0), NodeId(1), NodeId(2)});
  for (std::uint32_t i = 0; i < 7; ++i) {
    EXPECT_EQ(choose(movers::round_robin, {.movers = list, .sequence = i}),
              (std::vector<std::uint32_t>{i % 3}));
  }
}

TEST(MoverPolicy, WhatIsChosenOnARecordedMachineOfTwoPackagesWithFourNodesEach) {
  const auto machine = topo::replay(headrace::test::test_data() + "/machines/xeon-max-flat.json");
  ASSERT_TRUE(machine.has_value()) << machine.error().message();
  // Like worker threads: a mover for each node with processors, 0 to 7; 8 to 15 are memory only.
  std::vector<std::optional<NodeId>> nodes;
  std::vector<NodePackage> packages;
  for (const topo::Node& node : machine->nodes) {
    if (!node.cpus.empty()) nodes.emplace_back(node.id);
    if (!node.package) continue;
    packages.push_back({node.id, *node.package, machine->nearest_with_cpus(node.id)});
  }
  ASSERT_EQ(nodes.size(), 8U);
  const auto list = movers_on(nodes);
  using Chosen = std::vector<std::uint32_t>;
  struct Case {
    std::uint32_t source;
    std::uint32_t target;
    Chosen near_source;
    Chosen near_target;
    Chosen push_pull;
    Chosen smart_copy;
  };
  for (const Case& one : {
           Case{1, 1, {1}, {1}, {1}, {0, 1, 2, 3}},
           Case{1, 2, {1}, {2}, {1, 2}, {0, 1, 2, 3}},
           Case{6, 1, {6}, {1}, {6, 1}, {6, 1}},
           Case{5, 13, {5}, {5}, {5}, {4, 5, 6, 7}},  // Within a package, to a memory-only node.
           // Between packages, from or to a memory-only node: the nearest node's movers.
           Case{13, 2, {2}, {2}, {5, 2}, {5, 2}},
           Case{0, 12, {0}, {0}, {0, 4}, {0, 4}},
           Case{0, 15, {0}, {0}, {0, 7}, {0, 7}},
       }) {
    const MoveContext context{.movers = list,
                              .source_node = NodeId(one.source),
                              .target_node = NodeId(one.target),
                              .packages = packages};
    EXPECT_EQ(choose(movers::near_source, context), one.near_source) << one.source << one.target;
    EXPECT_EQ(choose(movers::near_target, context), one.near_target) << one.source << one.target;
    EXPECT_EQ(choose(movers::push_pull, context), one.push_pull) << one.source << one.target;
    EXPECT_EQ(choose(movers::smart_copy, context), one.smart_copy) << one.source << one.target;
  }
}

/// Locations of memory as reported to the engine, and the number of queries.
struct Whereabouts {
  std::array<std::pair<const void*, std::uint32_t>, 2> nodes;
  int asked_count = 0;
};
Whereabouts whereabouts;

TEST(MoverPolicy, LargeJobsAreSpreadOverTheMoversOfTheNodeWhereTheirTargetLies) {
  const auto machine = topo::replay(headrace::test::test_data() + "/machines/xeon-max-flat.json");
  ASSERT_TRUE(machine.has_value()) << machine.error().message();
  // Two devices per node with processors; 8 to 15 are memory only.
  std::vector<std::size_t> taken(16);
  std::vector<std::unique_ptr<Mover>> list;
  for (const topo::Node& node : machine->nodes) {
    for (int i = 0; i < 2 && !node.cpus.empty(); ++i) {
      list.push_back(std::make_unique<PolledMover>(PolledMover::Options{
          .info = {.name = "device", .node = node.id, .hardware = true, .polled = true},
          .answer = [&count = taken[list.size()]](std::size_t) {
            ++count;
            return Submit::accepted;
          }}));
    }
  }
  ASSERT_EQ(list.size(), taken.size());
  const EngineSettings settings{.node_of = [](const void* address) {
    ++whereabouts.asked_count;
    for (const auto& [first, node] : whereabouts.nodes) {
      if (first == address) return std::optional(NodeId(node));
    }
    return std::optional<NodeId>();
  }};
  const auto engine = Engine::make(std::move(list), {}, settings).value();
  Buffers buffers(std::size_t{16} << 20U);
  const auto takers = [&](const Operation& operation, const SubmitOptions& options) {
    std::fill(taken.begin(), taken.end(), 0);
    whereabouts.asked_count = 0;
    Job job;
    EXPECT_EQ(engine->submit(job, operation, options), Submit::accepted);
    EXPECT_EQ(job.wait().state, JobState::done);
    std::vector<std::size_t> result;
    for (std::size_t i = 0; i < taken.size(); ++i) {
      if (taken[i] > 0) result.push_back(i);
    }
    return result;
  };
  using Takers = std::vector<std::size_t>;
  const Operation copy = Operation::copy(buffers.target, buffers.source);
  whereabouts.nodes = {{{buffers.target.data(), 3}, {buffers.source.data(), 5}}};
  EXPECT_EQ(takers(copy, {}), (Takers{6, 7}));
  EXPECT_EQ(whereabouts.asked_count, 2);
  EXPECT_TRUE(buffers.equal());
  const MoverPolicy push_pull = movers::push_pull;
  EXPECT_EQ(takers(copy, {.policy = &push_pull}), (Takers{6, 7, 10, 11}));
  // A memory-only node has no mover: the source's are used.
  whereabouts.nodes[0].second = 12;
  EXPECT_EQ(takers(copy, {}), (Takers{10, 11}));
  // No query if the caller gives the node, or for small jobs, which go to the movers in rotation.
  EXPECT_EQ(takers(copy, {.target_node = NodeId(1)}), (Takers{2, 3}));
  EXPECT_EQ(whereabouts.asked_count, 0);
  const std::span<std::byte> target = buffers.target;
  const std::span<const std::byte> source = buffers.source;
  const Operation small = Operation::copy(target.first(1U << 20U), source.first(1U << 20U));
  const Takers first = takers(small, {});
  ASSERT_EQ(first.size(), 1U);
  EXPECT_NE(takers(small, {}), first);
  EXPECT_EQ(whereabouts.asked_count, 0);
  // Unknown locations are no obstacle.
  whereabouts.nodes = {};
  EXPECT_EQ(takers(copy, {}).size(), 1U);
}

TEST(MoverPolicy, LeastLoadedPassesOverABusyMoverOfProcessors) {
  std::size_t chosen = 0;
  const auto engine = test::make_engine(
      {.threads_per_node = 1,
       .policy = [&](const MoveContext&, MoverChoice& choice) { choice.add(chosen); }},
      4);
  const MoverPolicy least_loaded = movers::least_loaded;
  std::array<Job, 2> waiting;
  std::array<Buffers, 2> waiting_buffers{Buffers(1000), Buffers(1000)};
  Buffers buffers(1000);
  Job job;
  // The third mover's worker is blocked, and two jobs wait behind it.
  chosen = 2;
  test::Roadblock roadblock(*engine);
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    ASSERT_EQ(engine->submit_copy(waiting[i], waiting_buffers[i].plan()), Submit::accepted);
  }
  for (int turn = 0; turn < 8; ++turn) {
    ASSERT_EQ(engine->submit_copy(job, buffers.plan(), {.policy = &least_loaded}),
              Submit::accepted);
    ASSERT_TRUE(job.wait_for(std::chrono::seconds(20))) << "it waits behind the others";
  }
  roadblock.open();
  for (Job& one : waiting) EXPECT_EQ(one.wait().state, JobState::done);
}

TEST(MoverPolicy, APolicyThatChoosesNobodyFailsTheJob) {
  const auto engine = make_polled_engine(PolledMover::Options{});
  Buffers buffers(100);
  const MoverPolicy nobody = [](const MoveContext&, MoverChoice&) {};
  const MoverPolicy nonsense = [](const MoveContext&, MoverChoice& choice) { choice.add(5); };
  for (const MoverPolicy* const policy : {&nobody, &nonsense}) {
    Job job;
    ASSERT_EQ(engine->submit_copy(job, buffers.plan(), {.policy = policy}), Submit::accepted);
    EXPECT_EQ(job.wait().state, JobState::failed);
    EXPECT_EQ(job.completion().cause, Cause::mover_refused);
    EXPECT_EQ(job.completion().bytes_done, 0U);
  }
}

TEST(MoverPolicy, APolicySeesTheJob) {
  const auto engine = make_polled_engine(PolledMover::Options{});
  Buffers buffers(100);
  MoveContext seen;
  const MoverPolicy look = [&](const MoveContext& context, MoverChoice& choice) {
    seen = context;
    choice.add(0);
  };
  for (std::uint64_t turn = 0; turn < 3; ++turn) {
    Job job;
    ASSERT_EQ(
        engine->submit_copy(job, buffers.plan(),
                            {.source_node = NodeId(3), .target_node = NodeId(4), .policy = &look}),
        Submit::accepted);
    EXPECT_EQ(seen.movers.size(), 1U);
    EXPECT_EQ(seen.source_node, NodeId(3));
    EXPECT_EQ(seen.target_node, NodeId(4));
    unsigned node = 0;
    ASSERT_EQ(::getcpu(nullptr, &node), 0);
    EXPECT_EQ(seen.caller_node, NodeId(node));
    EXPECT_EQ(seen.byte_count, 100U);
    EXPECT_EQ(seen.sequence, turn);
  }
}

TEST(MoverPolicy, APolicyThatThrowsLeavesTheEngineAndTheJobAsTheyWere) {
  const auto engine = make_polled_engine(PolledMover::Options{});
  Buffers buffers(100);
  Job job;
  const MoverPolicy thrower = [](const MoveContext&, MoverChoice&) { throw 1; };
  EXPECT_THROW(static_cast<void>(engine->submit_copy(job, buffers.plan(), {.policy = &thrower})),
               int);
  EXPECT_EQ(job.state(), JobState::idle);
  engine->stop();  // Returns only when no thread is left inside.
}

TEST(Mover, WithoutAThreadItIsDrivenByWhoeverWaits) {
  const auto engine = make_polled_engine(PolledMover::Options{});
  Buffers buffers(100'000);
  Job job;
  ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
  EXPECT_EQ(job.state(), JobState::running);
  EXPECT_EQ(job.wait().state, JobState::done);
  EXPECT_TRUE(buffers.equal());
}

TEST(Mover, WithoutAThreadItIsDrivenByWhoeverPolls) {
  const auto engine = make_polled_engine(PolledMover::Options{});
  Buffers buffers(100'000);
  Job first;
  Job second;
  ASSERT_EQ(engine->submit_copy(first, buffers.plan()), Submit::accepted);
  EXPECT_TRUE(first.poll());
  ASSERT_EQ(engine->submit_copy(second, buffers.plan()), Submit::accepted);
  engine->poll();
  EXPECT_EQ(second.state(), JobState::done);
}

TEST(Mover, ThatFailsFailsTheJobAfterAllSharesHaveEnded) {
  const auto half = [](Cause cause, std::uintptr_t address) {
    return [=](const Request&) {
      return Completion{.cause = cause, .bytes_done = 1000, .fault_address = address};
    };
  };
  // Parts end in the order third, second, first; the first part's cause is reported.
  const auto engine = make_polled_engine(
      PolledMover::Options{}, PolledMover::Options{.work = half(Cause::page_fault, 0x1000)},
      PolledMover::Options{.work = half(Cause::device_error, 0)});
  Buffers buffers(192U << 10U);
  Job job;
  ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
  const Completion& completion = job.wait();
  EXPECT_EQ(completion.state, JobState::failed);
  EXPECT_EQ(completion.cause, Cause::page_fault);
  EXPECT_EQ(completion.fault_address, 0x1000U);
  EXPECT_GE(completion.bytes_done, (64U << 10U) - 4096U + 2000U);
  EXPECT_EQ(completion.bytes_done, buffers.moved_bytes() + 2000U);
  EXPECT_EQ(engine->statistics().jobs_failed, 1U);
}

TEST(Mover, MayEndSharesInAnyOrder) {
  const auto engine = make_polled_engine(PolledMover::Options{.last_first = true});
  std::vector<Job> jobs(10);
  std::vector<Buffers> buffers;
  std::vector<int> order;
  struct Context {
    std::vector<int>* order;
    int index;
  };
  std::vector<Context> contexts;
  for (int i = 0; i < 10; ++i) {
    buffers.emplace_back(1000, i);
    contexts.push_back({&order, i});
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_EQ(engine->submit_copy(jobs[i], buffers[i].plan(),
                                  {.callback =
                                       [](void* context, const Completion&) noexcept {
                                         const auto* const self = static_cast<Context*>(context);
                                         self->order->push_back(self->index);
                                       },
                                   .callback_context = &contexts[i]}),
              Submit::accepted);
  }
  EXPECT_EQ(jobs.front().wait().state, JobState::done);
  EXPECT_EQ(order, (std::vector<int>{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}));
}

TEST(Mover, SmallJobsTakeTurnsAmongTheChosen) {
  std::vector<std::size_t> counts(2);
  const auto counting = [&](std::size_t index) {
    return [&counts, index](std::size_t) {
      ++counts[index];
      return Submit::accepted;
    };
  };
  const auto engine = make_polled_engine(PolledMover::Options{.answer = counting(0)},
                                         PolledMover::Options{.answer = counting(1)});
  Buffers buffers(100);
  Job job;
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
    job.wait();
  }
  EXPECT_EQ(counts, (std::vector<std::size_t>{5, 5}));
}

TEST(Mover, SharesItHoldsEndAsStoppedWhenTheEngineStops) {
  const auto engine = make_polled_engine(PolledMover::Options{}, PolledMover::Options{});
  Buffers buffers(kTwoShares);
  Job job;
  ASSERT_EQ(engine->submit_copy(job, buffers.plan()), Submit::accepted);
  engine->stop();
  EXPECT_EQ(job.wait().state, JobState::stopped);
  EXPECT_EQ(job.completion().bytes_done, 0U);
}

TEST(Path, AutomaticTurnsToProcessorsWhileADeviceIsFull) {
  std::vector<std::unique_ptr<Mover>> movers;
  movers.push_back(std::make_unique<PolledMover>(
      PolledMover::Options{.info = {.name = "full", .hardware = true, .polled = true},
                           .answer = [](std::size_t) { return Submit::full; }}));
  movers.push_back(std::make_unique<PolledMover>(PolledMover::Options{}));
  const auto engine = Engine::make(std::move(movers));
  ASSERT_TRUE(engine.has_value());
  Buffers buffers(100'000);
  Job job;
  ASSERT_EQ((*engine)->submit_copy(job, buffers.plan()), Submit::accepted);
  EXPECT_EQ(job.wait().state, JobState::done);
  EXPECT_FALSE(job.completion().fell_back) << "no device was asked for";
  EXPECT_TRUE(buffers.equal());
  EXPECT_EQ((*engine)->submit_copy(job, buffers.plan(), {.path = Path::dsa}), Submit::full);
  EXPECT_EQ((*engine)->statistics().submissions_refused, 1U);
  EXPECT_EQ((*engine)->statistics().jobs_submitted, 1U);
}

TEST(Mover, WhatFollowsARunIsCalledBeforeItReturns) {
  // Another thread always ends the run's job: the engine assumes that the mover has one. A later
  // call would come too late.
  const auto engine = make_polled_engine(
      PolledMover::Options{.info = {.name = "test", .hardware = true, .polled = false}});
  std::jthread poller([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) engine->poll();
  });
  for (int i = 0; i < 20; ++i) {
    Buffers buffers(100);
    Completion end;
    const void* called_by = nullptr;
    static thread_local const char here = 0;
    const SubmitOptions options{
        .then = [](void* context) noexcept { *static_cast<const void**>(context) = &here; },
        .then_context = &called_by,
        .path = Path::dsa};
    ASSERT_EQ(engine->run(Operation::copy(buffers.target, buffers.source), end, options),
              Submit::accepted);
    ASSERT_EQ(called_by, &here);  // This thread.
  }
}

TEST(Mover, ARunThatWaitsForRoomIsOneRetryAndNoRefusal) {
  const auto engine = make_polled_engine(PolledMover::Options{
      .info = {.name = "test", .hardware = true, .polled = true},
      .answer = [](std::size_t call) { return call < 50 ? Submit::full : Submit::accepted; }});
  Buffers buffers(100);
  Completion end;
  ASSERT_EQ(engine->run(Operation::copy(buffers.target, buffers.source), end, {.path = Path::dsa}),
            Submit::accepted);
  EXPECT_EQ(end.state, JobState::done);
  EXPECT_EQ(end.retries, 1U);
  const EngineStatistics totals = engine->statistics();
  EXPECT_EQ(totals.submissions_refused, 0U);
  EXPECT_EQ(totals.operations[static_cast<std::size_t>(OperationKind::copy)].retries, 1U);
  EXPECT_EQ(totals.jobs_done, 1U);
}

}  // namespace
}  // namespace headrace::engine
