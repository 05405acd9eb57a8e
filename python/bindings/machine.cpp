// SPDX-License-Identifier: Apache-2.0
// The machine: an opaque handle; headrace.machine parses its JSON text.

#include "headrace/topo/machine.hpp"

#include "bindings.hpp"

namespace headrace::python {

void bind_machine(nb::module_& module) {
  using topo::Machine;
  nb::class_<Machine>(module, "Machine")
      .def_static(
          "discover", [] { return value_of(topo::discover()); }, nb::call_guard<GilReleased>())
      .def_static(
          "make_record",
          [] {
            topo::Recording made = value_of(topo::make_record());
            return std::pair{std::move(made.machine), std::move(made.text)};
          },
          nb::call_guard<GilReleased>(), "The machine and the text of its record.")
      .def_static(
          "replay", [](const std::string& path) { return value_of(topo::replay(path)); }, "path"_a,
          nb::call_guard<GilReleased>())
      .def("to_json", [](const Machine& machine) { return topo::to_json(machine); })
      .def("has_faster_tier", &Machine::has_faster_tier)
      .def("faster_nodes", &Machine::faster_nodes, "initiator"_a);
}

}  // namespace headrace::python
