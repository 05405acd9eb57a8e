// SPDX-License-Identifier: Apache-2.0
// World: a machine's nodes, meshes, links and devices as resources of a Fluid, and the transfers
// among them. Not for: choosing what moves where; scenarios and policies do that.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/fluid.hpp"
#include "sim/model.hpp"

namespace headrace::sim {

/// What reads and writes: a device, or a core of a socket.
struct Initiator {
  std::uint32_t socket = 0;
  std::uint32_t device = 0;  ///< Index into Model::machine.dsa_devices; unused for a core.
};

/// Memory traffic per byte of a transfer.
struct Traffic {
  std::uint32_t source = 0;
  std::uint32_t target = 0;
  double reads = 1;       ///< Bytes read from the source's node.
  double writes = 1;      ///< Bytes written to the target's node.
  double leak_reads = 0;  ///< Additional reads per byte that leaks from the DDIO ways.
};

/// Threading: confined.
class World {
 public:
  explicit World(const Model& model);

  Fluid& fluid() { return fluid_; }
  [[nodiscard]] const Model& model() const { return *model_; }
  /// Of nodes, meshes and links, for cores and devices alike.
  [[nodiscard]] std::vector<Use> memory_uses(const Traffic& traffic, std::uint32_t socket) const;
  /// memory_uses() and the device's own resources.
  [[nodiscard]] std::vector<Use> device_uses(const Traffic& traffic, const Initiator& who,
                                             double fabric_weight) const;
  /// Of a copying core, which its outstanding misses bound. `core` is from add_core().
  [[nodiscard]] std::vector<Use> core_uses(const Traffic& traffic, std::uint32_t socket,
                                           ResourceIndex core) const;
  [[nodiscard]] ResourceIndex add_core();
  /// Most that one core of `socket` reads from `node`, given its outstanding misses.
  [[nodiscard]] double core_read_gb_per_s(std::uint32_t node, std::uint32_t socket) const;
  [[nodiscard]] ResourceIndex fabric(std::uint32_t device) const { return devices_[device].fabric; }
  /// Idle latency of `node` from `socket`.
  [[nodiscard]] double latency_ns(std::uint32_t node, std::uint32_t socket) const;
  /// The most utilised resource, with its utilisation unless nearly full; "latency" if below half.
  [[nodiscard]] std::string bound() const;

 private:
  struct NodeResources {
    ResourceIndex bus = 0;
    /// Ceiling of reads if reads and writes have separate ceilings.
    ResourceIndex read = 0;
    /// Ceiling of writes, if separate or measured.
    std::optional<ResourceIndex> write;
  };
  struct DeviceResources {
    ResourceIndex fabric = 0;
    ResourceIndex buffers = 0;
  };
  [[nodiscard]] std::size_t node_index(std::uint32_t node) const;
  void add_node(std::vector<Use>& uses, std::size_t index, double reads, double writes) const;
  void add_links(std::vector<Use>& uses, std::uint32_t from, std::uint32_t to, double weight) const;

  const Model* model_;
  Fluid fluid_;
  std::vector<NodeResources> nodes_;
  std::vector<ResourceIndex> meshes_;
  std::vector<ResourceIndex> forward_;
  std::vector<ResourceIndex> backward_;
  std::vector<DeviceResources> devices_;
};

enum class Queue : std::uint8_t { shared, dedicated };

/// Device configuration, and the cost of each descriptor beyond its bytes.
struct DeviceSetup {
  Queue kind = Queue::shared;
  std::uint32_t engine_count = 1;
  std::vector<std::uint32_t> entry_counts{128};  ///< Of each queue.
  std::vector<std::uint32_t> priorities{1};      ///< Of each queue, 1 to 15.
  double begin_ns = 0;       ///< Added to each descriptor's start; a device starts one at a time.
  double hold_ns = 0;        ///< Occupies the data path after each descriptor.
  double fabric_weight = 1;  ///< Data path use per byte.
};

/// A submission to a device: one transfer, or a batch of equal ones.
struct Submission {
  std::uint32_t device = 0;
  std::uint32_t queue = 0;  ///< Queue number within the device.
  std::uint32_t count = 1;  ///< Transfers.
  double bytes = 0;         ///< Per transfer.
  Traffic traffic = {};
};

/// Queues, arbiters and engines of all devices of a World.
///
/// Threading: confined.
class Devices {
 public:
  /// `world` and `setup` must outlive it.
  Devices(World& world, const DeviceSetup& setup);

