// SPDX-License-Identifier: Apache-2.0
// A NIXL back end for transfers within one process, by Headrace's engine: worker threads or a DSA.
// A post of more than 64 KiB does not wait for the copy. Memory is DRAM or a mapped file (plain, on
// DAX, or a DAX device). Not for transfers between machines: use another back end (UCX).
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <thread>

#include "backend/backend_plugin.h"
#include "headrace.h"
#include "headrace/engine/engine.hpp"
#include "headrace/pmem/mapping.hpp"

namespace {

using headrace::engine::Completion;
using headrace::engine::Engine;
using headrace::engine::Job;
using headrace::engine::JobState;
using headrace::engine::Operation;
using headrace::engine::Submit;
using headrace::pmem::Mapping;
using SharedMapping = std::shared_ptr<const Mapping>;
using Clock = std::chrono::steady_clock;

/// Bytes of one job: several workers share a transfer, and other jobs run in between.
constexpr std::size_t kJobBytes = std::size_t{4} << 20U;

/// The posting thread copies up to this many bytes itself, as in headrace::engine::route.
constexpr std::size_t kInlineBytesMax = std::size_t{64} << 10U;

/// A thread that polls again within this time does nothing else: it yields its processor, which a
/// worker may need if there are no more processors than workers.
constexpr std::chrono::microseconds kLookingInterval{20};

void tell(const char* tried, const char* cause, const char* remedy) {
  std::fprintf(stderr, "headrace: cannot %s: %s; %s\n", tried, cause, remedy);
}

/// One job of a transfer.
struct Part {
  std::size_t first = 0;
  std::size_t count = 0;
  Job job;
};

/// Threading: confined, as NIXL uses it.
class Transfer final : public nixlBackendReqH {
 public:
  /// `files`: mappings that the operations use.
  Transfer(std::vector<Operation> operations, std::vector<SharedMapping> files)
      : files_(std::move(files)), operations_(std::move(operations)) {
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
  // The destructor of a job stops it and waits for operations in progress.

  [[nodiscard]] bool is_running() const { return running_; }
  /// Starts the transfer; copies inline if it is small.
  [[nodiscard]] nixl_status_t begin(Engine& engine) {
    if (byte_count_ <= kInlineBytesMax) {
      for (const Operation& operation : operations_) {
        Completion end;
        if (engine.run(operation, end) != Submit::accepted || end.state != JobState::done) {
          return NIXL_ERR_BACKEND;
        }
      }
      return ended(true);
    }
    submitted_ = 0;
    ended_ = 0;
    has_failed_ = false;
    running_ = true;
    return advance(engine);
  }
  /// Submits as many parts as the engine accepts, and polls submitted ones.
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
    return ended(!has_failed_);
  }
  /// As advance(), but yields if the thread does nothing but poll.
  [[nodiscard]] nixl_status_t look(Engine& engine) {
    const nixl_status_t status = advance(engine);
    if (status != NIXL_IN_PROG) return status;
    const Clock::time_point now = Clock::now();
    if (now - last_look_ < kLookingInterval) std::this_thread::yield();
    last_look_ = now;
    return status;
  }

 private:
  /// Fails also if a mapped file lost pages: stores to those were lost.
  [[nodiscard]] nixl_status_t ended(bool done) const {
    const bool whole = std::ranges::none_of(files_, [](const SharedMapping& file) {
      return file->fault() != headrace::pmem::Fault::none;
    });
    return done && whole ? NIXL_SUCCESS : NIXL_ERR_BACKEND;
  }

  std::vector<SharedMapping> files_;  ///< Must outlive the jobs.
  std::vector<Operation> operations_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::size_t byte_count_ = 0;
  std::size_t submitted_ = 0;
  std::size_t ended_ = 0;
  Clock::time_point last_look_;
  bool running_ = false;
  bool has_failed_ = false;
};

/// A registration: memory that was mapped at that time, or a part of a file.
class Memory final : public nixlBackendMD {
 public:
  Memory(std::uintptr_t address, std::size_t byte_count)
      : nixlBackendMD(true),
        address_(address),
        byte_count_(byte_count),
        first_(reinterpret_cast<std::byte*>(address)) {}
  /// `file`: mapping of the whole file, of at least `offset + byte_count` bytes.
  Memory(std::uintptr_t offset, std::size_t byte_count, SharedMapping file, bool can_write)
      : nixlBackendMD(true),
        address_(offset),
        byte_count_(byte_count),
        first_(file->bytes().data() + offset),
        file_(std::move(file)),
        can_write_(can_write) {}
  /// Null if the entry exceeds the registration.
  [[nodiscard]] std::byte* find(const nixlMetaDesc& entry) const {
    const bool is_within = entry.addr >= address_ && entry.len <= byte_count_ &&
                           entry.addr - address_ <= byte_count_ - entry.len;
    return is_within ? first_ + (entry.addr - address_) : nullptr;
  }
  /// Null for DRAM.
  [[nodiscard]] const SharedMapping& file() const { return file_; }
  [[nodiscard]] bool can_write() const { return can_write_; }
  /// True if copies must flush the processor's caches to be durable.
  [[nodiscard]] bool is_durable() const {
    return file_ != nullptr && file_->granularity() == headrace::pmem::Granularity::line;
  }

