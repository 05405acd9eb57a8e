// SPDX-License-Identifier: Apache-2.0
// The publisher: the registered sources, and the thread that copies their statistics into the file.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include "headrace/base/mutex.hpp"
#include "headrace/platform/process.hpp"
#include "headrace/platform/shared_file.hpp"
#include "headrace/platform/thread.hpp"
#include "headrace/telemetry/trace.hpp"
#include "layout.hpp"

namespace headrace::telemetry {
namespace {

using detail::Head;
using detail::PackedRow;
using detail::Registered;
using detail::Table;

std::int64_t since_1970() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Removes files of dead processes. Does not check their locks: a new file is locked only after it
/// has got its name.
void remove_leftovers(const std::string& directory) {
  std::error_code ignored;
  for (const auto& each : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = each.path().filename().string();
    if (!name.starts_with(detail::kFilePrefix)) continue;
    const std::uint64_t process =
        std::strtoull(name.c_str() + detail::kFilePrefix.size(), nullptr, 10);
    if (process == 0 || std::filesystem::exists(fmt::format("/proc/{}", process), ignored)) {
      continue;
    }
    std::filesystem::remove(each.path(), ignored);  // Another user's stays.
  }
}

/// The file of this process.
///
/// Threading: confined to the thread that publishes.
/// Ownership: removes the file.
class File {
 public:
  static Result<std::unique_ptr<File>> make(const std::string& directory,
                                            std::chrono::nanoseconds interval) {
    remove_leftovers(directory);
    Head head;
    head.process = platform::process_id();
    head.began_ns = since_1970();
    head.interval_ns = interval.count();
    detail::put_text(head.program, detail::program_name());
    const std::string path = fmt::format("{}/{}{}.{:08x}", directory, detail::kFilePrefix,
                                         head.process, std::random_device()());
    const std::span<const std::byte> first = std::as_bytes(std::span(&head, 1));
    HEADRACE_TRY(platform::make_file(path, detail::kFileBytes, first, 0600));
    HEADRACE_TAKE(file, platform::SharedFile::open(path, true));
    HEADRACE_TRY(file->try_lock(detail::kLock));
    // Map from a second open file: a mapping keeps its open file alive, in children of fork() too,
    // and with it the locks.
    HEADRACE_TAKE(mapped, platform::SharedFile::open(path, true));
    HEADRACE_TAKE(map, platform::SharedMap::map(*mapped, detail::kFileBytes));
    return std::make_unique<File>(path, std::move(*file), std::move(*map));
  }

  File(std::string path, platform::SharedFile file, platform::SharedMap map)
      : path_(std::move(path)), file_(std::move(file)), map_(std::move(map)) {}
  File& operator=(File&&) = delete;
  ~File() {
    std::error_code ignored;
    // Not 0: truncated, or in a child of fork(), where the file is the parent's.
    if (fault_.load_relaxed() == 0) std::filesystem::remove(path_, ignored);
  }

  void write(const std::vector<Row>& rows) {
    Table& table = *reinterpret_cast<Table*>(map_.bytes().data() + detail::kTableOffset);
    const std::uint64_t sequence = table.sequence.load_relaxed();  // Only this thread writes it.
    table.sequence.store_relaxed(sequence + 1);  // The words that follow are released after it.
    const std::size_t count = std::min(rows.size(), kRowsMax);
    for (std::size_t i = 0; i < count; ++i) {
      const PackedRow packed = detail::pack(rows[i]);
      std::array<std::uint64_t, sizeof(PackedRow) / sizeof(std::uint64_t)> words{};
      std::memcpy(words.data(), &packed, sizeof(packed));
      detail::publish_words({reinterpret_cast<std::uint64_t*>(&table.rows[i]), words.size()},
                            words);
    }
    const std::array<std::uint64_t, 3> about{static_cast<std::uint64_t>(since_1970()), count,
                                             rows.size() - count};
    detail::publish_words({&table.written_ns, about.size()}, about);
    // edge: telemetry-sequence (release)
    table.sequence.store_release(sequence + 2);
  }

