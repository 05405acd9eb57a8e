// SPDX-License-Identifier: Apache-2.0
// The extension module headrace._simulator: requests and answers are JSON text. Separate, because
// only headrace._apps.sim loads the simulator.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "gil.hpp"
#include "sim/answer.hpp"

NB_MODULE(_simulator, module) {
  using namespace nanobind::literals;
  module.doc() = "Bindings of the simulator; use headrace._apps.sim instead.";
  module.def("scenarios", &headrace::sim::list_scenarios, "All scenarios as JSON.");
  module.def("answer", &headrace::sim::answer, "request"_a,
             nanobind::call_guard<headrace::python::GilReleased>(), "Run points of a scenario.");
  module.def("measure", &headrace::sim::measure, "request"_a,
             nanobind::call_guard<headrace::python::GilReleased>(), "Measure this machine.");
}
