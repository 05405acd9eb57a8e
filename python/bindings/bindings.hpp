// SPDX-License-Identifier: Apache-2.0
// What the binding files share: how a Result becomes a value or a Python exception, and the list of
// what is bound. Not for: logic; what is not a translation belongs into the library or into Python.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "headrace/base/result.hpp"

namespace headrace::python {

/// Carries an Error through C++ frames up to the translator, which makes it a headrace.Error.
/// The only exception type of ours, and only here: the edge to a language that has exceptions.
struct Failed {
  Error error;
};

/// The value, or Failed.
template <typename T>
T value_of(Result<T> result) {
  if (!result) {
    throw Failed{std::move(result.error())};
  }
  if constexpr (!std::is_void_v<T>) {
    return std::move(*result);
  }
}

void bind_errors(nanobind::module_& module);

}  // namespace headrace::python
