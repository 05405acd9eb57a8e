// SPDX-License-Identifier: Apache-2.0
#define FUSE_USE_VERSION 312
#include "launch/emulator/file_system.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fuse.h>
#include <fuse_log.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstring>
#include <ctime>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/base/atomic.hpp"
#include "headrace/base/mutex.hpp"
#include "launch/emulator/driver.hpp"
#include "launch/emulator/namespace.hpp"
#include "launch/emulator/process.hpp"

namespace headrace::emu {
namespace {

constexpr off_t kPageBytes = 4096;
/// Limit of concurrent requests: write() blocks until its descriptor is taken.
constexpr unsigned kThreadMax = 64;
/// After this long, write() fails with EAGAIN. The kernel lets no other write() to the WQ pass
/// meanwhile, and nothing can kill it.
constexpr std::chrono::seconds kWriteWaitMax{1};
constexpr std::chrono::seconds kErrorWaitMax{60};

/// Who may open a portal.
struct Access {
  mode_t permissions = 0;
  uid_t user = ::geteuid();
  gid_t group = ::getegid();
};

/// State of an open file.
struct OpenFile {
  const Node* node;
  std::int32_t process_id;
  fuse_pollhandle* poll = nullptr;  ///< Of a waiting poll(); guarded by Files.
};

class Files {
 public:
  Files(const Served& served, Reaper& reaper) : served_(served), reaper_(reaper) {}
  [[nodiscard]] Access access(const Node& node);
  /// Changes the access to a portal. The registers follow: their file has the last owner and group,
  /// and the permissions of all portals together.
  template <typename Change>
  int change_access(const char* path, Change change);
  Result<void> start(OwnedFile file);
  [[nodiscard]] const Served& served() const { return served_; }
  [[nodiscard]] Reaper& reaper() const { return reaper_; }
  [[nodiscard]] const Node* find(const char* path) const { return served_.tree.find(path); }
  int append_trace(std::string_view lines);
  [[nodiscard]] const Atomic<int>& trace_error() const { return trace_error_; }
  /// Stores the handle of a waiting poll(), and wakes it when the device records an error.
  void keep(fuse_pollhandle* handle, OpenFile& file);
  void forget(OpenFile& file);

 private:
  /// One thread for each device with polled portals, until its first error: errors persist.
  void wake_at_error(DeviceId device);

