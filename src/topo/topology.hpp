// SPDX-License-Identifier: Apache-2.0
// Topology: a loaded hwloc topology.
#pragma once

#include <hwloc.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/result.hpp"
#include "headrace/base/units.hpp"

namespace headrace::topo {

struct BitmapDeleter {
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapDeleter>;

[[nodiscard]] Bitmap make_bitmap();
[[nodiscard]] std::vector<CpuId> to_cpus(hwloc_const_bitmap_t bitmap);
[[nodiscard]] Bitmap to_bitmap(const std::vector<CpuId>& cpus);
/// "0-11,24" as the kernel writes it.
[[nodiscard]] std::string to_list(const std::vector<CpuId>& cpus);
/// Nothing if `list` is not of the form "0-11,24", or names a processor of kCpuCountMax or above.
[[nodiscard]] std::optional<std::vector<CpuId>> parse_list(const std::string& list);

/// Linux can be built for 8192 processors; anything far above is a broken record.
inline constexpr std::uint32_t kCpuCountMax = 1U << 16U;

/// Includes objects that this process may not use.
///
/// Threading: confined.
class Topology {
 public:
  /// This machine, or the one that HWLOC_XMLFILE or HWLOC_SYNTHETIC names.
  [[nodiscard]] static Result<Topology> load_this_machine();
  /// Fails: corrupt_data if hwloc rejects the text.
  [[nodiscard]] static Result<Topology> load_xml(const std::string& xml);

  [[nodiscard]] hwloc_topology_t get() const { return topology_.get(); }
  [[nodiscard]] bool is_this_machine() const;
  /// Omits facts that identify the machine: host name, serial numbers.
  [[nodiscard]] Result<std::string> to_xml() const;
  [[nodiscard]] std::vector<hwloc_obj_t> nodes() const;

 private:
  struct Deleter {
    void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
  };
  using Handle = std::unique_ptr<hwloc_topology, Deleter>;
  explicit Topology(Handle topology) : topology_(std::move(topology)) {}
  [[nodiscard]] static Result<Handle> make_handle();

  Handle topology_;
};

}  // namespace headrace::topo