 private:
  std::uintptr_t address_;
  std::size_t byte_count_;
  std::byte* first_;
  SharedMapping file_;
  bool can_write_ = true;
};

bool is_mapped(std::uintptr_t address, std::size_t byte_count) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = address / page * page;
  // MS_ASYNC writes nothing; ENOMEM reports unmapped pages.
  return ::msync(reinterpret_cast<void*>(first), address + byte_count - first, MS_ASYNC) == 0;
}

/// Maps a file by its descriptor, which NIXL passes as the device number. Extends a shorter
/// writable file, with blocks allocated on the disk.
///
/// Returns: null on failure; prints the cause to stderr.
nixlBackendMD* map_file(const nixlBlobDesc& asked) {
  const char* const tried = "register a file with NIXL";
  const int descriptor = static_cast<int>(asked.devId);
  struct stat status{};
  const int mode = ::fcntl(descriptor, F_GETFL);
  if (mode < 0 || ::fstat(descriptor, &status) != 0) {
    tell(tried, "the device number is not an open file descriptor",
         "pass the descriptor from open()");
    return nullptr;
  }
  const bool can_write = (mode & O_ACCMODE) == O_RDWR;
  const auto end = static_cast<::off_t>(asked.addr + asked.len);
  if (S_ISREG(status.st_mode) && status.st_size < end) {
    const int error =
        can_write ? ::posix_fallocate(descriptor, status.st_size, end - status.st_size) : EROFS;
    if (error != 0) {
      tell(tried, can_write ? std::strerror(error) : "it is shorter, and open for reading only",
           "register its actual length, or free disk space");
      return nullptr;
    }
  }
  auto mapping =
      Mapping::map("/proc/self/fd/" + std::to_string(descriptor), {.read_only = !can_write});
  if (!mapping || mapping->bytes().size() < asked.addr + asked.len) {
    tell(tried, mapping ? "it is shorter" : mapping.error().message().c_str(),
         "open another one, for reading and writing");
    return nullptr;
  }
  return new Memory(asked.addr, asked.len, std::make_shared<const Mapping>(std::move(*mapping)),
                    can_write);
}

bool is_known(nixl_mem_t kind) {
  return kind == DRAM_SEG || kind == FILE_SEG;
}

/// Threading: as NIXL uses it; the engine is shared.
class HeadraceBackend final : public nixlBackendEngine {
 public:
  HeadraceBackend(const nixlBackendInitParams* parameters, std::unique_ptr<Engine> engine)
      : nixlBackendEngine(parameters), engine_(std::move(engine)) {}

  bool supportsRemote() const override { return false; }
  bool supportsLocal() const override { return true; }
  bool supportsNotif() const override { return false; }
  nixl_mem_list_t getSupportedMems() const override { return {DRAM_SEG, FILE_SEG}; }

  nixl_status_t registerMem(const nixlBlobDesc& memory, const nixl_mem_t& kind,
                            nixlBackendMD*& made) override {
    if (!is_known(kind)) return NIXL_ERR_NOT_SUPPORTED;
    if (memory.len == 0 || memory.addr + memory.len < memory.addr) {
      return NIXL_ERR_INVALID_PARAM;
    }
    if (kind == FILE_SEG) {
      made = map_file(memory);
    } else if (is_mapped(memory.addr, memory.len)) {
      made = new Memory(memory.addr, memory.len);
    } else {
      made = nullptr;
    }
    return made != nullptr ? NIXL_SUCCESS : NIXL_ERR_INVALID_PARAM;
  }
  nixl_status_t deregisterMem(nixlBackendMD* metadata) override {
    delete metadata;
    return NIXL_SUCCESS;
  }
  nixl_status_t connect(const std::string& /*agent*/) override { return NIXL_SUCCESS; }
  nixl_status_t disconnect(const std::string& /*agent*/) override { return NIXL_SUCCESS; }
  nixl_status_t unloadMD(nixlBackendMD* /*metadata*/) override { return NIXL_SUCCESS; }
  nixl_status_t loadLocalMD(nixlBackendMD* registered, nixlBackendMD*& target) override {
    target = registered;
    return NIXL_SUCCESS;
  }

