// SPDX-License-Identifier: Apache-2.0
// A third-party program: discovers the machine and copies through the engine.
#include <cstddef>
#include <cstdio>
#include <headrace/engine/engine.hpp>
#include <headrace/topo/machine.hpp>
#include <vector>

int main() {
  const auto machine = headrace::topo::discover();
  if (!machine) {
    std::fprintf(stderr, "%s\n", machine.error().message().c_str());
    return 1;
  }
  auto engine = headrace::engine::Engine::make(*machine);
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message().c_str());
    return 1;
  }
  const std::vector<std::byte> source(1 << 20, std::byte{42});
  std::vector<std::byte> target(source.size());
  headrace::engine::Job job;
  if ((*engine)->submit_copy(job, {target, source}) != headrace::engine::Submit::accepted) return 1;
  if (job.wait().state != headrace::engine::JobState::done || target != source) return 1;
  std::printf("consumer: %zu nodes, 1 MiB copied\n", machine->nodes.size());
  return 0;
}
