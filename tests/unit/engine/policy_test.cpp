// SPDX-License-Identifier: Apache-2.0
// The library's policies in isolation: their names, and the composite one.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "headrace/engine/mover.hpp"

namespace headrace::engine {
namespace {

TEST(Policies, BySizeTakesTheCallersNodeForSmallCopiesAndSmartCopyForLarge) {
  const std::array<MoverInfo, 3> list{{{.name = "a", .node = NodeId(0)},
                                       {.name = "b", .node = NodeId(1)},
                                       {.name = "c", .node = NodeId(2)}}};
  const std::array<NodePackage, 3> packages{{{NodeId(0), 0}, {NodeId(1), 0}, {NodeId(2), 1}}};
  const auto chosen = [&](std::optional<std::uint32_t> caller, std::size_t byte_count) {
    MoverChoice choice;
    movers::by_size({.movers = list,
                     .source_node = NodeId(0),
                     .target_node = NodeId(1),
                     .caller_node = caller ? std::optional(NodeId(*caller)) : std::nullopt,
                     .byte_count = byte_count,
                     .packages = packages},
                    choice);
    return std::vector<std::uint32_t>(choice.chosen().begin(), choice.chosen().end());
  };
  using Chosen = std::vector<std::uint32_t>;
  const std::size_t large = movers::kBySizeBytes;
  EXPECT_EQ(chosen(2, large - 1), (Chosen{2}));
  EXPECT_EQ(chosen(2, large), (Chosen{0, 1}));
  // No mover on the caller's node, or node unknown: as near_target.
  EXPECT_EQ(chosen(9, large - 1), (Chosen{1}));
  EXPECT_EQ(chosen(std::nullopt, large - 1), (Chosen{1}));
}

TEST(Policies, HaveTheNamesThatTheyAreCalledBy) {
  std::vector<std::string_view> names;
  for (const movers::Named& policy : movers::named()) names.push_back(policy.name);
  EXPECT_EQ(names,
            (std::vector<std::string_view>{"near_target", "near_source", "all", "round_robin",
                                           "least_loaded", "push_pull", "smart_copy", "by_size"}));
  constexpr std::array kFunctions{movers::near_target, movers::near_source,  movers::all,
                                  movers::round_robin, movers::least_loaded, movers::push_pull,
                                  movers::smart_copy,  movers::by_size};
  for (std::size_t i = 0; i < kFunctions.size(); ++i) {
    EXPECT_EQ(movers::named()[i].choose, kFunctions[i]) << names[i];
  }
}

}  // namespace
}  // namespace headrace::engine
