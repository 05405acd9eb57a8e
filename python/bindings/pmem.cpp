// SPDX-License-Identifier: Apache-2.0
// Rings in persistent memory. Outcomes are strings here; headrace.pmem turns
// them into return values and exceptions.

#include <tuple>

#include "bindings.hpp"
#include "closable.hpp"
#include "headrace/pmem/ring.hpp"

namespace headrace::python {
namespace {

struct RingWords {
  static constexpr const char* kTried = "use an end of a ring";
  static constexpr const char* kClosed = "it has been closed";
  static constexpr const char* kRemedy = "attach again";
  static constexpr bool kStays = true;
};
using ProducerHandle = Closable<pmem::Producer, RingWords>;
using ConsumerHandle = Closable<pmem::Consumer, RingWords>;

pmem::AttachOptions options_of(const std::optional<std::string>& granularity,
                               const std::optional<std::string>& flush, bool lazy, bool prefault) {
  pmem::AttachOptions options;
  if (granularity.has_value()) {
    options.map.granularity = value_of(parse_name<pmem::Granularity>(*granularity, "granularity"));
  }
  if (flush.has_value())
    options.map.flush = value_of(parse_name<pmem::FlushInstruction>(*flush, "flush instruction"));
  options.acknowledgement = lazy ? pmem::Acknowledgement::lazy : pmem::Acknowledgement::each;
  options.map.prefault = prefault;
  return options;
}

nb::dict to_dict(const pmem::RingState& state) {
  using S = pmem::RingState;
  Fields result = members_of<&S::generation, &S::first_ordinal, &S::entry_count,
                             &S::entry_bytes_max, &S::has_producer, &S::has_consumer>(state);
  result["capacity_bytes"] = state.capacity.count();
  return result;
}

template <typename Handle>
void bind_common(nb::class_<Handle>& type) {
  using End = typename Handle::Held;
  type.def_static(
          "attach",
          [](const std::string& path, const std::optional<std::string>& granularity,
             const std::optional<std::string>& flush, bool lazy, bool prefault) {
            const pmem::AttachOptions options = options_of(granularity, flush, lazy, prefault);
            const GilReleased released;
            return std::make_shared<Handle>(value_of(End::attach(path, options)));
          },
          "path"_a, "granularity"_a.none(), "flush"_a.none(), "lazy"_a, "prefault"_a)
      .def("close", &Handle::close)
      .def("note", &Handle::template call<&End::note>)
      .def("is_persistent_memory", &Handle::template call<&End::is_persistent_memory>)
      .def(
          "recovered",
          [](Handle& handle) { return to_dict(handle.template call<&End::recovered>()); },
          nb::sig("def recovered(self) -> dict[str, typing.Any]"));
}

std::string enqueue(ProducerHandle& handle, const nb::list& entries) {
  const Sources held(entries);
  return std::string(name(
      handle.with([&](pmem::Producer& producer) { return producer.enqueue_all(held.bytes()); })));
}

std::tuple<std::string, std::uint64_t, nb::bytes> next(ConsumerHandle& handle) {
  std::uint64_t ordinal = 0;
  std::string copy;
  const pmem::Next outcome = handle.with([&](pmem::Consumer& consumer) {
    pmem::Entry entry;
    const pmem::Next found = consumer.next(entry);
    ordinal = entry.ordinal;
    // Copy under the lock: afterwards another thread may acknowledge or close.
    copy.assign(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size());
    return found;
  });
  return {std::string(name(outcome)), ordinal, nb::bytes(copy.data(), copy.size())};
}

}  // namespace

void bind_pmem(nb::module_& module) {
  auto producer = nb::class_<ProducerHandle>(module, "RingProducer");
  producer
      .def("enqueue", &enqueue, "entries"_a, "Outcome: done, full, too_large or lost.",
           nb::sig("def enqueue(self, entries: list[typing.Any]) -> str"))
      .def("next_ordinal", &ProducerHandle::call<&pmem::Producer::next_ordinal>)
      .def("entry_bytes_max", &ProducerHandle::call<&pmem::Producer::entry_bytes_max>);
  bind_common(producer);

  auto consumer = nb::class_<ConsumerHandle>(module, "RingConsumer");
  consumer.def("next", &next, "Outcome (entry, empty, damaged or lost), ordinal and a copy.")
      .def("acknowledge", &ConsumerHandle::call<&pmem::Consumer::acknowledge>);
  bind_common(consumer);

  module.def(
      "make_ring",
      [](const std::string& path, std::uint64_t capacity_bytes) {
        const GilReleased released;
        value_of(pmem::make_ring(path, {.capacity = Bytes(capacity_bytes)}));
      },
      "path"_a, "capacity_bytes"_a);
  module.def(
      "inspect_ring",
      [](const std::string& path) {
        return to_dict(without_gil([&] { return value_of(pmem::inspect_ring(path)); }));
      },
      "path"_a, nb::sig("def inspect_ring(path: str) -> dict[str, typing.Any]"));
  module.def(
      "salvage_ring",
      [](const std::string& path) {
        std::vector<std::pair<std::uint64_t, std::string>> entries;
        const pmem::Salvage found = without_gil([&] {
          return value_of(pmem::salvage_ring(path, [&](const pmem::Entry& entry) {
            entries.emplace_back(
                entry.ordinal,
                std::string(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size()));
          }));
        });
        nb::list list;
        for (const auto& [ordinal, data] : entries) {
          nb::dict entry;
          entry["ordinal"] = ordinal;
          entry["data"] = nb::bytes(data.data(), data.size());
          list.append(entry);
        }
        using S = pmem::Salvage;
        Fields result = members_of<&S::acknowledged_count, &S::missing_count>(found);
        result["entries"] = list;
        return result;
      },
      "path"_a, "Fields of headrace.pmem.Salvage.");
}

}  // namespace headrace::python
