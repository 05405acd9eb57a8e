// SPDX-License-Identifier: Apache-2.0
// Compares shares and times with closed forms.
#include "sim/fluid.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace headrace::sim {
namespace {

constexpr double kNear = 1e-3;  // Nanoseconds.

TEST(Fluid, OneFlowTakesBytesOverRate) {
  Fluid fluid;
  const ResourceIndex link = fluid.add("link", 4);
  double end_ns = 0;
  fluid.carry(1000, {{link, 1}}, [&] { end_ns = fluid.now_ns(); });
  fluid.run();
  EXPECT_NEAR(end_ns, 250, kNear);
  EXPECT_NEAR(fluid.utilisation(link), 1, 1e-9);
}

TEST(Fluid, LongTimesAdvanceToo) {
  Fluid fluid;
  const ResourceIndex link = fluid.add("link", 3);
  std::uint32_t left = 1000;
  const Fluid::Action next = [&] {
    if (left-- != 0) fluid.after(0.1, [&] { fluid.carry(1000, {{link, 1}}, next); });
  };
  fluid.after(3e11, next);  // Five minutes.
  fluid.run();
  EXPECT_EQ(left, UINT32_MAX);
}

TEST(Fluid, AFlowIsBoundByItsSlowestResource) {
  Fluid fluid;
  const ResourceIndex wide = fluid.add("wide", 10);
  const ResourceIndex narrow = fluid.add("narrow", 2);
  fluid.carry(100, {{wide, 1}, {narrow, 1}}, [] {});
  fluid.run();
  EXPECT_NEAR(fluid.now_ns(), 50, kNear);
  EXPECT_NEAR(fluid.utilisation(wide), 0.2, 1e-9);
}

TEST(Fluid, WhatABoundFlowLeavesGoesToTheOthers) {
  Fluid fluid;
  const ResourceIndex shared = fluid.add("shared", 10);
  const ResourceIndex slow = fluid.add("slow", 2);
  double slow_ns = 0;
  double fast_ns = 0;
  fluid.carry(20, {{shared, 1}, {slow, 1}}, [&] { slow_ns = fluid.now_ns(); });
  fluid.carry(80, {{shared, 1}}, [&] { fast_ns = fluid.now_ns(); });
  fluid.run();
  EXPECT_NEAR(slow_ns, 10, kNear);
  EXPECT_NEAR(fast_ns, 10, kNear);
}

TEST(Fluid, AWeightOfTwoTakesTwiceTheCapacity) {
  Fluid fluid;
  const ResourceIndex shared = fluid.add("shared", 9);
  double heavy_ns = 0;
  double light_ns = 0;
  // Both at a rate of 3, which takes 6 and 3 of 9.
  fluid.carry(30, {{shared, 2}}, [&] { heavy_ns = fluid.now_ns(); });
  fluid.carry(60, {{shared, 1}}, [&] { light_ns = fluid.now_ns(); });
  fluid.run();
  EXPECT_NEAR(heavy_ns, 10, kNear);
  EXPECT_NEAR(light_ns, 10 + 30.0 / 9, kNear);
}

TEST(Fluid, FourDevicesShareANodeAsPublishedRatesSay) {
  // 31.4 GB/s each, 70.4 GB/s together: 17.6 GB/s each.
  Fluid fluid;
  const ResourceIndex node = fluid.add("node", 70.4);
  for (int i = 0; i < 4; ++i) {
    const ResourceIndex fabric = fluid.add("fabric", 31.4);
    fluid.carry(17.6e6, {{node, 1}, {fabric, 1}}, [] {});
  }
  fluid.run();
  EXPECT_NEAR(fluid.now_ns(), 1e6, 1);
}

TEST(Fluid, EventsOfOneInstantHappenInTheOrderOfAsking) {
  Fluid fluid;
  std::string order;
  fluid.after(5, [&] { order += 'a'; });
  fluid.after(5, [&] {
    order += 'b';
    fluid.after(0, [&] { order += 'd'; });
  });
  fluid.after(5, [&] { order += 'c'; });
  fluid.run();
  EXPECT_EQ(order, "abcd");
}

TEST(Fluid, AFlowOfNoBytesEndsAtOnce) {
  Fluid fluid;
  const ResourceIndex link = fluid.add("link", 1);
  bool ended = false;
  fluid.carry(0, {{link, 1}}, [&] { ended = true; });
  fluid.run();
  EXPECT_TRUE(ended);
  EXPECT_EQ(fluid.now_ns(), 0);
}

}  // namespace
}  // namespace headrace::sim
