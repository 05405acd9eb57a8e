// SPDX-License-Identifier: Apache-2.0
// A file system with faults on demand, for 'headrace bench store --faults' and the tests of stores:
// shows one folder at another, and fails requests as the text in its file '.faults' says.
//
//   headrace-fault-fs FOLDER MOUNT [cached]
//
// 'cached': files that are not opened with O_DIRECT use the page cache and can be mapped.
// Each line of '.faults' is a fault: 'OPERATION FAULT [FROM [TO]]' with OPERATION read, write or
// sync; FAULT an errno such as 5, 'short' or 'hang'; for bytes of files from FROM to before TO. A
// hanging request continues when '.faults' no longer has its fault.
#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Fault {
  std::string operation;
  std::string what;
  std::int64_t from = 0;
  std::int64_t to = INT64_MAX;
};

const char* const kControl = "/.faults";
std::string folder;
bool is_cached = false;
std::mutex mutex;
std::vector<Fault> faults;

std::string place(const char* path) {
  return folder + path;
}

int result_of(int result) {
  return result < 0 ? -errno : 0;
}

std::string fault_of(const char* operation, std::int64_t from, std::int64_t to) {
  const std::lock_guard lock(mutex);
  for (const Fault& each : faults) {
    if (each.operation == operation && from < each.to && to > each.from) return each.what;
  }
  return "";
}

/// The bytes to transfer, or a negative errno.
std::int64_t allowed(const char* operation, std::int64_t from, std::size_t byte_count) {
  while (true) {
    const std::string what =
        fault_of(operation, from, from + static_cast<std::int64_t>(byte_count));
    if (what.empty()) return static_cast<std::int64_t>(byte_count);
    if (what == "short") {
      return static_cast<std::int64_t>(
          std::max(byte_count / 2, std::min<std::size_t>(byte_count, 4096)));
    }
    if (what != "hang") return -std::stoll(what);
    ::usleep(2000);
  }
}

int set_faults(const char* text, std::size_t byte_count) {
  std::vector<Fault> asked;
  std::istringstream lines(std::string(text, byte_count));
  for (std::string line; std::getline(lines, line);) {
    Fault fault;
    std::istringstream words(line);
    if (!(words >> fault.operation >> fault.what)) continue;
    if (words >> fault.from) words >> fault.to;
    asked.push_back(fault);
  }
  const std::lock_guard lock(mutex);
  faults = asked;
  return static_cast<int>(byte_count);
}

bool is_control(const char* path) {
  return std::strcmp(path, kControl) == 0;
}

int get_attributes(const char* path, struct stat* status, fuse_file_info* /*file*/) {
  if (!is_control(path)) return result_of(::lstat(place(path).c_str(), status));
  *status = {};
  status->st_mode = S_IFREG | 0600;
  status->st_nlink = 1;
  return 0;
}

int create_file(const char* path, mode_t mode, fuse_file_info* file) {
  file->direct_io = is_control(path) || !is_cached || (file->flags & O_DIRECT) != 0 ? 1 : 0;
  if (is_control(path)) return 0;
  const int opened = ::open(place(path).c_str(), file->flags & ~(O_DIRECT | O_APPEND), mode);
  file->fh = static_cast<std::uint64_t>(opened);
  return result_of(opened);
}

int open_file(const char* path, fuse_file_info* file) {
  return create_file(path, 0, file);
}

int read_file(const char* path, char* target, std::size_t byte_count, off_t offset,
              fuse_file_info* file) {
  if (is_control(path)) return 0;
  std::int64_t count = allowed("read", offset, byte_count);
  if (count < 0) return static_cast<int>(count);
  // The page cache has no short reads: it would add zeros.
  if (is_cached && (file->flags & O_DIRECT) == 0) count = static_cast<std::int64_t>(byte_count);
  const ssize_t got =
      ::pread(static_cast<int>(file->fh), target, static_cast<std::size_t>(count), offset);
  return got < 0 ? -errno : static_cast<int>(got);
}

int write_file(const char* path, const char* source, std::size_t byte_count, off_t offset,
               fuse_file_info* file) {
  if (is_control(path)) return set_faults(source, byte_count);
  const std::int64_t count = allowed("write", offset, byte_count);
  if (count < 0) return static_cast<int>(count);
  const ssize_t put =
      ::pwrite(static_cast<int>(file->fh), source, static_cast<std::size_t>(count), offset);
  return put < 0 ? -errno : static_cast<int>(put);
}

int sync_file(const char* /*path*/, int /*data_only*/, fuse_file_info* file) {
  const std::int64_t count = allowed("sync", 0, 1);
  return count < 0 ? static_cast<int>(count) : result_of(::fdatasync(static_cast<int>(file->fh)));
}

int truncate_file(const char* path, off_t length, fuse_file_info* /*file*/) {
  return is_control(path) ? 0 : result_of(::truncate(place(path).c_str(), length));
}

int allocate(const char* /*path*/, int mode, off_t offset, off_t length, fuse_file_info* file) {
  return result_of(::fallocate(static_cast<int>(file->fh), mode, offset, length));
}

int release(const char* path, fuse_file_info* file) {
  return is_control(path) ? 0 : result_of(::close(static_cast<int>(file->fh)));
}

int remove_file(const char* path) {
  return result_of(::unlink(place(path).c_str()));
}
int move_file(const char* from, const char* to, unsigned /*flags*/) {
  return result_of(::rename(place(from).c_str(), place(to).c_str()));
}
int make_folder(const char* path, mode_t mode) {
  return result_of(::mkdir(place(path).c_str(), mode));
}
int list_folder(const char* path, void* list, fuse_fill_dir_t add, off_t /*from*/,
                fuse_file_info* /*file*/, fuse_readdir_flags /*flags*/) {
  DIR* const opened = ::opendir(place(path).c_str());
  if (opened == nullptr) return -errno;
  while (const dirent* const entry = ::readdir(opened)) {
    add(list, entry->d_name, nullptr, 0, fuse_fill_dir_flags{});
  }
  ::closedir(opened);
  return 0;
}
int link_file(const char* from, const char* to) {
  return result_of(::link(place(from).c_str(), place(to).c_str()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fputs("usage: headrace-fault-fs FOLDER MOUNT [cached]\n", stderr);
    return 2;
  }
  // Unmounts when the program that needs it was killed.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  folder = argv[1];
  is_cached = argc == 4;
  fuse_operations operations{};
  operations.getattr = get_attributes;
  operations.unlink = remove_file;
  operations.link = link_file;
  operations.rename = move_file;
  operations.mkdir = make_folder;
  operations.readdir = list_folder;
  operations.truncate = truncate_file;
  operations.open = open_file;
  operations.read = read_file;
  operations.write = write_file;
  operations.release = release;
  operations.fsync = sync_file;
  operations.create = create_file;
  operations.fallocate = allocate;
  char foreground[] = "-f";
  char* arguments[] = {argv[0], foreground, argv[2], nullptr};
  return ::fuse_main(3, arguments, &operations, nullptr);
}
