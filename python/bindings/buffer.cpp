// SPDX-License-Identifier: Apache-2.0
// Holds Python buffers. The package has already converted arrays to flat buffers and refused
// everything else; only length and address are checked here.
#include <array>

#include "bindings.hpp"

namespace headrace::python {
namespace {

/// The buffer of `exporter.view()`, which keeps the exporter alive.
int export_view(PyObject* exporter, Py_buffer* view, int flags) {
  PyObject* const array = PyObject_CallMethod(exporter, "view", nullptr);
  if (array == nullptr) {
    view->obj = nullptr;
    return -1;
  }
  const int answer = PyObject_GetBuffer(array, view, flags);
  Py_DECREF(array);
  return answer;
}

}  // namespace

void bind_exporter(nb::module_& module) {
  // Python 3.11 has no __buffer__, so a base class provides the buffer protocol.
  std::array slots{PyType_Slot{Py_bf_getbuffer, reinterpret_cast<void*>(&export_view)},
                   PyType_Slot{0, nullptr}};
  const std::string name = nb::cast<std::string>(module.attr("__name__")) + ".Exporter";
  PyType_Spec specification{name.c_str(), 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                            slots.data()};
  module.attr("Exporter") = nb::steal(PyType_FromSpec(&specification));
}

Buffer::Buffer(nb::handle object, Use use, Length length) {
  const char* const tried = use == Use::write ? "use a target buffer" : "use a source buffer";
  const int flags = use == Use::write ? PyBUF_WRITABLE : PyBUF_SIMPLE;
  if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) {
    throw nb::python_error();
  }
  if (length == Length::any) return;
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

}  // namespace headrace::python
