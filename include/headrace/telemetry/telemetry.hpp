// SPDX-License-Identifier: Apache-2.0
// Statistics of this process for other processes: a thread copies them into a file of shared memory
// several times a second, and `headrace top` reads the files of all processes. Nothing is published
// unless start() is called or the environment has HEADRACE_TELEMETRY=1. What is measured pays
// nothing for it: engines and caches are asked for the statistics that they keep anyway.
//
// The file: <directory>/headrace-telemetry.<process>.<random>, mode 0600. Native byte order.
//
//   offset  bytes  what
//        0      8  "HDRTELE1"
//        8      4  version of the layout: 1
//       12      4  bytes of a row
//       16      8  rows at most
//       24      8  process
//       32      8  when it began to publish, nanoseconds since 1970
//       40      8  nanoseconds between two publications
//       48     64  name of the program, ends with 0
//      128      8  sequence: odd while rows are written; half of it counts publications
//      136      8  when the rows were written, nanoseconds since 1970
//      144      8  rows in use
//      152      8  rows that had no room
//      192   rows  each: kind 16 bytes, name 64, number of values 8, then values: name 32, number 8
//
// A reader takes the sequence, copies the rows, and takes the sequence again; if it was odd or has
// changed, it reads again. The publisher holds a lock on the file (fcntl, F_OFD_SETLK), which ends
// with the process however that ends: a file without the lock is left over and means nothing.
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
/// Where files are made and looked for.
inline constexpr const char* kDirectory = "/dev/shm";
inline constexpr std::chrono::milliseconds kInterval{200};

struct Value {
  std::string name;  ///< At most 31 characters; the unit stands last: "waited_ns".
  std::uint64_t value = 0;
};

/// What an engine, a device or a cache says of itself.
struct Row {
  std::string kind;  ///< "engine", "device" or "cache"; at most 15 characters.
  std::string name;  ///< At most 63 characters; a longer one is cut.
  std::vector<Value> values;
};

/// What one process has published last.
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
  std::vector<Process> processes;  ///< Those that live, by number.
  std::vector<Unreadable> unreadable;
};

/// Publishes the statistics of this process from now on, until it ends. Idempotent: the interval of
/// the first call holds. A child of fork() publishes nothing before it calls this.
///
/// Threading: any thread.
/// Fails: invalid_argument for an interval below a millisecond; permission_denied,
///        capacity_exceeded, io_failed for the file.
[[nodiscard]] HEADRACE_API Result<void> start(std::chrono::nanoseconds interval = kInterval,
                                              const std::string& directory = kDirectory);
/// Ends it and removes the file. Also done at exit().
HEADRACE_API void stop();

/// What all processes of this user publish; for root, of all users. Files that dead processes left
/// are passed over.
///
/// Fails: not_found, permission_denied, io_failed for the directory.
[[nodiscard]] HEADRACE_API Result<Everything> read_all(const std::string& directory = kDirectory);

namespace detail {
struct Registered;
}  // namespace detail

/// Something that has statistics. Made by engines and caches.
///
/// Threading: immutable. `read` is called by a thread of the publisher, not after the destructor
/// has begun to return.
class HEADRACE_API Source {
 public:
  /// Rows of this source. `number` counts those of its kind in this process, from 0.
  using Read = std::function<std::vector<Row>(std::uint64_t number)>;

  Source(const std::string& kind, Read read);
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  ~Source();

 private:
  std::shared_ptr<detail::Registered> registered_;
};

}  // namespace headrace::telemetry
