// SPDX-License-Identifier: Apache-2.0
// A stand-in for NIXL's header of this name: what the back end uses of it, as of 1.5.1. The order
// of virtual functions and the offsets of members are those of the plug-ins of the package
// nixl-cu12 1.5.1 on PyPI, which has no headers, so that the tests can load the back end into it.
//
// The names are NIXL's.
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

#define NIXL_PLUGIN_API_VERSION 1

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
using nixl_b_params_t = std::unordered_map<std::string, std::string>;
using nixl_mem_list_t = std::vector<nixl_mem_t>;

class nixlBackendInitParams {
 public:
  std::string localAgent;
  std::string type;
  nixl_b_params_t* customParams;
  bool enableProgTh;
  std::uint64_t pthrDelay;
  int syncMode;
  bool enableTelemetry_;
};
static_assert(offsetof(nixlBackendInitParams, customParams) == 0x40 &&
              offsetof(nixlBackendInitParams, enableTelemetry_) == 0x5c);

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
  std::uintptr_t addr;
  std::size_t len;
  std::uint64_t devId;
  std::string metaInfo;
};
struct nixlMetaDesc {
  std::uintptr_t addr;
  std::size_t len;
  std::uint64_t devId;
  nixlBackendMD* metadataP;
};
/// Only read here: NIXL implements its virtual functions.
struct nixl_meta_dlist_t {
  [[nodiscard]] nixl_mem_t getType() const { return type; }
  [[nodiscard]] int descCount() const { return static_cast<int>(entries.size()); }
  const nixlMetaDesc& operator[](int index) const {
    return entries[static_cast<std::size_t>(index)];
  }

  const void* virtual_table;
  nixl_mem_t type;
  std::vector<nixlMetaDesc> entries;
};
static_assert(sizeof(nixlMetaDesc) == 32 && offsetof(nixl_meta_dlist_t, entries) == 16);
struct Unused;
using nixl_opt_b_args_t = Unused;

class nixlBackendEngine {
 public:
  explicit nixlBackendEngine(const nixlBackendInitParams* parameters)
      : type_(parameters->type),
        parameters_(*parameters->customParams),
        local_agent_(parameters->localAgent),
        has_telemetry_(parameters->enableTelemetry_) {}
  nixlBackendEngine(const nixlBackendEngine&) = delete;
  nixlBackendEngine& operator=(const nixlBackendEngine&) = delete;

  // In the order of the vtable.
  virtual ~nixlBackendEngine() = default;
  virtual bool supportsRemote() const = 0;
  virtual bool supportsLocal() const = 0;
  virtual bool supportsNotif() const = 0;
  virtual nixl_mem_list_t getSupportedMems() const = 0;
  virtual nixl_status_t registerMem(const nixlBlobDesc& memory, const nixl_mem_t& kind,
                                    nixlBackendMD*& made) = 0;
  virtual nixl_status_t deregisterMem(nixlBackendMD* metadata) = 0;
  virtual nixl_status_t connect(const std::string& agent) = 0;
  virtual nixl_status_t disconnect(const std::string& agent) = 0;
  virtual nixl_status_t unloadMD(nixlBackendMD* metadata) = 0;
  virtual nixl_status_t prepXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                                 const nixl_meta_dlist_t& remote, const std::string& agent,
                                 nixlBackendReqH*& handle,
                                 const nixl_opt_b_args_t* options) const = 0;
  virtual nixl_status_t postXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                                 const nixl_meta_dlist_t& remote, const std::string& agent,
                                 nixlBackendReqH*& handle,
                                 const nixl_opt_b_args_t* options) const = 0;
  virtual nixl_status_t checkXfer(nixlBackendReqH* handle) const = 0;
  virtual nixl_status_t releaseReqH(nixlBackendReqH* handle) const = 0;
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
  virtual nixl_status_t loadLocalMD(nixlBackendMD* registered, nixlBackendMD*& target) = 0;
  virtual nixl_status_t notifications(std::vector<std::pair<std::string, std::string>>&) {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t notify(const std::string&, const std::string&) const {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t query(const Unused&, std::vector<std::optional<nixl_b_params_t>>&) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  virtual nixl_status_t estimate(const nixl_xfer_op_t&, const nixl_meta_dlist_t&,
                                 const nixl_meta_dlist_t&, const std::string&,
                                 nixlBackendReqH* const&, std::chrono::microseconds&,
                                 std::chrono::microseconds&, int&, const Unused*) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }

 private:
  // NIXL reads these.
  std::string type_;
  nixl_b_params_t parameters_;
  std::vector<std::byte> telemetry_events_;
  std::mutex telemetry_mutex_;
  [[maybe_unused]] bool has_failed_ = false;
  const std::string local_agent_;
  [[maybe_unused]] const bool has_telemetry_;
};
static_assert(sizeof(nixlBackendEngine) == 0xd0);

struct nixlBackendPlugin {
  int api_version;
  nixlBackendEngine* (*create_engine)(const nixlBackendInitParams* parameters);
  void (*destroy_engine)(nixlBackendEngine* engine);
  const char* (*get_plugin_name)();
  const char* (*get_plugin_version)();
  nixl_b_params_t (*get_backend_options)();
  nixl_mem_list_t (*get_backend_mems)();
};