  /// Called at the end of each step of a submission.
  struct Steps {
    Fluid::Action accepted = [] {};     ///< The submitting thread is free again.
    Fluid::Action transferred = [] {};  ///< For each transfer.
    Fluid::Action completed = [] {};    ///< All of them are complete.
  };
  /// A submission occupies its thread. A full queue refuses it: the thread submits again when an
  /// entry becomes free.
  void submit(const Submission& submission, Steps steps);

  struct Load {
    double submissions = 0;
    double queued_ns = 0;  ///< In all, until the first transfer of each began.
  };
  [[nodiscard]] Load load(std::uint32_t device) const { return devices_[device].load; }

 private:
  struct Descriptor {
    Submission what;
    Steps steps;
    double accepted_ns = 0;
    std::uint32_t begun = 0;  ///< Transfers begun.
    std::uint32_t ended = 0;
  };
  using Shared = std::shared_ptr<Descriptor>;
  struct Device {
    std::vector<std::deque<Shared>> queues;
    /// Arbiter turns left per queue, refilled from its priority.
    std::vector<std::uint32_t> turns;
    std::uint32_t free_slots = 0;
    bool beginning = false;
    /// Submissions that found their queue full, in FIFO order.
    std::deque<Shared> waiting;
    Load load = {};
  };

  void submit(const Shared& descriptor);
  [[nodiscard]] std::size_t choose(Device& device) const;
  void begin(std::uint32_t index);
  void translate(const Shared& descriptor);
  void end(const Shared& descriptor);
  [[nodiscard]] const DsaModel& dsa() const { return world_.model().dsa; }

  World& world_;
  const DeviceSetup& setup_;
  std::vector<Device> devices_;
};

/// Transfers that one thread gives to a device.
struct Submitter {
  std::uint32_t device = 0;
  std::uint32_t queue = 0;  ///< Queue number within the device.
  std::uint64_t count = 1;  ///< Transfers in all.
  std::uint32_t batch = 1;  ///< Transfers per submission.
  std::uint32_t depth = 1;  ///< Submissions in flight.
  double bytes = 0;         ///< Per transfer.
  Traffic traffic = {};
};

struct Moved {
  double elapsed_ns = 0;
  double steady_gb_per_s = 0;  ///< Excludes start and end.
  double bytes = 0;
  std::vector<double> queue_bytes = {};  ///< By queue, when the first submitter finished.
  std::vector<double> ends_ns = {};      ///< Of each submitter.
  std::string bound = {};
};

/// Runs until all `submitters` finish.
[[nodiscard]] Moved move_by_devices(const Model& model, const DeviceSetup& setup,
                                    const std::vector<Submitter>& submitters);

namespace detail {

/// Rate of one core, and the ceiling of all cores that share the cache or the node.
struct CoreRate {
  double gb_per_s = 0;
  double all_gb_per_s = 0;  ///< 0: no limit.
  bool in_memory = false;
};
/// Of calls of `bytes` by one of `threads` over `span` bytes of private memory, on a machine that
/// was measured. `access`: "read", "fill", "copy" or "update".
[[nodiscard]] CoreRate core_rate(const Model& model, const std::string& access, double span,
                                 double bytes, double threads);

}  // namespace detail

/// Copies `bytes` by `thread_count` cores of `socket`.
[[nodiscard]] Moved move_by_cores(const Model& model, std::uint32_t socket,
                                  std::uint32_t thread_count, double bytes, const Traffic& traffic);

}  // namespace headrace::sim
