// SPDX-License-Identifier: Apache-2.0
// Holds Python buffers. The package has already converted arrays to flat buffers and refused
// everything else; only length and address are checked here.
#include "bindings.hpp"

namespace headrace::python {

Buffer::Buffer(nb::handle object, Use use) {
  const char* const tried = use == Use::write ? "use a target buffer" : "use a source buffer";
  const int flags = use == Use::write ? PyBUF_WRITABLE : PyBUF_SIMPLE;
  if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) {
    throw nb::python_error();
  }
  const char* cause = nullptr;
  if (view_.len == 0) {
    cause = "it is empty";
  } else if (view_.buf == nullptr) {
    cause = "its address is null";
  }
  if (cause != nullptr) {
    PyBuffer_Release(&view_);  // The destructor does not run if the constructor throws.
    throw Failed{Error{Code::invalid_argument, 0, tried, cause, "pass at least one byte"}};
  }
}

std::span<const std::byte> Buffer::bytes() const {
  return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
}

std::span<std::byte> Buffer::writable_bytes() const {
  return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
}

}  // namespace headrace::python
