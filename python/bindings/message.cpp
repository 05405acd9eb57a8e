// SPDX-License-Identifier: Apache-2.0
// Message queues between processes. Outcomes are strings here; headrace.queue turns them into
// return values and exceptions. Waits are short, so that Python handles signals between them.

#include <tuple>

#include "bindings.hpp"
#include "closable.hpp"
#include "headrace/message/queue.hpp"

namespace headrace::python {
namespace {

using message::Outcome;

struct QueueWords {
  static constexpr const char* kTried = "use a message queue";
  static constexpr const char* kClosed = "this handle has been closed";
  static constexpr const char* kRemedy = "open the queue or attach again";
  static constexpr bool kStays = false;  ///< The library refuses its ends in a child.
};
using QueueHandle = Closable<message::Queue, QueueWords>;
using SenderHandle = Closable<message::Producer, QueueWords>;
using ReceiverHandle = Closable<message::Consumer, QueueWords>;

nb::dict to_dict(const message::QueueState& state) {
  using S = message::QueueState;
  Fields result = members_of<&S::framing, &S::message_bytes_max, &S::producers_max,
                             &S::producer_count, &S::has_consumer, &S::closed>(state);
  result["capacity_bytes"] = state.capacity.count();
  return result;
}

message::Wait wait_of(std::uint64_t wait_ns) {
  return {.time_max = std::chrono::nanoseconds(wait_ns)};
}

std::string send(SenderHandle& handle, nb::handle object, std::uint64_t wait_ns) {
  const Buffer held(object, Buffer::Use::read, Buffer::Length::any);
  return std::string(message::name(handle.with([&](message::Producer& producer) {
    return wait_ns == 0 ? producer.try_send(held.bytes())
                        : producer.send(held.bytes(), wait_of(wait_ns));
  })));
}

/// Sends messages that become visible together. Returns the outcome and how many were sent.
std::tuple<std::string, std::size_t> send_all(SenderHandle& handle, const nb::list& objects) {
  const Sources messages(objects);
  std::size_t sent = 0;
  const Outcome outcome = handle.with(
      [&](message::Producer& producer) { return producer.try_send_all(messages.bytes(), sent); });
  return {std::string(message::name(outcome)), sent};
}

/// Returns the outcome, and the message if it is `done`.
std::tuple<std::string, nb::object> receive(ReceiverHandle& handle, std::uint64_t wait_ns) {
  // Copy under the lock: afterwards another thread may receive or close, and the bytes are invalid.
  std::vector<std::byte> copy;
  const Outcome outcome = handle.with([&](message::Consumer& consumer) {
    message::Message lent;
    Outcome seen = consumer.peek(lent);
    if (seen == Outcome::empty && wait_ns != 0) {
      seen = consumer.wait_for_message(wait_of(wait_ns));
      if (seen == Outcome::done) seen = consumer.peek(lent);
    }
    if (seen != Outcome::done) return seen;
    copy.assign(lent.bytes.begin(), lent.bytes.end());
    return consumer.release();
  });
  nb::object data = nb::none();
  if (outcome == Outcome::done) {
    data = nb::bytes(reinterpret_cast<const char*>(copy.data()), copy.size());
  }
  return {std::string(message::name(outcome)), std::move(data)};
}

/// Returns the outcome and the length of the message.
std::tuple<std::string, std::size_t> receive_into(ReceiverHandle& handle, nb::handle object,
                                                  std::uint64_t wait_ns) {
  const Buffer target(object, Buffer::Use::write, Buffer::Length::any);
  std::size_t received = 0;
  const Outcome outcome = handle.with([&](message::Consumer& consumer) {
    return wait_ns == 0 ? consumer.try_receive(target.writable_bytes(), received)
                        : consumer.receive(target.writable_bytes(), received, wait_of(wait_ns));
  });
  return {std::string(message::name(outcome)), received};
}

}  // namespace

void bind_message(nb::module_& module) {
  nb::class_<SenderHandle>(module, "MessageProducer")
      .def("send", &send, "message"_a, "wait_ns"_a)
      .def("send_all", &send_all, "messages"_a,
           nb::sig("def send_all(self, messages: list[typing.Any]) -> tuple[str, int]"))
      .def(
          "place",
          [](SenderHandle& handle, const std::string& placement) {
            const message::Placement value =
                value_of(parse_name<message::Placement>(placement, "placement"));
            handle.with([&](message::Producer& producer) { producer.place(value); });
          },
          "placement"_a)
      .def(
          "wait",
          [](SenderHandle& handle, std::size_t byte_count, std::uint64_t wait_ns) {
            return std::string(message::name(handle.with([&](message::Producer& producer) {
              return producer.wait_for_room(byte_count, wait_of(wait_ns));
            })));
          },
          "byte_count"_a, "wait_ns"_a)
      .def("close", &SenderHandle::close);
  nb::class_<ReceiverHandle>(module, "MessageConsumer")
      .def("receive", &receive, "wait_ns"_a,
           nb::sig("def receive(self, wait_ns: int) -> tuple[str, bytes | None]"))
      .def("receive_into", &receive_into, "target"_a, "wait_ns"_a)
      .def(
          "wait",
          [](ReceiverHandle& handle, std::uint64_t wait_ns) {
            return std::string(message::name(handle.with([&](message::Consumer& consumer) {
              return consumer.wait_for_message(wait_of(wait_ns));
            })));
          },
          "wait_ns"_a)
      .def("close", &ReceiverHandle::close);
  nb::class_<QueueHandle>(module, "MessageQueue")
      .def_static(
          "make",
          [](const std::optional<std::string>& path, const std::string& framing,
             std::uint64_t message_bytes, std::uint64_t capacity_bytes, std::uint32_t producers_max,
             std::uint32_t permissions) {
            const message::QueueOptions options{
                .framing = value_of(parse_name<message::Framing>(framing, "framing")),
                .message_bytes = message_bytes,
                .capacity = Bytes(capacity_bytes),
                .producers_max = producers_max,
                .permissions = permissions};
            const GilReleased released;
            return std::make_shared<QueueHandle>(
                value_of(path.has_value() ? message::Queue::make_named(*path, options)
                                          : message::Queue::make(options)));
          },
          "path"_a.none(), nb::kw_only(), "framing"_a, "message_bytes"_a, "capacity_bytes"_a,
          "producers_max"_a, "permissions"_a)
      .def_static(
          "open",
          [](const std::string& path, std::optional<std::uint32_t> owner) {
            const GilReleased released;
            return std::make_shared<QueueHandle>(value_of(message::Queue::open(path, owner)));
          },
          "path"_a, "owner"_a.none())
      .def_static(
          "from_descriptor",
          [](int descriptor, std::optional<std::uint32_t> owner) {
            const GilReleased released;
            return std::make_shared<QueueHandle>(
                value_of(message::Queue::from_descriptor(descriptor, owner)));
          },
          "descriptor"_a, "owner"_a.none())
      .def("descriptor", &QueueHandle::call<&message::Queue::descriptor>)
      .def(
          "state",
          [](QueueHandle& handle) { return to_dict(handle.call<&message::Queue::state>()); },
          nb::sig("def state(self) -> dict[str, typing.Any]"))
      .def("producer",
           [](QueueHandle& handle) {
             return handle.with([](message::Queue& queue) {
               return std::make_shared<SenderHandle>(value_of(queue.producer()));
             });
           })
      .def("consumer",
           [](QueueHandle& handle) {
             return handle.with([](message::Queue& queue) {
               return std::make_shared<ReceiverHandle>(value_of(queue.consumer()));
             });
           })
      .def("end", &QueueHandle::call<&message::Queue::close>)
      .def("close", &QueueHandle::close);
}

}  // namespace headrace::python
