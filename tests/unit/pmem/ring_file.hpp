// SPDX-License-Identifier: Apache-2.0
// A ring in a temporary folder, for tests of rings.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/pmem/ring.hpp"

namespace headrace::pmem {

inline constexpr std::size_t kHeadBytes = 4096;

inline std::vector<std::byte> bytes_of(std::uint64_t ordinal, std::size_t byte_count) {
  std::vector<std::byte> bytes(byte_count);
  for (std::size_t i = 0; i < byte_count; ++i) {
    bytes[i] = static_cast<std::byte>(ordinal * 131 + i * 7 + 1);
  }
  return bytes;
}

/// A separate folder for each test.
class RingFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "headrace-ring-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/ring";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void make(Bytes capacity = kib(64)) {
    const Result<void> made = make_ring(path_, {.capacity = capacity});
    ASSERT_TRUE(made.has_value()) << made.error().message();
  }
  [[nodiscard]] std::string contents() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void overwrite(std::size_t offset, std::string_view text) const {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
  }
  /// Expects that neither end attaches, and that the file stays unchanged.
  void expect_refused(Code code, const std::string& cause) const {
    const std::string before = contents();
    const Result<Producer> producer = Producer::attach(path_);
    const Result<Consumer> consumer = Consumer::attach(path_);
    const Result<RingState> state = inspect_ring(path_);
    ASSERT_FALSE(producer.has_value());
    ASSERT_FALSE(consumer.has_value());
    ASSERT_FALSE(state.has_value());
    EXPECT_EQ(producer.error().code, code) << producer.error().message();
    EXPECT_THAT(producer.error().message(), ::testing::HasSubstr(cause));
    EXPECT_THAT(consumer.error().message(), ::testing::HasSubstr(cause));
    EXPECT_THAT(state.error().message(), ::testing::HasSubstr(cause));
    EXPECT_EQ(contents(), before);
  }

  std::string folder_;
  std::string path_;
};

/// Treats ordinary memory as persistent, to avoid an msync per entry.
inline AttachOptions quick() {
  AttachOptions options;
  options.map.granularity = Granularity::line;
  return options;
}

}  // namespace headrace::pmem
