// SPDX-License-Identifier: Apache-2.0
// Translates headrace::Error to the class of its code in headrace.errors.
#include <exception>

#include "bindings.hpp"

namespace headrace::python {
namespace {

void translate(const std::exception_ptr& exception, void* /*payload*/) {
  try {
    std::rethrow_exception(exception);
  } catch (const Failed& failed) {
    const Error& error = failed.error;
    const std::string_view code = name(error.code);
    try {
      // The classes are defined in Python, because they also inherit from standard exceptions.
      const nb::object made =
          nb::module_::import_("headrace.errors")
              .attr("from_code")(code, error.tried, error.cause, error.remedy, error.os_errno);
      PyErr_SetObject(made.type().ptr(), made.ptr());
    } catch (nb::python_error& secondary) {
      secondary.restore();
    }
  }
}

}  // namespace

void bind_errors() {
  nb::register_exception_translator(translate);
}

}  // namespace headrace::python
