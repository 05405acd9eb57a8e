// SPDX-License-Identifier: Apache-2.0
// hostile SCENARIO: a DSA client with behaviour that is difficult to emulate. Expects one device
// with the shared WQ wq0.0 (16 entries) and the dedicated WQ wq0.1.
#include <vector>

#include "client.hpp"

namespace hostile {
namespace {
std::vector<Scenario>& scenarios() {
  static std::vector<Scenario> all;
  return all;
}
}  // namespace

Registration::Registration(const char* name, int (*run)()) {
  scenarios().push_back({name, run});
}
}  // namespace hostile

int main(int argc, char** argv) {
  for (const auto& scenario : hostile::scenarios()) {
    if (argc > 1 && std::strcmp(argv[1], scenario.name) == 0) return scenario.run();
  }
  std::fprintf(stderr, "usage: hostile SCENARIO\n");
  for (const auto& scenario : hostile::scenarios()) std::fprintf(stderr, "  %s\n", scenario.name);
  return 2;
}