  fuse* made_ = nullptr;  ///< Never destroyed.
  Mutex access_mutex_;
  /// Of portals that were changed.
  std::map<const Node*, Access> accesses_ HEADRACE_GUARDED_BY(access_mutex_);
  const Served served_;
  Reaper& reaper_;
  Mutex trace_mutex_;  ///< Keeps lines whole.
  Atomic<int> trace_error_;
  Mutex poll_mutex_;
  std::vector<OpenFile*> polled_ HEADRACE_GUARDED_BY(poll_mutex_);
  std::array<bool, kDeviceMax> is_watched_ HEADRACE_GUARDED_BY(poll_mutex_){};
};

Files& files() {
  return *static_cast<Files*>(fuse_get_context()->private_data);
}
OpenFile& opened(const fuse_file_info* info) {
  return *reinterpret_cast<OpenFile*>(info->fh);
}

void fill(const Node& node, struct stat& status) {
  status = {};
  status.st_ino = node.number;
  status.st_uid = ::geteuid();
  status.st_gid = ::getegid();
  status.st_nlink = 1;
  status.st_blksize = kPageBytes;
  static const std::time_t started = std::time(nullptr);
  status.st_atime = status.st_mtime = status.st_ctime = started;
  switch (node.kind) {
    case NodeKind::directory:
      status.st_mode = S_IFDIR | node.permissions;
      status.st_nlink = 2;
      break;
    case NodeKind::link:
      status.st_mode = S_IFLNK | node.permissions;
      status.st_size = static_cast<off_t>(node.target.size());
      break;
    case NodeKind::portal: {
      const Access access = files().access(node);
      status.st_ino = kPortalInode + node.device.value() * kQueueMax + node.queue.value();
      status.st_mode = S_IFREG | access.permissions;
      status.st_uid = access.user;
      status.st_gid = access.group;
      status.st_size = kPageBytes;
      break;
    }
    case NodeKind::attribute:
      status.st_mode = S_IFREG | node.permissions;
      status.st_size = kPageBytes;
      break;
    case NodeKind::binary:
    case NodeKind::trace:
      status.st_mode = S_IFREG | node.permissions;
      status.st_size = node.kind == NodeKind::binary ? kPageBytes : 0;
      break;
  }
}

int get_attributes(const char* path, struct stat* status, fuse_file_info* info) {
  const Node* node = info != nullptr ? opened(info).node : files().find(path);
  if (node == nullptr) return -ENOENT;
  fill(*node, *status);
  return 0;
}

int read_link(const char* path, char* target, std::size_t room) {
  const Node* node = files().find(path);
  if (node == nullptr) return -ENOENT;
  if (node->kind != NodeKind::link || room == 0) return -EINVAL;
  const std::size_t count = node->target.copy(target, room - 1);
  target[count] = '\0';
  return 0;
}

int read_directory(const char* path, void* into, fuse_fill_dir_t add, off_t, fuse_file_info*,
                   fuse_readdir_flags) {
  const Tree& tree = files().served().tree;
  const std::string parent = path;
  add(into, ".", nullptr, 0, fuse_fill_dir_flags{});
  add(into, "..", nullptr, 0, fuse_fill_dir_flags{});
  for (const std::string& name : tree.list(parent)) {
    const Node* node = tree.find(parent == "/" ? "/" + name : parent + "/" + name);
    if (node == nullptr) continue;
    struct stat status{};
    fill(*node, status);
    // Directory entries have the driver's type; the trap shows the same type in attributes.
    if (node->kind == NodeKind::portal) status.st_mode ^= S_IFREG ^ S_IFCHR;
    add(into, name.c_str(), &status, 0, fuse_fill_dir_flags{});
  }
  return 0;
}

/// idxd_cdev_open: a disabled WQ has no device; a dedicated WQ serves one client.
int open_portal(const Served& served, const Node& node) {
  if (served.control.phase(node.device, node.queue) != QueuePhase::enabled) return -ENXIO;
  // A client may have just died.
  static_cast<void>(served.control.reap());
  return served.control.open_queue(node.device, node.queue) ? 0 : -EBUSY;
}

int open_file(const char* path, fuse_file_info* info) {
  const Served& served = files().served();
  const Node* node = files().find(path);
  if (node == nullptr) return -ENOENT;
  const int access = info->flags & O_ACCMODE;
  switch (node->kind) {
    case NodeKind::attribute:
      // Root passes any mode; sysfs still refuses files without a read or write function.
      if (access != O_WRONLY && !node->show) return -EACCES;
      if (access != O_RDONLY && !node->store) return -EACCES;
      info->direct_io = 1;
      break;
    case NodeKind::binary:
      // The kernel's file is root's; ours is the user's, who configures the devices.
      if (access != O_RDONLY && fuse_get_context()->uid != 0) return -EACCES;
      info->direct_io = 1;
      break;
    case NodeKind::trace:
      info->direct_io = 1;
      break;
    case NodeKind::portal:
      if (const int error = open_portal(served, *node); error != 0) return error;
      // Bypassing the page cache prevents shared writable mappings.
      info->direct_io = served.refuse_mmap ? 1 : 0;
      break;
    case NodeKind::directory:
    case NodeKind::link:
      return -EINVAL;
  }
  auto file =
      std::make_unique<OpenFile>(OpenFile{node, process_of_thread(fuse_get_context()->pid)});
  if (node->kind == NodeKind::portal) files().reaper().watch(file->process_id);
  info->fh = reinterpret_cast<std::uint64_t>(file.release());
  return 0;
}

int release_file(const char*, fuse_file_info* info) {
  const std::unique_ptr<OpenFile> file(&opened(info));
  if (file->node->kind == NodeKind::portal) {
    files().forget(*file);
    files().served().control.release_queue(file->node->device, file->node->queue);
    // Not necessarily a death: a dying process is still alive when its files are closed.
    files().reaper().look();
  }
  return 0;
}

int read_file(const char*, char* into, std::size_t count, off_t offset, fuse_file_info* info) {
  const Node& node = *opened(info).node;
  if (node.kind == NodeKind::portal) {
    // As a mapping would read; a device file has no content.
    if (offset >= kPageBytes) return 0;
    const std::size_t given = std::min(count, static_cast<std::size_t>(kPageBytes - offset));
    std::memset(into, 0, given);
    return static_cast<int>(given);
  }
  if (node.kind != NodeKind::binary && !node.show) return -EIO;
  const std::string text =
      node.kind == NodeKind::binary ? node.content(fuse_get_context()->uid == 0) : node.show();
  if (static_cast<std::size_t>(offset) >= text.size()) return 0;
  return static_cast<int>(text.copy(into, count, static_cast<std::size_t>(offset)));
}

/// idxd_cdev_write: whole descriptors, sequentially; those accepted before an error count.
int write_portal(const Served& served, const OpenFile& file, std::span<const char> bytes) {
  const std::int32_t thread = fuse_get_context()->pid;
  if (thread != file.process_id && process_of_thread(thread) != file.process_id) {
    return -EPERM;  // An inherited descriptor: the addresses belong to another process.
  }
  // The kernel reports any signal, once. Most are ignored; a fatal one waits for our reply.
  const auto is_over = [thread] { return fuse_interrupted() != 0 && is_ending(thread); };
  std::size_t written = 0;
  while (written + sizeof(dsa::Descriptor) <= bytes.size()) {
    dsa::Descriptor descriptor;
    std::memcpy(&descriptor, bytes.data() + written, sizeof descriptor);
    int error = 0;
    // A misaligned record would cause a device error that no client sees. [S] idxd_submit_user_...
    if (descriptor.opcode == DSA_OPCODE_BATCH ||
        descriptor.completion_addr % sizeof(dsa::CompletionRecord) != 0) {
      error = -EINVAL;
    } else {
      const auto done = served.control.submit_for(
          file.process_id, file.node->device, file.node->queue, descriptor, kWriteWaitMax, is_over);
      if (!done) {
        error = done.error().code == Code::invalid_argument    ? -EINVAL
                : done.error().code == Code::capacity_exceeded ? -EAGAIN
                                                               : -EIO;
      }
    }
    if (error != 0) return written != 0 ? static_cast<int>(written) : error;
    written += sizeof descriptor;
  }
  return static_cast<int>(written);
}

int write_file(const char*, const char* from, std::size_t count, off_t offset,
               fuse_file_info* info) {
  // Writeback of a mapped page (stores that no trap caught), not descriptors.
  if (info->writepage != 0) return static_cast<int>(count);
  const OpenFile& file = opened(info);
  switch (file.node->kind) {
    case NodeKind::portal:
      return write_portal(files().served(), file, {from, count});
    case NodeKind::trace:
      return files().append_trace({from, count});
    case NodeKind::attribute: {
      const int error = file.node->store ? file.node->store({from, count}) : EIO;
      return error == 0 ? static_cast<int>(count) : -error;
    }
    case NodeKind::binary:
      file.node->patch(static_cast<std::size_t>(offset), {from, count});
      return static_cast<int>(count);
    case NodeKind::directory:
    case NodeKind::link:
      break;
  }
  return -EINVAL;
}

/// idxd_cdev_poll: a WQ becomes readable, and waiting callers are woken, when its device has
/// recorded an error (SWERROR). Completions are never signalled.
int poll_file(const char*, fuse_file_info* info, fuse_pollhandle* handle, unsigned* events) {
  OpenFile& file = opened(info);
  const bool is_portal = file.node->kind == NodeKind::portal;
  if (handle != nullptr) {
    if (is_portal) {
      files().keep(handle, file);  // Before the check, so that no error is missed.
    } else {
      fuse_pollhandle_destroy(handle);
    }
  }
  *events = POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM;
  if (is_portal) {
    const bool error = files().served().control.wait_for_error(file.node->device, {});
    *events = error ? POLLIN | POLLRDNORM : 0;
  }
  return 0;
}

/// Kernel: only its owner or root may change a file, and only root its owner (default_permissions).
int change_mode(const char* path, mode_t mode, fuse_file_info*) {
  return files().change_access(path, [mode](Access& access) { access.permissions = mode & 0777; });
}

int change_owner(const char* path, uid_t user, gid_t group, fuse_file_info*) {
  return files().change_access(path, [user, group](Access& access) {
    if (user != static_cast<uid_t>(-1)) access.user = user;
    if (group != static_cast<gid_t>(-1)) access.group = group;
  });
}

int truncate_file(const char*, off_t, fuse_file_info*) {
  return 0;  // As in sysfs: a write replaces the whole value anyway.
}

void* start_serving(fuse_conn_info*, fuse_config* config) {
  config->use_ino = 1;
  // Names are fixed, and modes and owners change by the kernel, which has them in its cache.
  config->entry_timeout = config->attr_timeout = 1e6;
  return fuse_get_context()->private_data;
}

fuse_operations operations() {
  fuse_operations all{};
  all.getattr = get_attributes;
  all.readlink = read_link;
  all.readdir = read_directory;
  all.open = open_file;
  all.release = release_file;
  all.read = read_file;
  all.write = write_file;
  all.poll = poll_file;
  all.chmod = change_mode;
  all.chown = change_owner;
  all.truncate = truncate_file;
  all.init = start_serving;
  return all;
}

Access Files::access(const Node& node) {
  const Lock lock(access_mutex_);
  const auto found = accesses_.find(&node);
  return found != accesses_.end() ? found->second : Access{.permissions = node.permissions};
}

template <typename Change>
int Files::change_access(const char* path, Change change) {
  const Node* node = find(path);
  if (node == nullptr) return -ENOENT;
  if (node->kind != NodeKind::portal) return -EPERM;
  Access access = this->access(*node);
  change(access);
  const Lock lock(access_mutex_);
  accesses_.insert_or_assign(node, access);
  mode_t all = 0600;
  for (const auto& [portal, each] : accesses_) all |= each.permissions & 0666;
  // Closed first: a new owner must not get the former one's permissions.
  const bool followed = ::chmod(kRegistersPath, 0600) == 0 &&
                        ::chown(kRegistersPath, access.user, access.group) == 0 &&
                        ::chmod(kRegistersPath, all) == 0;
  return followed || errno == ENOENT ? 0 : -errno;
}

Result<void> Files::start(OwnedFile file) {
  if (served_.trace_file >= 0) {
    served_.control.set_options({.trace = [this](const TraceEvent& event) {
      // The command succeeds even if the disk is full.
      static_cast<void>(append_trace(to_json(event) + "\n"));
    }});
  }
  // Discards libfuse's messages about malformed requests.
  fuse_set_log_func([](fuse_log_level, const char*, std::va_list) {});
  std::string name = "headrace-emulator";
  char* words = name.data();
  fuse_args arguments = FUSE_ARGS_INIT(1, &words);
  const fuse_operations table = operations();
  made_ = fuse_new(&arguments, &table, sizeof table, this);
  fuse_opt_free_args(&arguments);
  // Already mounted: libfuse accepts the descriptor under this name.
  if (made_ == nullptr || fuse_mount(made_, fmt::format("/dev/fd/{}", file.get()).c_str()) != 0) {
    return fail(Code::out_of_memory, "serve the files of the emulated devices by FUSE",
                "libfuse is out of memory", "free some memory");
  }
  static_cast<void>(file.release());
  // Serves until the process ends: pending requests then get ENOTCONN.
  std::thread([made = made_] {
    fuse_loop_config* config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_max_threads(config, kThreadMax);
    fuse_loop_mt(made, config);
    fuse_loop_cfg_destroy(config);
  }).detach();
  return {};
}

void Files::keep(fuse_pollhandle* handle, OpenFile& file) {
  const Lock lock(poll_mutex_);
  if (file.poll != nullptr) {
    fuse_pollhandle_destroy(file.poll);
  } else {
    polled_.push_back(&file);
  }
  file.poll = handle;
  if (std::exchange(is_watched_[file.node->device.value()], true)) return;
  std::thread([this, device = file.node->device] { wake_at_error(device); }).detach();
}

void Files::forget(OpenFile& file) {
  const Lock lock(poll_mutex_);
  if (file.poll == nullptr) return;
  fuse_pollhandle_destroy(file.poll);
  std::erase(polled_, &file);
}

void Files::wake_at_error(DeviceId device) {
  while (!served_.control.wait_for_error(device, kErrorWaitMax)) {
  }
  const Lock lock(poll_mutex_);
  for (const OpenFile* file : polled_) {
    if (file->node->device == device) fuse_notify_poll(file->poll);
  }
}

int Files::append_trace(std::string_view lines) {
  const Lock lock(trace_mutex_);
  const int error =
      headrace::platform::write_all(served_.trace_file, std::as_bytes(std::span(lines)));
  if (error == 0) return static_cast<int>(lines.size());
  int none = 0;
  // relaxed: only a number.
  static_cast<void>(trace_error_.compare_exchange_relaxed(none, error));
  return -error;
}

}  // namespace

Result<const Atomic<int>*> serve_files(OwnedFile file, const Served& served, Reaper& reaper) {
  auto* const files = new Files(served, reaper);  // Its threads use it until this process ends.
  HEADRACE_TRY(files->start(std::move(file)));
  return &files->trace_error();
}

}  // namespace headrace::emu
