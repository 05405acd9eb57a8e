// SPDX-License-Identifier: Apache-2.0
// The back end HEADRACE through the vtables by which NIXL calls it.
//
//   nixl_test PLUGIN STAND_IN
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/backend_plugin.h"

namespace {

namespace fs = std::filesystem;

std::string plugin_path;    // NOLINT: of the command line.
std::string stand_in_path;  // NOLINT: of the command line.

struct Unload {
  void operator()(void* library) const { ::dlclose(library); }
};
using Library = std::unique_ptr<void, Unload>;

Library load(const std::string& path) {
  Library library(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) ADD_FAILURE() << ::dlerror();
  return library;
}

/// A temporary folder.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / "headrace-nixl-XXXXXX") {
    std::string name = path_.string();
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no folder";
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// The plug-in in a process with NIXL `version`.
class Loaded {
 public:
  explicit Loaded(const std::string& version) {
    const fs::path libraries = folder_.path() / ".nixl_cu12.mesonpy.libs";
    fs::create_directories(libraries);
    fs::create_directories(folder_.path() / ("nixl_cu12-" + version + ".dist-info"));
    fs::copy_file(stand_in_path, libraries / "libnixl.so");
    nixl_ = load(libraries / "libnixl.so");
    library_ = load(plugin_path);
  }
  /// Null if it refuses.
  [[nodiscard]] nixlBackendPlugin* plugin() const {
    const auto begin =
        reinterpret_cast<nixlBackendPlugin* (*)()>(::dlsym(library_.get(), "nixl_plugin_init"));
    return begin();
  }

 private:
  Folder folder_;
  Library nixl_;
  Library library_;
};

TEST(NixlPlugin, AnotherVersionOfNixlIsRefusedByName) {
  const Loaded loaded("1.5.0");
  testing::internal::CaptureStderr();
  EXPECT_EQ(loaded.plugin(), nullptr);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("it is built for version 1.5.1, and another is installed"), said.npos);
  EXPECT_NE(said.find("install nixl-cu12==1.5.1, or build it with that one's headers"), said.npos);
}

class Backend : public testing::Test {
 protected:
  void SetUp() override {
    plugin_ = loaded_.plugin();
    ASSERT_NE(plugin_, nullptr);
    EXPECT_EQ(plugin_->get_backend_mems(), (nixl_mem_list_t{DRAM_SEG, FILE_SEG}));
    const nixlBackendInitParams parameters{.localAgent = "self",
                                           .type = "HEADRACE",
                                           .customParams = &parameters_,
                                           .enableProgTh = false,
                                           .pthrDelay = 0,
                                           .syncMode = 0,
                                           .enableTelemetry_ = false};
    backend_ = plugin_->create_engine(&parameters);
    ASSERT_NE(backend_, nullptr);
    for (std::size_t i = 0; i < source_.size(); ++i) source_[i] = static_cast<char>(i * i >> 7U);
  }
  void TearDown() override {
    for (nixlBackendMD* const each : registered_) backend_->deregisterMem(each);
    if (backend_ != nullptr) plugin_->destroy_engine(backend_);
  }

  nixlBackendMD* add(nixl_mem_t kind, std::uintptr_t address, std::size_t byte_count,
                     std::uint64_t device = 0) {
    nixlBackendMD* made = nullptr;
    const nixl_status_t status = backend_->registerMem(
        {.addr = address, .len = byte_count, .devId = device, .metaInfo = ""}, kind, made);
    EXPECT_EQ(status, made == nullptr ? NIXL_ERR_INVALID_PARAM : NIXL_SUCCESS);
    if (made != nullptr) registered_.push_back(made);
    return made;
  }
  nixlBackendMD* add(const std::vector<char>& bytes) {
    return add(DRAM_SEG, reinterpret_cast<std::uintptr_t>(bytes.data()), bytes.size());
  }
  static nixl_meta_dlist_t memory(const std::vector<char>& bytes, nixlBackendMD* metadata) {
    return {nullptr,
            DRAM_SEG,
            {{reinterpret_cast<std::uintptr_t>(bytes.data()), bytes.size(), 0, metadata}}};
  }
  static nixl_meta_dlist_t file(std::uintptr_t offset, std::size_t byte_count,
                                nixlBackendMD* metadata) {
    return {nullptr, FILE_SEG, {{offset, byte_count, 0, metadata}}};
  }
  nixl_status_t run(nixl_xfer_op_t operation, const nixl_meta_dlist_t& local,
                    const nixl_meta_dlist_t& remote) {
    nixlBackendReqH* handle = nullptr;
    nixl_status_t status = backend_->prepXfer(operation, local, remote, "self", handle, nullptr);
    if (status != NIXL_SUCCESS) return status;
    status = backend_->postXfer(operation, local, remote, "self", handle, nullptr);
    while (status == NIXL_IN_PROG) status = backend_->checkXfer(handle);
    backend_->releaseReqH(handle);
    return status;
  }
  /// Returns the descriptor of an empty file.
  int open_file(int flags) {
    const int descriptor = ::open((folder_.path() / "file").c_str(), flags | O_CREAT, 0600);
    EXPECT_GE(descriptor, 0);
    return descriptor;
  }

