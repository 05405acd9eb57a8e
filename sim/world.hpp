// SPDX-License-Identifier: Apache-2.0
// World: a machine's nodes, meshes, links and devices as the resources of a Fluid, and what is
// moved in it. Not for: choosing what is moved where; that is the scenario's and the policies'.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/fluid.hpp"
#include "sim/model.hpp"

namespace headrace::sim {

/// Who reads and writes: a device, or a core of a socket.
struct Initiator {
  std::uint32_t socket = 0;
  std::uint32_t device = 0;  ///< Index into Model::machine.dsa_devices; not of a core.
};

/// What a byte of a transfer does to memory.
struct Traffic {
  std::uint32_t source = 0;
  std::uint32_t target = 0;
  double reads = 1;   ///< Bytes read of the source's node.
  double writes = 1;  ///< Bytes written to the target's node.
  /// Of bytes that pass through the processor's caches: more reads, and the ceilings of cores.
  double leak_reads = 0;
};

enum class Who : std::uint8_t { device, core };

/// Threading: confined.
class World {
 public:
  explicit World(const Model& model);

  Fluid& fluid() { return fluid_; }
  [[nodiscard]] const Model& model() const { return *model_; }
  /// Uses of nodes, meshes and links.
  [[nodiscard]] std::vector<Use> memory_uses(const Traffic& traffic, std::uint32_t socket,
                                             Who who) const;
  /// Those and the device's own.
  [[nodiscard]] std::vector<Use> device_uses(const Traffic& traffic, const Initiator& who,
                                             double fabric_weight) const;
  /// Of a core that copies: its misses under way bound it. `core` is of add_core().
  [[nodiscard]] std::vector<Use> core_uses(const Traffic& traffic, std::uint32_t socket,
                                           ResourceIndex core) const;
  [[nodiscard]] ResourceIndex add_core();
  /// What one core of `socket` reads of `node` at most, its misses under way.
  [[nodiscard]] double core_read_gb_per_s(std::uint32_t node, std::uint32_t socket) const;
  [[nodiscard]] ResourceIndex fabric(std::uint32_t device) const { return devices_[device].fabric; }
  /// Idle latency of `node` from `socket`.
  [[nodiscard]] double latency_ns(std::uint32_t node, std::uint32_t socket) const;
  /// The resource that was used most, and how much if not nearly all; "latency" if that is less
  /// than half.
  [[nodiscard]] std::string bound() const;

 private:
  struct NodeResources {
    ResourceIndex bus = 0;
    /// Of cores, where reads and writes have ceilings of their own.
    ResourceIndex read = 0;
    /// Of cores, there or where it was measured.
    std::optional<ResourceIndex> write;
  };
  struct DeviceResources {
    ResourceIndex fabric = 0;
    ResourceIndex buffers = 0;
  };
  [[nodiscard]] std::size_t node_index(std::uint32_t node) const;
  void add_node(std::vector<Use>& uses, std::size_t index, double reads, double writes,
                Who who) const;
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

/// Transfers that a submitter gives to a device.
struct Submitter {
  std::uint32_t device = 0;
  std::uint32_t queue = 0;  ///< Of the device, by its number there.
  std::uint64_t count = 1;  ///< Transfers in all.
  std::uint32_t batch = 1;  ///< Transfers of one submission.
  std::uint32_t depth = 1;  ///< Submissions under way at a time.
  double bytes = 0;         ///< Of one transfer.
  Traffic traffic = {};
};

/// How the devices are set up, and what every descriptor costs beside its bytes.
struct DeviceSetup {
  Queue kind = Queue::shared;
  std::uint32_t engine_count = 1;
  std::vector<std::uint32_t> entry_counts{128};  ///< Of each queue.
  std::vector<std::uint32_t> priorities{1};      ///< Of each queue, 1 to 15.
  double begin_ns = 0;       ///< Added to each descriptor: a device begins one at a time.
  double hold_ns = 0;        ///< The data path is held after each descriptor.
  double fabric_weight = 1;  ///< Of the data path per byte.
};

struct Moved {
  double elapsed_ns = 0;
  double steady_gb_per_s = 0;  ///< Without beginning and end.
  double bytes = 0;
  std::vector<double> queue_bytes = {};  ///< By queue, when the first submitter had finished.
  std::vector<double> ends_ns = {};      ///< Of each submitter.
  std::string bound = {};
};

/// Runs `submitters` to their ends.
[[nodiscard]] Moved move_by_devices(const Model& model, const DeviceSetup& setup,
                                    const std::vector<Submitter>& submitters);

/// Splits `bytes` among `thread_count` cores of `socket` that copy.
[[nodiscard]] Moved move_by_cores(const Model& model, std::uint32_t socket,
                                  std::uint32_t thread_count, double bytes, const Traffic& traffic);

}  // namespace headrace::sim