  nixl_status_t prepXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                         const nixl_meta_dlist_t& remote, const std::string& /*agent*/,
                         nixlBackendReqH*& handle,
                         const nixl_opt_b_args_t* /*options*/) const override {
    if (!is_known(local.getType()) || !is_known(remote.getType())) return NIXL_ERR_NOT_SUPPORTED;
    if (local.descCount() != remote.descCount()) return NIXL_ERR_MISMATCH;
    std::vector<Operation> copies;
    std::vector<SharedMapping> files;
    copies.reserve(static_cast<std::size_t>(local.descCount()));
    for (int i = 0; i < local.descCount(); ++i) {
      const nixlMetaDesc& target = operation == NIXL_WRITE ? remote[i] : local[i];
      const nixlMetaDesc& source = operation == NIXL_WRITE ? local[i] : remote[i];
      if (target.len != source.len) return NIXL_ERR_MISMATCH;
      const auto* const to = dynamic_cast<const Memory*>(target.metadataP);
      const auto* const from = dynamic_cast<const Memory*>(source.metadataP);
      std::byte* const to_first = to == nullptr ? nullptr : to->find(target);
      const std::byte* const from_first = from == nullptr ? nullptr : from->find(source);
      if (to_first == nullptr || from_first == nullptr || !to->can_write()) {
        return NIXL_ERR_INVALID_PARAM;
      }
      Operation copy = Operation::copy({to_first, target.len}, {from_first, source.len});
      copies.push_back(to->is_durable() ? copy.durable() : copy);
      // Overlapping ranges, for one.
      if (copies.back().validate() != Submit::accepted) return NIXL_ERR_INVALID_PARAM;
      for (const Memory* const each : {to, from}) {
        const bool is_new =
            each->file() != nullptr && (files.empty() || files.back() != each->file());
        if (is_new) files.push_back(each->file());
      }
    }
    handle = new Transfer(std::move(copies), std::move(files));
    return NIXL_SUCCESS;
  }
  nixl_status_t postXfer(const nixl_xfer_op_t& /*operation*/, const nixl_meta_dlist_t& /*local*/,
                         const nixl_meta_dlist_t& /*remote*/, const std::string& /*agent*/,
                         nixlBackendReqH*& handle,
                         const nixl_opt_b_args_t* /*options*/) const override {
    auto& transfer = static_cast<Transfer&>(*handle);
    if (transfer.is_running()) return NIXL_ERR_REPOST_ACTIVE;
    return transfer.begin(*engine_);
  }
  nixl_status_t checkXfer(nixlBackendReqH* handle) const override {
    return static_cast<Transfer&>(*handle).look(*engine_);
  }
  nixl_status_t releaseReqH(nixlBackendReqH* handle) const override {
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
  return new HeadraceBackend(parameters, std::move(*engine));
}

/// True if the libnixl.so of this process belongs to an installed package of NIXL_VERSION.
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
          if (is_nixl && name.ends_with("-" NIXL_VERSION ".dist-info")) {
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
    tell("load the back end HEADRACE of NIXL",
         "it is built for version " NIXL_VERSION ", and another is installed",
         "install nixl-cu12==" NIXL_VERSION ", or build it with that one's headers");
    return nullptr;
  }
  static nixlBackendPlugin plugin = {
      .api_version = NIXL_PLUGIN_API_VERSION,
      .create_engine = create,
      .destroy_engine = [](nixlBackendEngine* engine) { delete engine; },
      .get_plugin_name = [] { return "HEADRACE"; },
      .get_plugin_version = [] { return headrace_version(); },
      .get_backend_options = [] { return nixl_b_params_t(); },
      .get_backend_mems = [] { return nixl_mem_list_t{DRAM_SEG, FILE_SEG}; }};
  return &plugin;
}

extern "C" __attribute__((visibility("default"))) void nixl_plugin_fini() {}