  static constexpr std::size_t kBytes = std::size_t{8} << 20U;
  Folder folder_;
  nixl_b_params_t parameters_;
  Loaded loaded_{"1.5.1"};
  nixlBackendPlugin* plugin_ = nullptr;
  nixlBackendEngine* backend_ = nullptr;
  std::vector<nixlBackendMD*> registered_;
  std::vector<char> source_ = std::vector<char>(kBytes);
  std::vector<char> target_ = std::vector<char>(kBytes);
};

TEST_F(Backend, MemoryIsCopiedBothWays) {
  nixlBackendMD* const source = add(source_);
  nixlBackendMD* const target = add(target_);
  EXPECT_EQ(run(NIXL_WRITE, memory(source_, source), memory(target_, target)), NIXL_SUCCESS);
  EXPECT_EQ(source_, target_);
  std::ranges::fill(source_, 1);
  EXPECT_EQ(run(NIXL_READ, memory(source_, source), memory(target_, target)), NIXL_SUCCESS);
  EXPECT_EQ(source_, target_);
}

TEST_F(Backend, AFileGetsItsLengthAndKeepsWhatIsWritten) {
  const int descriptor = open_file(O_RDWR);
  const std::size_t offset = 5000;  // Not page-aligned.
  nixlBackendMD* const source = add(source_);
  nixlBackendMD* const stored =
      add(FILE_SEG, 0, offset + kBytes, static_cast<std::uint64_t>(descriptor));
  ASSERT_NE(stored, nullptr);
  EXPECT_EQ(fs::file_size(folder_.path() / "file"), offset + kBytes);
  EXPECT_EQ(run(NIXL_WRITE, memory(source_, source), file(offset, kBytes, stored)), NIXL_SUCCESS);
  EXPECT_EQ(::pread(descriptor, target_.data(), kBytes, offset), static_cast<ssize_t>(kBytes));
  EXPECT_EQ(source_, target_);

  const int read_only = ::open((folder_.path() / "file").c_str(), O_RDONLY);
  nixlBackendMD* const readable =
      add(FILE_SEG, offset, kBytes, static_cast<std::uint64_t>(read_only));
  ASSERT_NE(readable, nullptr);
  std::ranges::fill(target_, 0);
  nixlBackendMD* const target = add(target_);
  EXPECT_EQ(run(NIXL_READ, memory(target_, target), file(offset, kBytes, readable)), NIXL_SUCCESS);
  EXPECT_EQ(source_, target_);
  EXPECT_EQ(run(NIXL_WRITE, memory(source_, source), file(offset, kBytes, readable)),
            NIXL_ERR_INVALID_PARAM);
  ::close(read_only);
  ::close(descriptor);
}

TEST_F(Backend, WhatIsNotThereIsRefused) {
  nixlBackendMD* const source = add(source_);
  EXPECT_EQ(run(NIXL_WRITE, memory(source_, source), memory(target_, source)),
            NIXL_ERR_INVALID_PARAM);
  EXPECT_EQ(run(NIXL_WRITE, memory(source_, source), file(0, 1, source)), NIXL_ERR_MISMATCH);
  EXPECT_EQ(add(DRAM_SEG, 4096, 4096), nullptr);
  testing::internal::CaptureStderr();
  EXPECT_EQ(add(FILE_SEG, 0, 4096, 99999), nullptr);
  const int read_only = open_file(O_RDONLY);
  EXPECT_EQ(add(FILE_SEG, 0, 4096, static_cast<std::uint64_t>(read_only)), nullptr);
  ::close(read_only);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("not an open file descriptor"), said.npos);
  EXPECT_NE(said.find("reading only"), said.npos);
}

TEST_F(Backend, AFileThatLosesItsPagesFailsTheTransfer) {
  const int descriptor = open_file(O_RDWR);
  nixlBackendMD* const source = add(source_);
  nixlBackendMD* const stored = add(FILE_SEG, 0, kBytes, static_cast<std::uint64_t>(descriptor));
  ASSERT_NE(stored, nullptr);
  ASSERT_EQ(::ftruncate(descriptor, 0), 0);
  EXPECT_EQ(run(NIXL_WRITE, memory(source_, source), file(0, kBytes, stored)), NIXL_ERR_BACKEND);
  ::close(descriptor);
}

TEST_F(Backend, AReleaseInFlightStopsIt) {
  nixlBackendMD* const source = add(source_);
  nixlBackendMD* const target = add(target_);
  const nixl_meta_dlist_t from = memory(source_, source);
  const nixl_meta_dlist_t to = memory(target_, target);
  nixlBackendReqH* handle = nullptr;
  ASSERT_EQ(backend_->prepXfer(NIXL_WRITE, from, to, "self", handle, nullptr), NIXL_SUCCESS);
  // On a loaded machine the copy may have ended before the post returns.
  if (backend_->postXfer(NIXL_WRITE, from, to, "self", handle, nullptr) == NIXL_IN_PROG) {
    EXPECT_EQ(backend_->postXfer(NIXL_WRITE, from, to, "self", handle, nullptr),
              NIXL_ERR_REPOST_ACTIVE);
  }
  EXPECT_EQ(backend_->releaseReqH(handle), NIXL_SUCCESS);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 3) return 2;
  plugin_path = argv[1];
  stand_in_path = argv[2];
  return RUN_ALL_TESTS();
}
