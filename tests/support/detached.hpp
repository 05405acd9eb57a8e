// SPDX-License-Identifier: Apache-2.0
// Detached: a coroutine that starts at once and has no owner.
#pragma once

#include <coroutine>
#include <exception>

namespace headrace::test {

struct Detached {
  struct promise_type {
    Detached get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};

}  // namespace headrace::test
