// SPDX-License-Identifier: Apache-2.0
// arrow::MemoryPool on a node, for pyarrow: a separate extension, because it must link the libarrow
// of the pyarrow wheel.
#include <arrow/memory_pool.h>
#include <arrow/status.h>
#include <arrow/util/config.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "headrace/cache/cache.hpp"
#include "headrace/platform/memory.hpp"

namespace headrace::python {
namespace {

namespace nb = nanobind;

/// Name, which is the type, of the pyarrow capsule with the function that wraps a pool.
constexpr const char* kBox = "PyObject *( arrow::MemoryPool *)";

/// Allocates whole prefaulted pages of a node, from the memory source of the cache.
///
/// Threading: shared.
class NodePool final : public arrow::MemoryPool {
 public:
  explicit NodePool(NodeId node) : node_(node) {}

  using arrow::MemoryPool::Allocate;
  using arrow::MemoryPool::Free;
  using arrow::MemoryPool::Reallocate;

  // Page alignment exceeds what Arrow requests.
  arrow::Status Allocate(std::int64_t size, std::int64_t /*alignment*/,
                         std::uint8_t** out) override {
    if (size < 0) return arrow::Status::Invalid("a negative number of bytes");
    if (size == 0) {
      *out = zero_bytes_;
      return arrow::Status::OK();
    }
    const Result<std::span<std::byte>> memory = source_->allocate(whole_pages(size), node_);
    if (!memory.has_value()) return arrow::Status::OutOfMemory(memory.error().message());
    *out = reinterpret_cast<std::uint8_t*>(memory->data());
    statistics_.DidAllocateBytes(size);
    return arrow::Status::OK();
  }
  arrow::Status Reallocate(std::int64_t old_size, std::int64_t new_size, std::int64_t alignment,
                           std::uint8_t** pointer) override {
    if (old_size > 0 && new_size > 0 && whole_pages(old_size) == whole_pages(new_size)) {
      statistics_.DidReallocateBytes(old_size, new_size);
      return arrow::Status::OK();
    }
    std::uint8_t* moved = nullptr;
    ARROW_RETURN_NOT_OK(Allocate(new_size, alignment, &moved));
    std::memcpy(moved, *pointer, static_cast<std::size_t>(std::min(old_size, new_size)));
    Free(*pointer, old_size, alignment);
    *pointer = moved;
    return arrow::Status::OK();
  }
  void Free(std::uint8_t* buffer, std::int64_t size, std::int64_t /*alignment*/) override {
    if (size == 0) return;
    source_->free({reinterpret_cast<std::byte*>(buffer), whole_pages(size)});
    statistics_.DidFreeBytes(size);
  }
  [[nodiscard]] std::int64_t bytes_allocated() const override {
    return statistics_.bytes_allocated();
  }
  [[nodiscard]] std::int64_t max_memory() const override { return statistics_.max_memory(); }
  [[nodiscard]] std::int64_t total_bytes_allocated() const override {
    return statistics_.total_bytes_allocated();
  }
  [[nodiscard]] std::int64_t num_allocations() const override {
    return statistics_.num_allocations();
  }
  [[nodiscard]] std::string backend_name() const override {
    return "headrace node " + std::to_string(node_.value());
  }

 private:
  static std::size_t whole_pages(std::int64_t size) {
    const std::size_t page = platform::page_bytes();
    return (static_cast<std::size_t>(size) + page - 1) / page * page;
  }

  const NodeId node_;
  const std::shared_ptr<cache::MemorySource> source_ = cache::operating_system_pages();
  arrow::internal::MemoryPoolStats statistics_;
  /// Address of empty allocations, which must not be null.
  alignas(64) std::uint8_t zero_bytes_[1] = {};
};

/// The pool of a node; never destroyed, because buffers refer to it.
nb::object pool_of(std::uint32_t node) {
  static auto& pools =
      *new std::map<std::uint32_t, std::unique_ptr<NodePool>>;  // Guarded by the GIL.
  std::unique_ptr<NodePool>& pool = pools[node];
  if (pool == nullptr) pool = std::make_unique<NodePool>(NodeId(node));
  const nb::object capsule =
      nb::module_::import_("pyarrow.lib").attr("__pyx_capi__")["box_memory_pool"];
  void* const function = PyCapsule_GetPointer(capsule.ptr(), kBox);
  if (function == nullptr) throw nb::python_error();
  const auto box = reinterpret_cast<PyObject* (*)(arrow::MemoryPool*)>(function);
  PyObject* const boxed = box(pool.get());
  if (boxed == nullptr) throw nb::python_error();
  return nb::steal(boxed);
}

}  // namespace
}  // namespace headrace::python

NB_MODULE(_arrow_pool, module) {
  module.attr("ARROW_VERSION") = ARROW_VERSION_STRING;
  module.def("pool", &headrace::python::pool_of, nanobind::arg("node"),
             "The pyarrow.MemoryPool of a node.");
}
