// SPDX-License-Identifier: Apache-2.0
// The extension module headrace._simulator: requests and answers are JSON text. Separate, because
// only headrace._apps.sim loads the simulator.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <chrono>
#include <future>
#include <stdexcept>
#include <tuple>

#include "gil.hpp"
#include "sim/answer.hpp"
#include "text.hpp"

namespace {

using headrace::sim::Level;
using headrace::sim::Message;
using headrace::sim::NicFunction;
using headrace::sim::Place;

/// `place` has (index, bytes, sender, receiver) and returns the fields of a Place.
NicFunction function_of(const nanobind::callable& place) {
  return [&place](const Message& message) -> Place {
    const nanobind::gil_scoped_acquire held;
    try {
      const nanobind::object answer =
          place(message.index, message.bytes, message.sender_core, message.receiver_core);
      const auto [header, payload, core, header_bytes, nic_ns, host_ns] =
          nanobind::cast<std::tuple<int, int, std::uint32_t, double, double, double>>(answer);
      return {static_cast<Level>(header),
              static_cast<Level>(payload),
              core,
              header_bytes,
              nic_ns,
              host_ns};
    } catch (const nanobind::python_error& error) {
      // Its destructor needs the GIL.
      throw std::runtime_error(error.what());
    }
  };
}

/// Answers a request in which `place` is the NIC. Meanwhile Python's handlers of signals run; an
/// exception of one waits for the answer.
template <std::string (*kAnswer)(const std::string& request, const NicFunction& nic)>
std::string with_nic(const std::string& request, const nanobind::callable& place) {
  using headrace::python::without_gil;
  const NicFunction nic = function_of(place);
  auto answer = std::async(std::launch::async, [&] { return kAnswer(request, nic); });
  while (without_gil([&] { return answer.wait_for(std::chrono::milliseconds(200)); }) !=
         std::future_status::ready) {
    if (PyErr_CheckSignals() == 0) continue;
    without_gil([&] { answer.wait(); });
    throw nanobind::python_error();
  }
  return answer.get();
}

}  // namespace

NB_MODULE(_simulator, module) {
  using namespace nanobind::literals;
  module.doc() = "Bindings of the simulator; use headrace._apps.sim instead.";
  module.def("scenarios", &headrace::sim::list_scenarios, "All scenarios as JSON.");
  module.def("answer", &headrace::sim::answer, "request"_a,
             nanobind::call_guard<headrace::python::GilReleased>(), "Run points of a scenario.");
  module.def("replay", &with_nic<headrace::sim::answer_replay>, "request"_a, "place"_a,
             nanobind::sig(
                 "def replay(request: str, place: collections.abc.Callable[..., object]) -> str"),
             "Replay a trace.");
  module.def("inject", &with_nic<headrace::sim::answer_inject>, "request"_a, "place"_a,
             nanobind::sig(
                 "def inject(request: str, place: collections.abc.Callable[..., object]) -> str"),
             "Receive messages through a NIC.");
  module.def("measure", &headrace::sim::measure, "request"_a,
             nanobind::call_guard<headrace::python::GilReleased>(), "Measure this machine.");
}
