// SPDX-License-Identifier: Apache-2.0
// The extension module headrace._core. Private: the package headrace is the interface.

#include "bindings.hpp"
#include "headrace/base/units.hpp"

NB_MODULE(_core, module) {
  using namespace headrace::python;
  module.doc() = "Bindings of libheadrace; use the package headrace instead.";
  // At the end of the interpreter a daemon thread still holds what it uses.
  nb::set_leak_warnings(false);
  bind_errors();
  bind_machine(module);
  bind_copy(module);
  bind_engine(module);
  bind_exporter(module);
  bind_cache(module);
  bind_pmem(module);
  bind_message(module);
  bind_store(module);
  bind_telemetry(module);
  bind_query(module);

  module.def("version", [] { return std::string(HEADRACE_VERSION); });
  module.def(
      "parse_bytes",
      [](std::string_view text) { return value_of(headrace::parse_bytes(text)).count(); }, "text"_a,
      "Number of bytes that a text such as '64KiB' means.");
  module.def(
      "bytes_text",
      [](std::uint64_t byte_count) { return headrace::to_text(headrace::Bytes(byte_count)); },
      "byte_count"_a, "Text such as '1.5 MiB'.");
}
