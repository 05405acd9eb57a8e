// SPDX-License-Identifier: Apache-2.0
// The client in C++ of test_store_shared_kills.py: as the one in Python there.
//
// Usage: shared_client SOCKET NOTES ME CLIENTS KEYS
#include <fcntl.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "headrace/store/shared.hpp"
#include "headrace/topo/machine.hpp"

namespace store = headrace::store;

namespace {

std::vector<std::byte> block_of(std::uint64_t key, std::uint64_t version) {
  std::vector<std::byte> block(16 + version * 97 % 8000,
                               static_cast<std::byte>((key * 31 + version * 7) % 251));
  std::memcpy(block.data(), &key, 8);
  std::memcpy(block.data() + 8, &version, 8);
  return block;
}

/// 0 if it is not the key's.
std::uint64_t version_of(std::uint64_t key, std::span<const std::byte> block) {
  std::uint64_t version = 0;
  if (block.size() >= 16) std::memcpy(&version, block.data() + 8, 8);
  const auto wanted = block_of(key, version);
  return std::ranges::equal(block, wanted) ? version : 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 6) return 2;
  const std::uint64_t me = std::strtoull(words[3], nullptr, 10);
  const std::uint64_t clients = std::strtoull(words[4], nullptr, 10);
  const std::uint64_t keys = std::strtoull(words[5], nullptr, 10);
  const int file = ::open(words[2], O_RDWR);
  // Versions begun and acknowledged, of each key; then counts of each client: calls, slow calls.
  auto* const notes = static_cast<std::uint64_t*>(
      ::mmap(nullptr, (2 * keys + 2 * clients) * 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  const auto note = [&](std::uint64_t i) { return std::atomic_ref(notes[i]); };
  const auto machine = headrace::topo::discover();
  if (!machine) return 2;
  const auto engine = headrace::engine::Engine::make(*machine);
  auto made = store::connect(**engine, words[1]);
  while (!made) made = store::connect(**engine, words[1]);
  store::Store& blocks = **made;
  std::mt19937_64 random(std::random_device{}());
  std::vector<std::byte> target(16384);
  while (true) {
    const std::uint64_t key = random() % keys;
    const std::string name = std::to_string(key);
    const auto begin = std::chrono::steady_clock::now();
    if (key % clients == me && random() % 2 == 0) {
      const std::uint64_t version = note(key) + 1;
      note(key) = version;
      const store::Outcome outcome = blocks.put(name, block_of(key, version), 1).outcome;
      if (outcome == store::Outcome::done) note(keys + key) = version;
      if (outcome != store::Outcome::done && outcome != store::Outcome::closed) return 3;
    } else {
      const std::uint64_t least = note(keys + key);
      const store::BlockEnd end = blocks.get(name, target);
      const std::uint64_t most = note(key);
      const std::uint64_t seen = version_of(key, std::span(target).first(end.byte_count));
      if (end.outcome == store::Outcome::unknown_key && least != 0) return 4;
      if (end.outcome == store::Outcome::done && (seen == 0 || seen < least || seen > most))
        return 5;
    }
    ++note(2 * keys + me);
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(1)) {
      ++note(2 * keys + clients + me);
    }
  }
}
