// SPDX-License-Identifier: Apache-2.0
// Thresholds from which path `auto` uses a device, and their sources. A separate executable,
// as a process loads its profile once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fixtures.hpp"
#include "headrace/copy/profile.hpp"

namespace headrace::engine {
namespace {

TEST(Threshold, IsOfTheProfileOrOfTheCaller) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / "engine_threshold_test.json";
  const copy::Profile profile{.machine = copy::this_machine(), .classes = {}, .dsa_bytes_min = 900};
  std::ofstream(path) << copy::to_json(profile);
  ::setenv("HEADRACE_PROFILE", path.c_str(), 1);
  const auto measured = test::make_engine();
  std::filesystem::remove(path);
  EXPECT_EQ(measured->threshold_source(), ThresholdSource::profile);
  EXPECT_EQ(measured->thresholds().synchronous, Bytes(900));
  EXPECT_EQ(measured->thresholds().asynchronous, Bytes(900)) << "no more than who waits";
  EXPECT_EQ(measured->thresholds().batched, Bytes(256));
  EngineOptions options;
  options.thresholds = PathThresholds{.synchronous = Bytes(1)};
  const auto chosen = test::make_engine(options);
  EXPECT_EQ(chosen->threshold_source(), ThresholdSource::caller);
  EXPECT_EQ(chosen->thresholds().synchronous, Bytes(1));
}

}  // namespace
}  // namespace headrace::engine
