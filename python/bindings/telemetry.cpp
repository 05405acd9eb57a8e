// SPDX-License-Identifier: Apache-2.0
// Publishes and reads the statistics of processes.
#include "headrace/telemetry/telemetry.hpp"

#include "bindings.hpp"
#include "headrace/telemetry/trace.hpp"

namespace headrace::python {
namespace {

/// Other processes write the texts, whatever their bytes.
nb::object text(const std::string& bytes) {
  const auto length = static_cast<Py_ssize_t>(bytes.size());
  return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), length, "replace"));
}

nb::dict dict_of(const telemetry::Row& row) {
  nb::dict values;
  for (const telemetry::Value& each : row.values) values[text(each.name)] = each.value;
  nb::dict result;
  result["kind"] = text(row.kind);
  result["name"] = text(row.name);
  result["values"] = values;
  return result;
}

nb::dict dict_of(const telemetry::Process& process) {
  nb::list rows;
  for (const telemetry::Row& row : process.rows) rows.append(dict_of(row));
  using P = telemetry::Process;
  Fields result = members_of<&P::publications, &P::rows_left_out>(process);
  result["process"] = process.number;
  result["program"] = text(process.program);
  result["began_ns"] = process.began.count();
  result["written_ns"] = process.written.count();
  result["interval_ns"] = process.interval.count();
  result["rows"] = rows;
  return result;
}

nb::dict read_telemetry(const std::string& directory) {
  const telemetry::Everything everything =
      without_gil([&] { return value_of(telemetry::read_all(directory)); });
  nb::list processes;
  for (const telemetry::Process& each : everything.processes) processes.append(dict_of(each));
  nb::list unreadable;
  for (const telemetry::Unreadable& each : everything.unreadable) {
    nb::dict one;
    one["path"] = text(each.path);
    one["error"] = text(each.error.message());
    unreadable.append(one);
  }
  nb::dict result;
  result["processes"] = processes;
  result["unreadable"] = unreadable;
  return result;
}

}  // namespace

void bind_telemetry(nb::module_& module) {
  module.attr("TELEMETRY_DIRECTORY") = telemetry::kDirectory;
  module.def("read_telemetry", &read_telemetry, "directory"_a,
             nb::sig("def read_telemetry(directory: str) -> dict[str, typing.Any]"));
  module.def(
      "start_telemetry",
      [](std::uint64_t interval_ns, const std::string& directory) {
        const GilReleased released;
        value_of(telemetry::start(std::chrono::nanoseconds(interval_ns), directory));
      },
      "interval_ns"_a, "directory"_a);
  module.def("stop_telemetry", &telemetry::stop, nb::call_guard<GilReleased>());
  module.def(
      "start_trace", [](const std::string& path) { value_of(telemetry::start_trace(path)); },
      "path"_a);
  module.def("stop_trace", &telemetry::stop_trace);
}

}  // namespace headrace::python
