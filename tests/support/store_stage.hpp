// SPDX-License-Identifier: Apache-2.0
// Fixtures for tests of the store: blocks that identify their key and version, a temporary folder,
// and a mover that randomly refuses, fails and reorders.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/software/software.hpp"
#include "headrace/base/mutex.hpp"
#include "headrace/base/random.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/store/store.hpp"

namespace headrace::test {

/// The bytes of version `version` of key `number`; the first 16 hold both numbers.
inline std::vector<std::byte> block_bytes(std::uint64_t number, std::uint64_t version,
                                          std::size_t byte_count) {
  std::vector<std::byte> bytes(byte_count);
  std::uint64_t word = number * 0x9e3779b97f4a7c15U + version;
  for (std::size_t at = 0; at < byte_count; at += 8) {
    std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, byte_count - at));
    word = word * 6364136223846793005U + 1442695040888963407U;
  }
  const std::uint64_t head[2] = {number, version};
  std::memcpy(bytes.data(), head, std::min(sizeof(head), byte_count));
  return bytes;
}

/// The version, if the bytes are an intact block of the key; else nothing.
inline std::optional<std::uint64_t> version_of(std::uint64_t number,
                                               std::span<const std::byte> bytes) {
  std::uint64_t head[2] = {};
  if (bytes.size() < sizeof(head)) return std::nullopt;
  std::memcpy(head, bytes.data(), sizeof(head));
  const std::vector<std::byte> whole = block_bytes(number, head[1], bytes.size());
  if (head[0] != number || std::memcmp(whole.data(), bytes.data(), bytes.size()) != 0) {
    return std::nullopt;
  }
  return head[1];
}

/// A temporary folder, removed by the destructor.
class Folder {
 public:
  Folder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "headrace-store-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Has no thread: the polling thread carries out the requests, in random order. One request in
/// `refused_of` is refused as full, one operation in `failed_of` fails; 0: none.
///
/// Threading: shared.
class FaultyMover final : public engine::Mover {
 public:
  struct Options {
    std::uint64_t seed = 1;
    std::uint64_t refused_of = 0;
    std::uint64_t failed_of = 0;
    bool late_writes = false;  ///< A failed target may still be written to.
  };
  explicit FaultyMover(const Options& options) : options_(options), random_(options.seed) {
    info_.name = "faulty";
    info_.polled = true;
    info_.batches = true;
    info_.operations = engine::OperationSet::all();
  }

  [[nodiscard]] const engine::MoverInfo& info() const override { return info_; }
  [[nodiscard]] engine::Submit post(engine::Request& request) noexcept override {
    const Lock lock(mutex_);
    if (stopped_) return engine::Submit::closed;
    if (one_of(options_.refused_of)) return engine::Submit::full;
    held_.push_back(&request);
    return engine::Submit::accepted;
  }
  void reap() noexcept override {
    std::vector<engine::Request*> taken;
    std::vector<bool> fails;
    {
      const Lock lock(mutex_);
      if (held_.empty()) return;
      std::swap(held_[random_.below(held_.size())], held_.back());
      taken.push_back(held_.back());
      held_.pop_back();
      const engine::Request& request = *taken.front();
      const std::size_t count = std::max<std::size_t>(1, request.batch().operations.size());
      for (std::size_t i = 0; i < count; ++i) fails.push_back(one_of(options_.failed_of));
    }
    for (engine::Request* const request : taken) end(*request, fails);
  }
  void stop() noexcept override {
    {
      const Lock lock(mutex_);
      stopped_ = true;
    }
    while (true) {
      {
        const Lock lock(mutex_);
        if (held_.empty()) return;
      }
      reap();
    }
  }

 private:
  [[nodiscard]] bool one_of(std::uint64_t count) HEADRACE_REQUIRES(mutex_) {
    return count != 0 && random_.below(count) == 0;
  }
  [[nodiscard]] engine::Completion carry_out(const engine::Operation& operation, bool fails) const {
    engine::Completion end;
    if (fails) {
      end.cause = options_.late_writes ? engine::Cause::device_dead : engine::Cause::device_error;
      end.late_write_possible = options_.late_writes;
      // A failed operation is partly done.
      const std::size_t half = operation.byte_count() / 2;
      std::memcpy(operation.target().data(), operation.source().data(), half);
      return end;
    }
    end = engine::software::execute(operation);
    return end;
  }
  void end(engine::Request& request, const std::vector<bool>& fails) const {
    engine::Completion whole;
    request.outcome = {};
    if (!request.is_batch()) {
      whole = carry_out(request.operation(), fails[0]);
      return request.complete(whole);
    }
    const engine::Batch& batch = request.batch();
    for (std::size_t i = 0; i < batch.operations.size(); ++i) {
      engine::Completion one = carry_out(batch.operations[i], fails[i]);
      whole.bytes_done += one.bytes_done;
      if (one.cause != engine::Cause::none) whole.cause = engine::Cause::batch_failed;
      one.state =
          one.cause == engine::Cause::none ? engine::JobState::done : engine::JobState::failed;
      if (!batch.completions.empty()) batch.completions[i] = one;
    }
    request.complete(whole);
  }

  const Options options_;
  engine::MoverInfo info_;
  Mutex mutex_;
  Random random_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<engine::Request*> held_ HEADRACE_GUARDED_BY(mutex_);
  bool stopped_ HEADRACE_GUARDED_BY(mutex_) = false;
};

inline std::unique_ptr<engine::Engine> faulty_engine(const FaultyMover::Options& options) {
  std::vector<std::unique_ptr<engine::Mover>> movers;
  movers.push_back(std::make_unique<FaultyMover>(options));
  auto engine = engine::Engine::make(std::move(movers));
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return std::move(*engine);
}

/// An engine with worker threads on this machine.
inline std::unique_ptr<engine::Engine> worker_engine() {
  auto engine = engine::Engine::make(topo::discover().value(),
                                     {.threads_per_node = 1, .devices = {.use = false}});
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return std::move(*engine);
}

inline std::unique_ptr<store::Store> make_store(engine::Engine& engine,
                                                store::StoreOptions options) {
  auto made = store::Store::make(engine, std::move(options));
  EXPECT_TRUE(made.has_value()) << made.error().message();
  return made ? std::move(*made) : nullptr;
}

}  // namespace headrace::test
