// SPDX-License-Identifier: Apache-2.0
// A job that begins when two others have ended, without a waiting thread in between.
#include <array>
#include <cstdio>
#include <headrace/engine/engine.hpp>
#include <vector>

using namespace headrace;
using engine::Job;
using engine::Operation;

int main() {
  const auto machine = topo::discover();
  if (!machine) return 1;
  const auto made = engine::Engine::make(*machine);
  if (!made) {
    std::fprintf(stderr, "after: %s\n", made.error().message().c_str());
    return 1;
  }
  engine::Engine& engine = **made;
  const std::vector<std::byte> source(mib(8).count(), std::byte{1});
  std::vector<std::byte> near(source.size());
  std::vector<std::byte> far(source.size());
  // begin
  Job copied;
  Job filled;
  Job checked;
  const std::array<Job*, 2> both{&copied, &filled};
  const bool accepted =
      engine.submit(copied, Operation::copy(near, source)) == engine::Submit::accepted &&
      engine.submit(filled, Operation::fill(far, 0x0101010101010101)) == engine::Submit::accepted &&
      engine.submit(checked, Operation::compare(near, far), {.after = both}) ==
          engine::Submit::accepted;
  if (!accepted) return 1;
  const engine::Completion& end = checked.wait();  // Also drives the other two.
  std::printf("%s\n", end.cause == engine::Cause::predecessor_failed ? "not begun"
                      : end.result.different                         ? "different"
                                                                     : "the same");
  // end
  return end.state == engine::JobState::done && !end.result.different ? 0 : 1;
}
