// SPDX-License-Identifier: Apache-2.0
// A third-party program: a NIC function of its own, and a scenario, on the machine of a record.
#include <cstdio>
#include <headrace/sim/injection.hpp>
#include <headrace/sim/scenario.hpp>
#include <stdexcept>

namespace sim = headrace::sim;

int main(int count, char** words) {
  if (count != 2) return 2;
  const auto model = sim::read_model(words[1]);
  if (!model) {
    std::fprintf(stderr, "%s\n", model.error().message().c_str());
    return 1;
  }
  const sim::InjectionRun run{.message_bytes = 16384, .working_bytes = 65536};
  const auto simulate = [&](const sim::NicFunction& place) {
    return sim::inject(model->injection, run, place);
  };
  const auto memory = simulate([](const sim::Message&) { return sim::Place{}; });
  const auto cache = simulate([](const sim::Message& message) {
    return sim::Place{sim::Level::l2, sim::Level::l2, message.receiver_core};
  });
  if (!memory || !cache || cache->time_ns >= memory->time_ns ||
      cache->memory_lines >= memory->memory_lines) {
    std::fputs("the function does not move the figures\n", stderr);
    return 1;
  }
  const auto thrown =
      simulate([](const sim::Message&) -> sim::Place { throw std::runtime_error("no place"); });
  const auto scenario = sim::run_scenario(*model, "injection", {{"bytes", "16KiB"}});
  if (thrown || thrown.error().code != headrace::Code::invalid_argument || !scenario) return 1;
  std::printf("consumer_simulates: %.0f ns from memory, %.0f ns from the L2\n", memory->time_ns,
              cache->time_ns);
  return 0;
}
