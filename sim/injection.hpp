// SPDX-License-Identifier: Apache-2.0
// Injection: a node that receives messages and computes on them; its NIC calls a function that
// decides where each message goes. Caches are simulated line by line.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "headrace/base/result.hpp"
#include "sim/model.hpp"

namespace headrace::sim {

/// Which cores share an L2; each has its own L1, except for siblings.
enum class Sharing : std::uint8_t {
  none,      ///< Each core has its own L2.
  l2,        ///< All cores share one.
  siblings,  ///< Cores 0 and 1, 2 and 3, ... are threads of one core: they share L1 and L2.
};

struct Message {
  std::uint64_t index = 0;
  double bytes = 0;
  std::uint32_t sender_core = 0;
  std::uint32_t receiver_core = 0;
};

enum class Level : std::uint8_t { memory, l3, l2 };

/// What the NIC does with a message: where it puts the header (its first bytes) and the payload,
/// and how long the functions on both sides take.
struct Place {
  Level header = Level::memory;
  Level payload = Level::memory;
  std::uint32_t core = 0;    ///< The core whose L2 is meant.
  double header_bytes = 64;  ///< Rounded up to lines.
  double nic_ns = 0;         ///< The function on the NIC, beside its protocol processing.
  double host_ns = 0;        ///< What is left to the receiving core.
};

/// Called by the NIC for each message before the message is written.
using NicFunction = std::function<Place(const Message&)>;

/// The cores of a node that receive messages and compute on them.
///
/// Threading: confined.
class Receivers {
 public:
  struct Options {
    std::uint32_t core_count = 2;
    Sharing sharing = Sharing::none;
    bool polled = true;           ///< Polls a user-space queue; else interrupt and kernel.
    bool protocol_on_nic = true;  ///< Else the host processes it.
    double memory_ratio = 1;      ///< Speed of the processor over that of memory, by the model's.
  };
  /// `model` must outlive it.
  Receivers(const InjectionModel& model, const Options& options);
  Receivers& operator=(Receivers&&) = delete;
  ~Receivers();

  /// The NIC writes a message into the receiver's buffer; the receiving core reads `read_share` of
  /// it. Returns the nanoseconds of both.
  ///
  /// Fails: invalid_argument, naming the message, if the function throws, or returns a core that
  ///        does not exist or a time that is negative.
  [[nodiscard]] Result<double> receive(const Message& message, const NicFunction& function,
                                       double read_share);
  /// The core reads its working set. Returns the nanoseconds.
  [[nodiscard]] double compute(std::uint32_t core, double working_bytes);
  /// Read from and written to memory so far.
  [[nodiscard]] double memory_lines() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct InjectionRun {
  Receivers::Options node;
  double message_bytes = 4096;
  std::uint32_t message_count = 8;   ///< Of each receiver.
  std::uint32_t receiver_count = 1;  ///< Cores 0, 1, ...; the last core sends.
  double read_share = 1;             ///< Share of a message that the computation reads.
  double working_bytes = 0;          ///< 0: the model's.
};

struct InjectionOutcome {
  double time_ns = 0;       ///< Per message: receiving and computing.
  double memory_lines = 0;  ///< Lines read from and written to memory, per message.
};

/// Fails: as Receivers::receive(); invalid_argument for more receivers than cores.
[[nodiscard]] Result<InjectionOutcome> inject(const InjectionModel& model, const InjectionRun& run,
                                              const NicFunction& function);

}  // namespace headrace::sim
