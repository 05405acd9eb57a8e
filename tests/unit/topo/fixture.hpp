// SPDX-License-Identifier: Apache-2.0
// Machine records of tests/machines, unmodified or with one change, for tests of replay.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "headrace/topo/machine.hpp"
#include "support/test_data.hpp"

namespace headrace::topo::test {

inline std::string fixture_path(const std::string& name) {
  return headrace::test::test_data() + "/machines/" + name + ".json";
}

inline nlohmann::ordered_json load_fixture(const std::string& name) {
  std::ifstream file(fixture_path(name));
  return nlohmann::ordered_json::parse(file);
}

/// A file that is deleted at the end of the scope.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text = "") {
    if (!text.empty()) std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = std::filesystem::temp_directory_path() /
                      ("headrace-topo-test-" + std::to_string(::getpid()) + ".json");
};

inline Result<Machine> replay_text(const std::string& text) {
  const TemporaryFile file(text);
  return replay(file.path());
}

/// Puts `xml` into `record` with a matching checksum.
inline void set_xml(nlohmann::ordered_json& record, const std::string& xml) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char letter : xml) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3U;
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash));
  record["hwloc_xml"] = xml;
  record["hwloc_xml_fnv1a64"] = text.data();
}

inline std::string replace_all(std::string text, const std::string& old, const std::string& by) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += by.size()) {
    text.replace(at, old.size(), by);
    ++count;
  }
  EXPECT_NE(count, 0U) << "nothing to replace: " << old;
  return text;
}

/// The fixture with `old` replaced by `by` throughout its XML.
inline Result<Machine> replay_changed(const std::string& fixture, const std::string& old,
                                      const std::string& by) {
  nlohmann::ordered_json record = load_fixture(fixture);
  set_xml(record, replace_all(record["hwloc_xml"].get<std::string>(), old, by));
  return replay_text(record.dump());
}

}  // namespace headrace::topo::test
