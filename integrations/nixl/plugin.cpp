// SPDX-License-Identifier: Apache-2.0
// A back end of NIXL for transfers within one process, by the engine of Headrace: worker threads,
// or a DSA. A post returns before anything is copied. Memory is DRAM. Transfers between machines
// are other back ends' (UCX).
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "headrace/engine/engine.hpp"
#include "nixl_1_5_1.hpp"

namespace {

using headrace::engine::Completion;
using headrace::engine::Engine;
using headrace::engine::Job;
using headrace::engine::JobState;
using headrace::engine::Operation;
using headrace::engine::Submit;

/// Of one job: so that several workers share a transfer, and others can come in between.
constexpr std::size_t kJobBytes = std::size_t{4} << 20U;

/// The posting thread copies so much itself, as it does in headrace::engine::route.
constexpr std::size_t kInlineBytesMax = std::size_t{64} << 10U;

/// One job of a transfer.
struct Part {
  std::size_t first = 0;
  std::size_t count = 0;
  Job job;
};

/// Threading: confined, as NIXL has it.
class Transfer final : public nixlBackendReqH {
 public:
  explicit Transfer(std::vector<Operation> operations) : operations_(std::move(operations)) {
    for (std::size_t first = 0; first < operations_.size();) {
      std::size_t count = 0;
      std::size_t byte_count = 0;
      while (first + count < operations_.size() && (count == 0 || byte_count < kJobBytes)) {
        byte_count += operations_[first + count++].byte_count();
      }
      byte_count_ += byte_count;
      parts_.push_back(std::make_unique<Part>());
      parts_.back()->first = first;
      parts_.back()->count = count;
      first += count;
    }
  }
  // The end of a job stops it and waits for what has begun.

  [[nodiscard]] bool is_running() const { return running_; }
  /// Starts it, or does it at once if it is small.
  [[nodiscard]] nixl_status_t begin(Engine& engine) {
    if (byte_count_ <= kInlineBytesMax) {
      for (const Operation& operation : operations_) {
        Completion end;
        if (engine.run(operation, end) != Submit::accepted || end.state != JobState::done) {
          return NIXL_ERR_BACKEND;
        }
      }
      return NIXL_SUCCESS;
    }
    submitted_ = 0;
    ended_ = 0;
    has_failed_ = false;
    running_ = true;
    return advance(engine);
  }
  /// Submits what the engine takes, and looks what has ended.
  [[nodiscard]] nixl_status_t advance(Engine& engine) {
    if (!running_) return NIXL_ERR_INVALID_PARAM;
    while (submitted_ < parts_.size() && !has_failed_) {
      Part& part = *parts_[submitted_];
      const std::span operations = std::span(operations_).subspan(part.first, part.count);
      const Submit answer = part.count == 1 ? engine.submit(part.job, operations.front())
                                            : engine.submit_batch(part.job, {operations, {}});
      if (answer == Submit::full) break;
      if (answer != Submit::accepted) {
        has_failed_ = true;
        break;
      }
      ++submitted_;
    }
    while (ended_ < submitted_ && parts_[ended_]->job.poll()) {
      if (parts_[ended_]->job.state() != JobState::done) has_failed_ = true;
      ++ended_;
    }
    if (ended_ < submitted_ || (submitted_ < parts_.size() && !has_failed_)) return NIXL_IN_PROG;
    running_ = false;
    return has_failed_ ? NIXL_ERR_BACKEND : NIXL_SUCCESS;
  }

 private:
  std::vector<Operation> operations_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::size_t byte_count_ = 0;
  std::size_t submitted_ = 0;
  std::size_t ended_ = 0;
  bool running_ = false;
  bool has_failed_ = false;
};

/// Memory that was mapped when it was registered.
class Memory final : public nixlBackendMD {
 public:
  Memory(std::uintptr_t address, std::size_t byte_count)
      : nixlBackendMD(true), address_(address), byte_count_(byte_count) {}
  [[nodiscard]] bool contains(const nixlMetaDesc& entry) const {
    return entry.address >= address_ && entry.byte_count <= byte_count_ &&
           entry.address - address_ <= byte_count_ - entry.byte_count;
  }

 private:
  std::uintptr_t address_;
  std::size_t byte_count_;
};

bool is_mapped(std::uintptr_t address, std::size_t byte_count) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = address / page * page;
  // Writes nothing: asks only whether all pages are there.
  return ::msync(reinterpret_cast<void*>(first), address + byte_count - first, MS_ASYNC) == 0;
}

bool is_registered(const nixlMetaDesc& entry) {
  const auto* const memory = dynamic_cast<const Memory*>(entry.metadata);
  return memory != nullptr && memory->contains(entry);
}

/// Threading: as NIXL has it; the engine is shared.
class HeadraceBackend final : public nixlBackendEngine {
 public:
  HeadraceBackend(const nixlBackendInitParams& parameters, std::unique_ptr<Engine> engine)
      : nixlBackendEngine(parameters), engine_(std::move(engine)) {}

  bool supports_remote() const override { return false; }
  bool supports_local() const override { return true; }
  bool supports_notifications() const override { return false; }
  Segments supported_memory() const override { return {DRAM_SEG}; }