 private:
  std::string path_;
  platform::SharedFile file_;
  platform::SharedMap map_;
  Atomic<std::uint32_t> fault_{0};
  // The lock must end with the publishing process, not with its children.
  const platform::ForkGuard fork_guard_{file_.descriptor(), fault_, 1};
  // Truncating the file (only its user can) must not kill the process.
  const platform::FaultGuard fault_guard_{map_.bytes(), fault_, 1};
};

}  // namespace

/// A source, shared by its owner and the publisher.
struct detail::Registered {
  Source::Read read;
  std::uint64_t number = 0;
};

namespace {

/// Sources of this process and the thread that reads them. A child of fork() gets a new publisher:
/// it has no such thread, and the mutex may be held forever.
///
/// Threading: shared.
class Publisher {
 public:
  static Publisher& here() {
    static Atomic<Publisher*> current;
    // edge: telemetry-publisher (acquire)
    Publisher* seen = current.load_acquire();
    while (seen == nullptr || seen->fork_ != platform::fork_count()) {
      auto made = std::unique_ptr<Publisher>(new Publisher);
      // edge: telemetry-publisher (acq_rel)
      if (current.compare_exchange_acq_rel(seen, made.get())) seen = made.release();
    }
    return *seen;  // Never freed: static sources may be destroyed after it would be.
  }

  Result<void> start(std::chrono::nanoseconds interval, const std::string& directory) {
    const std::string tried = "publish statistics in " + directory;
    if (interval < std::chrono::milliseconds(1)) {
      return fail(Code::invalid_argument, tried, "the interval is shorter than a millisecond",
                  "give at least 1 ms");
    }
    const Lock held(control_);
    if (thread_.joinable()) return {};
    HEADRACE_TAKE_WITHIN(tried, file, File::make(directory, interval));
    {
      const Lock also(mutex_);
      stopping_ = false;
    }
    auto thread = platform::start_thread(
        tried, [this, interval, kept = std::shared_ptr<File>(std::move(*file))] {
          platform::name_this_thread("hr-telemetry");
          run(*kept, interval);
        });
    if (!thread) return fail(std::move(thread.error()));
    thread_ = std::move(*thread);
    static const int kRegistered = std::atexit([] { telemetry::stop(); });
    static_cast<void>(kRegistered);
    return {};
  }

  void stop() {
    const Lock held(control_);
    if (!thread_.joinable()) return;
    {
      const Lock also(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void add(const std::string& kind, const std::shared_ptr<Registered>& source) {
    start_if_asked();
    const Lock held(mutex_);
    source->number = counts_[kind]++;
    sources_.push_back(source);
  }

  /// Blocks while the thread reads the sources.
  void remove(const std::shared_ptr<Registered>& source) {
    const Lock held(mutex_);
    std::erase(sources_, source);
  }

 private:
  Publisher() { platform::watch_forks(); }

  void start_if_asked() {
    static const bool kAsked = platform::trusted_variable("HEADRACE_TELEMETRY") == "1";
    if (!kAsked || was_tried_.fetch_or_relaxed(1) != 0) return;  // Elects one caller.
    const Result<void> started = start(kInterval, kDirectory);
    if (started) return;
    fmt::print(stderr, "headrace: HEADRACE_TELEMETRY=1 has no effect: {}\n",
               started.error().message());
  }

  void run(File& file, std::chrono::nanoseconds interval) {
    std::vector<Row> rows;
    mutex_.lock();
    while (!stopping_) {
      rows.clear();
      for (const std::shared_ptr<Registered>& source : sources_) {
        for (Row& row : source->read(source->number)) rows.push_back(std::move(row));
      }
      file.write(rows);
      changed_.wait_for(mutex_, interval);
    }
    mutex_.unlock();
  }

  const std::uint32_t fork_ = platform::fork_count();
  Atomic<std::uint32_t> was_tried_{0};
  Mutex control_;  ///< Held while the thread is started or joined; taken before mutex_.
  std::thread thread_;
  Mutex mutex_;
  Condition changed_;
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::uint64_t> counts_ HEADRACE_GUARDED_BY(mutex_);  ///< By kind.
  std::vector<std::shared_ptr<Registered>> sources_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace

namespace {

/// Here, because a static library links this file into every program with an engine or a cache.
const bool kIsTracing = [] {
  const auto path = platform::trusted_variable("HEADRACE_TRACE");
  if (!path) return false;
  const Result<void> started = start_trace(*path);
  if (!started) {
    fmt::print(stderr, "headrace: HEADRACE_TRACE has no effect: {}\n", started.error().message());
  }
  return started.has_value();
}();

}  // namespace

Result<void> start(std::chrono::nanoseconds interval, const std::string& directory) {
  return Publisher::here().start(interval, directory);
}

void stop() {
  Publisher::here().stop();
}

Source::Source(const std::string& kind, Read read)
    : registered_(std::make_shared<detail::Registered>()) {
  registered_->read = std::move(read);
  Publisher::here().add(kind, registered_);
}

Source::~Source() {
  Publisher::here().remove(registered_);
}

}  // namespace headrace::telemetry
