// SPDX-License-Identifier: Apache-2.0
// The ABI of NIXL 1.5.1 plug-ins: the order of virtual functions and the offsets of members, taken
// from the plug-ins of the package nixl-cu12 1.5.1 on PyPI, which has no headers. Only for that
// version: NIXL's interface number does not distinguish versions, so the plug-in checks the
// installed package (plugin.cpp). See docs/decisions/0017.
//
// The names are NIXL's, because its exceptions and casts compare them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

inline constexpr const char* kNixlVersion = "1.5.1";
inline constexpr int kNixlInterface = 1;

enum nixl_mem_t : int { DRAM_SEG, VRAM_SEG, BLK_SEG, OBJ_SEG, FILE_SEG };
enum nixl_xfer_op_t : int { NIXL_READ, NIXL_WRITE };
enum nixl_status_t : int {
  NIXL_IN_PROG = 1,
  NIXL_SUCCESS = 0,
  NIXL_ERR_INVALID_PARAM = -2,
  NIXL_ERR_BACKEND = -3,
  NIXL_ERR_MISMATCH = -5,
  NIXL_ERR_REPOST_ACTIVE = -7,
  NIXL_ERR_NOT_SUPPORTED = -9,
};
using Parameters = std::unordered_map<std::string, std::string>;
using Segments = std::vector<nixl_mem_t>;

class nixlBackendInitParams {
 public:
  std::string local_agent;
  std::string type;
  Parameters* parameters;
  bool has_progress_thread;
  std::uint64_t progress_delay_us;
  int synchronisation;
  bool has_telemetry;
};
static_assert(offsetof(nixlBackendInitParams, parameters) == 0x40 &&
              offsetof(nixlBackendInitParams, has_telemetry) == 0x5c);

/// A plug-in's data about registered memory.
class nixlBackendMD {
 public:
  explicit nixlBackendMD(bool is_private) : is_private_(is_private) {}
  virtual ~nixlBackendMD() = default;

 protected:
  bool is_private_;
};

/// A transfer, from its preparation to its release.
class nixlBackendReqH {
 public:
  nixlBackendReqH() = default;
  virtual ~nixlBackendReqH() = default;
};

struct nixlBlobDesc {
  std::uintptr_t address;
  std::size_t byte_count;
  std::uint64_t device;
  std::string blob;
};
struct nixlMetaDesc {
  std::uintptr_t address;
  std::size_t byte_count;
  std::uint64_t device;
  nixlBackendMD* metadata;
};
/// Only read here: NIXL implements its virtual functions.
struct MetaList {
  const void* virtual_table;
  nixl_mem_t type;
  std::vector<nixlMetaDesc> entries;
};
static_assert(sizeof(nixlMetaDesc) == 32 && offsetof(MetaList, entries) == 16);
struct Unused;

class nixlBackendEngine {
 public:
  explicit nixlBackendEngine(const nixlBackendInitParams& parameters)
      : type_(parameters.type),
        parameters_(*parameters.parameters),
        local_agent_(parameters.local_agent),
        has_telemetry_(parameters.has_telemetry) {}
  nixlBackendEngine(const nixlBackendEngine&) = delete;
  nixlBackendEngine& operator=(const nixlBackendEngine&) = delete;

  // In the order of the vtable.
  virtual ~nixlBackendEngine() = default;
  virtual bool supports_remote() const = 0;
  virtual bool supports_local() const = 0;
  virtual bool supports_notifications() const = 0;
  virtual Segments supported_memory() const = 0;
  virtual nixl_status_t register_memory(const nixlBlobDesc& memory, const nixl_mem_t& kind,
                                        nixlBackendMD*& made) = 0;
  virtual nixl_status_t deregister_memory(nixlBackendMD* metadata) = 0;
  virtual nixl_status_t connect(const std::string& agent) = 0;
  virtual nixl_status_t disconnect(const std::string& agent) = 0;
  virtual nixl_status_t unload(nixlBackendMD* metadata) = 0;
  virtual nixl_status_t prepare(const nixl_xfer_op_t& operation, const MetaList& local,
                                const MetaList& remote, const std::string& agent,
                                nixlBackendReqH*& handle, const Unused* options) const = 0;
  virtual nixl_status_t post(const nixl_xfer_op_t& operation, const MetaList& local,
                             const MetaList& remote, const std::string& agent,
                             nixlBackendReqH*& handle, const Unused* options) const = 0;
  virtual nixl_status_t check(nixlBackendReqH* handle) const = 0;
  virtual nixl_status_t release(nixlBackendReqH* handle) const = 0;
  virtual nixl_status_t view_remote(const Unused&, void*&, const Unused*) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  virtual nixl_status_t view_local(const Unused&, void*&, const Unused*) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  virtual void release_view(void*) const {}
  virtual nixl_status_t public_data(const nixlBackendMD*, std::string&) const {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t connection(std::string&) const { return NIXL_ERR_BACKEND; }
  virtual nixl_status_t load_connection(const std::string&, const std::string&) {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t load_remote(const nixlBlobDesc&, const nixl_mem_t&, const std::string&,
                                    nixlBackendMD*&) {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t load_local(nixlBackendMD* registered, nixlBackendMD*& target) = 0;
  virtual nixl_status_t notifications(std::vector<std::pair<std::string, std::string>>&) {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t notify(const std::string&, const std::string&) const {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t query(const Unused&, std::vector<std::optional<Parameters>>&) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  virtual nixl_status_t estimate(const nixl_xfer_op_t&, const MetaList&, const MetaList&,
                                 const std::string&, nixlBackendReqH* const&,
                                 std::chrono::microseconds&, std::chrono::microseconds&, int&,
                                 const Unused*) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }

 private:
  // NIXL reads these.
  std::string type_;
  Parameters parameters_;
  std::vector<std::byte> telemetry_events_;
  std::mutex telemetry_mutex_;
  [[maybe_unused]] bool has_failed_ = false;
  const std::string local_agent_;
  [[maybe_unused]] const bool has_telemetry_;
};
static_assert(sizeof(nixlBackendEngine) == 0xd0);

struct nixlBackendPlugin {
  int interface;
  nixlBackendEngine* (*create)(const nixlBackendInitParams* parameters);
  void (*destroy)(nixlBackendEngine* engine);
  const char* (*name)();
  const char* (*version)();
  Parameters (*options)();
  Segments (*memory)();
};
