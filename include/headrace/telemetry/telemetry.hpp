// SPDX-License-Identifier: Apache-2.0
// Statistics of this process for other processes: a thread copies them into a file in shared memory
// several times a second, and `headrace top` reads the files of all processes. Nothing is published
// unless start() is called or the environment has HEADRACE_TELEMETRY=1. Engines and caches pay
// nothing for it: they keep these statistics anyway.
//
// The file: <directory>/headrace-telemetry.<process>.<random>, mode 0600. Native byte order.
//
//   offset  bytes  what
//        0      8  "HDRTELE1"
//        8      4  version of the layout: 1
//       12      4  bytes of a row
//       16      8  maximum number of rows
//       24      8  process id
//       32      8  start of publishing, nanoseconds since 1970
//       40      8  nanoseconds between two publications
//       48     64  name of the program, zero-terminated
//      128      8  sequence: odd while rows are written; half of it counts publications
//      136      8  time of the last publication, nanoseconds since 1970
//      144      8  rows in use
//      152      8  rows left out for lack of room
//      192   rows  each: kind 16 bytes, name 64, number of values 8, then values: name 32, number 8
//
// A reader reads the sequence, copies the rows, and reads the sequence again; if it was odd or has
// changed, the reader retries (a seqlock). The publisher holds a lock on the file (fcntl,
// F_OFD_SETLK), which the kernel releases when the process ends: a file without the lock is stale.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/error.hpp"
#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"

namespace headrace::telemetry {

inline constexpr std::size_t kRowsMax = 128;
inline constexpr std::size_t kValuesMax = 32;
/// Directory of the files.
inline constexpr const char* kDirectory = "/dev/shm";
inline constexpr std::chrono::milliseconds kInterval{200};

struct Value {
  std::string name;  ///< At most 31 characters; ends with the unit: "waited_ns".
  std::uint64_t value = 0;
};

/// Statistics of one engine, device or cache.
struct Row {
  std::string kind;  ///< "engine", "device" or "cache"; at most 15 characters.
  std::string name;  ///< Truncated to 63 characters.
  std::vector<Value> values;
};

/// The last publication of one process.
struct Process {
  std::uint64_t number = 0;
  std::string program;
  std::chrono::nanoseconds began{};    ///< Since 1970.
  std::chrono::nanoseconds written{};  ///< Since 1970.
  std::chrono::nanoseconds interval{};
  std::uint64_t publications = 0;
  std::uint64_t rows_left_out = 0;
  std::vector<Row> rows;
};

/// A file that could not be read, and why.
struct Unreadable {
  std::string path;
  Error error;
};

struct Everything {
  std::vector<Process> processes;  ///< Running processes, by number.
  std::vector<Unreadable> unreadable;
};

/// Publishes the statistics of this process from now on, until stop() or the end of the process.
/// Idempotent: the interval of the first call holds. A child of fork() publishes nothing until it
/// calls this.
///
/// Threading: any thread.
/// Fails: invalid_argument for an interval below a millisecond; permission_denied,
///        capacity_exceeded, io_failed for the file.
[[nodiscard]] HEADRACE_API Result<void> start(std::chrono::nanoseconds interval = kInterval,
                                              const std::string& directory = kDirectory);
/// Stops publishing and removes the file. Also called at exit().
HEADRACE_API void stop();

/// Publications of all processes of this user; for root, of all users. Skips files left by dead
/// processes.
///
/// Fails: not_found, permission_denied, io_failed for the directory.
[[nodiscard]] HEADRACE_API Result<Everything> read_all(const std::string& directory = kDirectory);

namespace detail {
struct Registered;
}  // namespace detail

/// Registers a source of statistics. Made by engines and caches.
///
/// Threading: immutable. The publisher's thread calls `read`; never after the destructor has
/// returned.
class HEADRACE_API Source {
 public:
  /// Rows of this source. `number` counts the sources of its kind in this process, from 0.
  using Read = std::function<std::vector<Row>(std::uint64_t number)>;

  Source(const std::string& kind, Read read);
  Source& operator=(Source&&) = delete;
  ~Source();

 private:
  std::shared_ptr<detail::Registered> registered_;
};

}  // namespace headrace::telemetry
