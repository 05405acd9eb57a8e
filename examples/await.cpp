// SPDX-License-Identifier: Apache-2.0
// Sequential operations without a waiting thread: a coroutine.
#include <cstdio>
#include <exception>
#include <headrace/engine/awaitable.hpp>
#include <latch>
#include <vector>

using namespace headrace;
using engine::Operation;

// The simplest coroutine type: starts immediately and has no owner. Any other type works.
struct Detached {
  struct promise_type {
    Detached get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};

// begin
static Detached copy_and_check(engine::Engine& engine, std::span<std::byte> target,
                               std::span<const std::byte> source, std::latch& finished) {
  const engine::Ended copied = co_await start(engine, Operation::copy_crc(target, source));
  if (copied.is_done()) {  // From here on, runs on the thread that ended the copy.
    const engine::Ended end = co_await start(engine, Operation::compare(target, source));
    std::printf("%s, crc %08x\n", end.completion.result.different ? "different" : "the same",
                copied.completion.result.crc);
  } else {
    std::printf("%s\n", explain(copied.submit).data());
  }
  finished.count_down();
}
// end

int main() {
  const auto machine = topo::discover();
  if (!machine) return 1;
  const auto engine = engine::Engine::make(*machine);
  if (!engine) {
    std::fprintf(stderr, "await: %s\n", engine.error().message().c_str());
    return 1;
  }
  const std::vector<std::byte> source(mib(8).count(), std::byte{1});
  std::vector<std::byte> target(source.size());
  std::latch finished(1);
  copy_and_check(**engine, target, source, finished);  // Returns at the first co_await.
  while (!finished.try_wait()) (*engine)->poll();      // Devices have no thread.
  return target == source ? 0 : 1;
}