  nixl_status_t register_memory(const nixlBlobDesc& memory, const nixl_mem_t& kind,
                                nixlBackendMD*& made) override {
    if (kind != DRAM_SEG) return NIXL_ERR_NOT_SUPPORTED;
    if (memory.byte_count == 0 || memory.address + memory.byte_count < memory.address ||
        !is_mapped(memory.address, memory.byte_count)) {
      return NIXL_ERR_INVALID_PARAM;
    }
    made = new Memory(memory.address, memory.byte_count);
    return NIXL_SUCCESS;
  }
  nixl_status_t deregister_memory(nixlBackendMD* metadata) override {
    delete metadata;
    return NIXL_SUCCESS;
  }
  nixl_status_t connect(const std::string& /*agent*/) override { return NIXL_SUCCESS; }
  nixl_status_t disconnect(const std::string& /*agent*/) override { return NIXL_SUCCESS; }
  nixl_status_t unload(nixlBackendMD* /*metadata*/) override { return NIXL_SUCCESS; }
  nixl_status_t load_local(nixlBackendMD* registered, nixlBackendMD*& target) override {
    target = registered;
    return NIXL_SUCCESS;
  }

  nixl_status_t prepare(const nixl_xfer_op_t& operation, const MetaList& local,
                        const MetaList& remote, const std::string& /*agent*/,
                        nixlBackendReqH*& handle, const Unused* /*options*/) const override {
    if (local.type != DRAM_SEG || remote.type != DRAM_SEG) return NIXL_ERR_NOT_SUPPORTED;
    if (local.entries.size() != remote.entries.size()) return NIXL_ERR_MISMATCH;
    std::vector<Operation> copies;
    copies.reserve(local.entries.size());
    for (std::size_t i = 0; i < local.entries.size(); ++i) {
      const nixlMetaDesc& target = operation == NIXL_WRITE ? remote.entries[i] : local.entries[i];
      const nixlMetaDesc& source = operation == NIXL_WRITE ? local.entries[i] : remote.entries[i];
      if (target.byte_count != source.byte_count) return NIXL_ERR_MISMATCH;
      if (!is_registered(target) || !is_registered(source)) return NIXL_ERR_INVALID_PARAM;
      copies.push_back(
          Operation::copy({reinterpret_cast<std::byte*>(target.address), target.byte_count},
                          {reinterpret_cast<const std::byte*>(source.address), source.byte_count}));
      // Overlapping ranges, for one.
      if (copies.back().validate() != Submit::accepted) return NIXL_ERR_INVALID_PARAM;
    }
    handle = new Transfer(std::move(copies));
    return NIXL_SUCCESS;
  }
  nixl_status_t post(const nixl_xfer_op_t& /*operation*/, const MetaList& /*local*/,
                     const MetaList& /*remote*/, const std::string& /*agent*/,
                     nixlBackendReqH*& handle, const Unused* /*options*/) const override {
    auto& transfer = static_cast<Transfer&>(*handle);
    if (transfer.is_running()) return NIXL_ERR_REPOST_ACTIVE;
    return transfer.begin(*engine_);
  }
  nixl_status_t check(nixlBackendReqH* handle) const override {
    return static_cast<Transfer&>(*handle).advance(*engine_);
  }
  nixl_status_t release(nixlBackendReqH* handle) const override {
    delete handle;
    return NIXL_SUCCESS;
  }

 private:
  std::unique_ptr<Engine> engine_;
};

nixlBackendEngine* create(const nixlBackendInitParams* parameters) {
  const auto machine = headrace::topo::discover();
  if (!machine) {
    std::fprintf(stderr, "headrace: %s\n", machine.error().message().c_str());
    return nullptr;
  }
  auto engine = Engine::make(*machine);
  if (!engine) {
    std::fprintf(stderr, "headrace: %s\n", engine.error().message().c_str());
    return nullptr;
  }
  return new HeadraceBackend(*parameters, std::move(*engine));
}

/// True if the libnixl.so of this process belongs to an installed package of the right version.
bool is_right_version() {
  bool found = false;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* answer) {
        const std::filesystem::path path(info->dlpi_name);
        if (path.filename() != "libnixl.so") return 0;
        std::error_code ignored;
        for (const auto& each :
             std::filesystem::directory_iterator(path.parent_path().parent_path(), ignored)) {
          const std::string name = each.path().filename().string();
          const bool is_nixl = name.starts_with("nixl_cu") || name.starts_with("nixl-");
          if (is_nixl && name.ends_with(std::string("-") + kNixlVersion + ".dist-info")) {
            *static_cast<bool*>(answer) = true;
          }
        }
        return 0;
      },
      &found);
  return found;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) nixlBackendPlugin* nixl_plugin_init() {
  if (!is_right_version()) {
    std::fprintf(
        stderr,
        "headrace: cannot load the back end HEADRACE: it is built for NIXL %s, and that is "
        "not the version installed; install nixl-cu12==%s, or rebuild it for yours\n",
        kNixlVersion, kNixlVersion);
    return nullptr;
  }
  static nixlBackendPlugin plugin = {.interface = kNixlInterface,
                                     .create = create,
                                     .destroy = [](nixlBackendEngine* engine) { delete engine; },
                                     .name = [] { return "HEADRACE"; },
                                     .version = [] { return "0.1.0"; },
                                     .options = [] { return Parameters(); },
                                     .memory = [] { return Segments{DRAM_SEG}; }};
  return &plugin;
}

extern "C" __attribute__((visibility("default"))) void nixl_plugin_fini() {}
