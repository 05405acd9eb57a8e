// SPDX-License-Identifier: Apache-2.0
// route() as a table, without an engine.
#include "headrace/engine/route.hpp"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace headrace::engine::route_test {
namespace {

constexpr OperationSet kAll = OperationSet::all();
constexpr OperationSet kNoDrain = kAll.without(OperationKind::drain);
constexpr OperationSet kNoCrc = kAll.without(OperationKind::crc);

/// A machine: node of each processor mover, node of each queue.
struct Machine {
  std::vector<std::uint32_t> processors;
  std::vector<std::uint32_t> devices;
  OperationSet of_devices = kAll;
};

struct Facts {
  explicit Facts(const Machine& machine) {
    for (const std::uint32_t node : machine.processors) {
      movers.push_back(
          {.name = "cpu", .node = NodeId(node), .operations = kNoDrain, .batches = true});
    }
    for (const std::uint32_t node : machine.devices) {
      movers.push_back({.name = "dsa",
                        .node = NodeId(node),
                        .hardware = true,
                        .polled = true,
                        .operations = machine.of_devices,
                        .batches = true});
    }
    facts = {.movers = movers, .processor_count = machine.processors.size()};
  }
  std::vector<MoverInfo> movers;
  RouteFacts facts;
};

const Machine kBoth{{0}, {0, 1}};
const Machine kProcessors{{0, 1}, {}};
const Machine kDevices{{}, {0, 1}};
const Machine kNoCrcDevice{{0}, {0}, kNoCrc};
const Machine kNoCrcDevices{{}, {0}, kNoCrc};

using By = Route::By;
constexpr std::optional<Path> kAny = std::nullopt;

struct Row {
  const char* what;
  const Machine& machine;
  Workload work;
  std::optional<Path> path;
  By by;
  std::vector<std::uint32_t> movers = {};
  bool fell_back = false;
  bool any = false;
  bool or_processors = false;
  SubmitOptions options = {};
};

Workload copy(std::size_t byte_count) {
  return {.kind = OperationKind::copy, .byte_count = byte_count};
}
Workload batch(std::size_t count, std::size_t byte_count,
               OperationKind kind = OperationKind::copy) {
  return {.kinds = OperationSet().with(kind), .byte_count = byte_count, .operation_count = count};
}
Workload changed(Workload work, void (*change)(Workload&)) {
  change(work);
  return work;
}

TEST(Route, IsThisTable) {
  const std::vector<Row> rows{
      {"nothing to copy", kBoth, copy(0), kAny, By::calling_thread},
      {"a little: the caller", kBoth, copy(1023), kAny, By::calling_thread},
      {"from the threshold on: a device, else processors",
       kBoth,
       copy(1024),
       kAny,
       By::movers,
       {1},
       false,
       true,
       true},
      {"turns",
       kBoth,
       changed(copy(1024), [](Workload& w) { w.turn = 1; }),
       kAny,
       By::movers,
       {2},
       false,
       true,
       true},
      {"a little that waits for others: processors",
       kBoth,
       changed(copy(8), [](Workload& w) { w.deferred = true; }),
       kAny,
       By::movers,
       {0},
       false,
       true},
      {"hardware asked for", kBoth, copy(8), Path::dsa, By::movers, {1}, false, true},
      {"software asked for", kBoth, copy(1 << 20), Path::cpu, By::movers, {0}, false, true},
      {"a small batch: the caller", kBoth, batch(4, 1023), kAny, By::calling_thread},
      {"a batch from 256 B each on",
       kBoth,
       batch(4, 1024),
       kAny,
       By::movers,
       {1},
       false,
       true,
       true},
      {"a small batch that drains: a device",
       kBoth,
       batch(4, 100, OperationKind::drain),
       kAny,
       By::movers,
       {1},
       false,
       true,
       true},
      {"a batch that drains: not the caller",
       kBoth,
       batch(4, 100, OperationKind::drain),
       Path::dsa,
       By::movers,
       {1},
       false,
       true},
      {"a batch that drains, by nobody that can",
       kProcessors,
       batch(4, 100, OperationKind::drain),
       kAny,
       By::calling_thread,
       {},
       true,
       true},
      {"more than the caller may do at once",
       kBoth,
       batch(1 << 10, 65537),
       kAny,
       By::movers,
       {0},
       false,
       true},
      {"no device: processors, also for little",
       kProcessors,
       copy(8),
       kAny,
       By::movers,
       {0},
       false,
       true},
      {"no device though asked for", kProcessors, copy(8), Path::dsa, By::movers, {0}, true, true},
      {"no processors: a device, also for little",
       kDevices,
       copy(8),
       kAny,
       By::movers,
       {0},
       false,
       true},
      {"no processors though asked for: the caller", kDevices, copy(8), Path::cpu,
       By::calling_thread},
      {"what no device can do: a processor, said",
       kNoCrcDevice,
       {.kind = OperationKind::crc, .byte_count = 1 << 20},
       Path::dsa,
       By::movers,
       {0},
       true,
       true},
      {"no mover can: the caller, said",
       kNoCrcDevices,
       {.kind = OperationKind::crc, .byte_count = 1 << 20},
       Path::dsa,
       By::calling_thread,
       {},
       true,
       true},
      {"short enough for its submission: the caller, whatever the nodes",
       kProcessors,
       batch(64, 256 << 10),
       kAny,
       By::calling_thread,
       {},
       false,
       false,
       false,
       {.target_node = NodeId(1), .inline_max = kib(256)}},
      {"a byte more than that",
       kProcessors,
       batch(64, (256 << 10) + 1),
       kAny,
       By::movers,
       {0},
       false,
       true,
       false,
       {.inline_max = kib(256)}},
      {"short enough, and it waits for others",
       kProcessors,
       changed(copy(8), [](Workload& w) { w.deferred = true; }),
       kAny,
       By::movers,
       {0},
       false,
       true,
       false,
       {.inline_max = kib(256)}},
      {"short enough, and a device takes it",
       kBoth,
       batch(64, 256 << 10),
       kAny,
       By::movers,
       {1},
       false,
       true,
       true,
       {.inline_max = kib(256)}},
      {"short enough, and too short for a device",
       kBoth,
       batch(1 << 10, 65537),
       kAny,
       By::calling_thread,
       {},
       false,
       false,
       false,
       {.inline_max = kib(256)}},
      {"short enough, software asked for",
       kBoth,
       copy(256 << 10),
       Path::cpu,
       By::calling_thread,
       {},
       false,
       false,
       false,
       {.inline_max = kib(256)}},
      {"short enough, hardware asked for and not there: said",
       kProcessors,
       copy(8),
       Path::dsa,
       By::calling_thread,
       {},
       true,
       false,
       false,
       {.inline_max = kib(256)}},
      {"nothing at all is not short",
       kProcessors,
       {},
       kAny,
       By::movers,
       {0},
       false,
       true,
       false,
       {.inline_max = kib(256)}},
      {"near the target",
       kBoth,
       copy(1 << 20),
       kAny,
       By::movers,
       {2},
       false,
       false,
       true,
       {.source_node = NodeId(0), .target_node = NodeId(1)}},
      {"near the source, where nothing is near the target",
       kBoth,
       copy(1 << 20),
       kAny,
       By::movers,
       {2},
       false,
       false,
       true,
       {.source_node = NodeId(1), .target_node = NodeId(7)}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    const Facts facts(row.machine);
    SubmitOptions options = row.options;
    options.path = row.path;
    const Route made = route(row.work, options, facts.facts);
    EXPECT_EQ(made.by, row.by);
    const auto chosen = made.movers.chosen();
    EXPECT_EQ(std::vector<std::uint32_t>(chosen.begin(), chosen.end()), row.movers);
    EXPECT_EQ(made.fell_back, row.fell_back);
    EXPECT_EQ(made.any, row.any);
    EXPECT_EQ(made.or_processors, row.or_processors);
  }
}

TEST(Route, APolicyThatChoosesNobodyOrAMoverThatDoesNotExistIsRefused) {
  Facts facts(kBoth);
  const MoverPolicy nobody = [](const MoveContext&, MoverChoice&) {};
  const MoverPolicy absent = [](const MoveContext& context, MoverChoice& choice) {
    choice.add(context.movers.size());
  };
  for (const MoverPolicy* const policy : {&nobody, &absent}) {
    EXPECT_EQ(route(copy(1 << 20), {.policy = policy}, facts.facts).by, By::none);
    facts.facts.policy = policy;
    EXPECT_EQ(route(copy(1 << 20), {}, facts.facts).by, By::none);
    facts.facts.policy = nullptr;
  }
}

TEST(Route, APolicySeesPlainFactsOfTheMoversOfItsPath) {
  Facts facts(kBoth);
  facts.facts.loads = Loads([](const void*, std::size_t index) { return index * 10; }, nullptr);
  const MoverPolicy policy = [](const MoveContext& context, MoverChoice& choice) {
    EXPECT_EQ(context.movers.size(), 2U);
    EXPECT_TRUE(context.movers[0].hardware);
    EXPECT_EQ(context.movers[1].node, NodeId(1));
    EXPECT_EQ(context.loads(0), 10U);
    EXPECT_EQ(context.loads(1), 20U);
    movers::least_loaded(context, choice);
  };
  const Route made = route(copy(1 << 20), {.policy = &policy}, facts.facts);
  ASSERT_EQ(made.movers.chosen().size(), 1U);
  EXPECT_EQ(made.movers.chosen()[0], 1U);
}

}  // namespace
}  // namespace headrace::engine::route_test
