// SPDX-License-Identifier: Apache-2.0
// Channels of an engine. An invalid ticket and concurrent use break the contract in C++; here both
// raise.
#include "headrace/engine/channel.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <optional>
#include <string>

#include "bindings.hpp"

namespace headrace::python {
namespace {

using engine::Submit;

[[noreturn]] void refuse(Code code, std::string cause, std::string remedy) {
  throw Failed{Error{code, 0, "use a channel", std::move(cause), std::move(remedy)}};
}

/// A channel, its engine, and its operations in flight.
///
/// Threading: confined and checked: a call while another is in progress raises. The fields are
///            guarded by the GIL, the channel by `busy_` while the GIL is released.
class ChannelHandle {
 public:
  ChannelHandle(std::shared_ptr<EngineHandle> engine, std::unique_ptr<engine::Channel> channel)
      : engine_(std::move(engine)), channel_(std::move(channel)), queue_(channel_->queue()) {}
  ChannelHandle(const ChannelHandle&) = delete;
  ChannelHandle& operator=(const ChannelHandle&) = delete;
  ~ChannelHandle() { end(); }

  std::uint64_t submit(nb::handle described) {
    auto operation = std::make_unique<Operation>(described);
    engine::Ticket ticket{};
    // open() after taking the buffers, which may have run Python code that used this channel.
    const Submit answer = open().submit(operation->what(), ticket);
    if (answer == Submit::closed) {
      refuse(Code::closed, "the engine has been closed, or the device does not answer",
             "make a new engine if it was closed; otherwise submit jobs, which other movers run");
    }
    if (answer != Submit::accepted) {
      refuse_answer(answer, {&operation, 1});
    }
    submissions_.emplace(++last_number_, Submission{ticket, std::move(operation)});
    return last_number_;
  }
  /// Returns nullopt if the operation has not ended.
  std::optional<Fields> poll(std::uint64_t number) {
    engine::Channel& channel = open();
    const auto submission = find(number);
    engine::Completion end;
    if (!channel.poll(submission->second.ticket, end)) {
      return std::nullopt;
    }
    return told(submission, end);
  }
  Fields wait(std::uint64_t number) {
    engine::Channel& channel = open();
    const auto submission = find(number);
    engine::Completion end;
    busy_ = true;
    {
      const GilReleased released;
      end = channel.wait(submission->second.ticket);
    }
    busy_ = false;
    return told(submission, end);
  }
  void close() {
    if (channel_) {
      static_cast<void>(open());
    }
    end();
  }
  [[nodiscard]] std::size_t in_flight() const { return submissions_.size(); }
  [[nodiscard]] std::size_t depth() { return open().depth(); }
  [[nodiscard]] const std::string& queue() const { return queue_; }

 private:
  struct Submission {
    engine::Ticket ticket;
    std::unique_ptr<Operation> operation;
  };
  using Submissions = std::map<std::uint64_t, Submission>;

  engine::Channel& open() {
    if (busy_) {
      refuse(Code::invalid_argument, "another thread waits on it",
             "open a channel for each thread");
    }
    if (!channel_) {
      refuse(Code::closed, "it has been closed", "open another one");
    }
    return *channel_;
  }
  Submissions::iterator find(std::uint64_t number) {
    const auto submission = submissions_.find(number);
    if (submission == submissions_.end()) {
      refuse(Code::invalid_argument, "the ticket is not in flight",
             "wait for each ticket once, on the channel that returned it");
    }
    return submission;
  }
  Fields told(Submissions::iterator submission, const engine::Completion& end) {
    // Removed from the table first: releasing a buffer may run any Python code.
    const Submission gone = std::move(submission->second);
    submissions_.erase(submission);
    return fields_of(end);
  }
  void end() {
    std::unique_ptr<engine::Channel> last = std::move(channel_);
    if (last) {
      const GilReleased released;
      last.reset();
    }
    Submissions ended;
    std::swap(ended, submissions_);
  }

  std::shared_ptr<EngineHandle> engine_;
  std::unique_ptr<engine::Channel> channel_;
  const std::string queue_;
  Submissions submissions_;
  std::uint64_t last_number_ = 0;
  bool busy_ = false;
};

std::shared_ptr<ChannelHandle> open_channel(const std::shared_ptr<EngineHandle>& engine,
                                            const std::string& queue,
                                            const std::optional<std::uint32_t>& node,
                                            std::size_t depth, bool latencies) {
  engine::ChannelOptions options{.queue = queue, .depth = depth, .latencies = latencies};
  if (node) {
    options.node = NodeId(*node);
  }
  return std::make_shared<ChannelHandle>(engine, value_of(engine->engine().open_channel(options)));
}

}  // namespace

void bind_channel(nb::module_& module) {
  nb::class_<ChannelHandle>(module, "Channel")
      .def_static("open", &open_channel, "engine"_a, "queue"_a, "node"_a.none(), "depth"_a,
                  "latencies"_a)
      .def("submit", &ChannelHandle::submit, "operation"_a, "The number of a ticket.")
      .def("poll", &ChannelHandle::poll, "number"_a)
      .def("wait", &ChannelHandle::wait, "number"_a)
      .def("close", &ChannelHandle::close)
      .def("in_flight", &ChannelHandle::in_flight)
      .def("depth", &ChannelHandle::depth)
      .def("queue", &ChannelHandle::queue);
}

}  // namespace headrace::python
