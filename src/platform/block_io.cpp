// SPDX-License-Identifier: Apache-2.0
#include "headrace/platform/block_io.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "headrace/base/mutex.hpp"
#include "headrace/platform/descriptor.hpp"
#include "headrace/platform/memory.hpp"
#include "headrace/platform/process.hpp"
#include "headrace/platform/thread.hpp"

namespace headrace::platform {
namespace {

constexpr std::size_t kThreadsMax = 16;

/// What is left of a request, from an aligned place.
struct Rest {
  std::uint64_t offset = 0;
  std::span<std::byte> bytes;
};

Rest rest_of(const BlockRequest& request) {
  const std::size_t done = request.bytes_done / kBlockIoAlignment * kBlockIoAlignment;
  return {.offset = request.offset + done, .bytes = request.bytes.subspan(done)};
}

/// Notes what the kernel returned for the rest. True if the request has ended.
bool take_answer(BlockRequest& request, std::int64_t answer) {
  if (answer == -EINTR || answer == -EAGAIN) return false;
  if (answer < 0) {
    request.os_errno = static_cast<int>(-answer);
    return true;
  }
  if (request.action == BlockRequest::Action::sync) return true;
  const std::size_t before = request.bytes_done / kBlockIoAlignment * kBlockIoAlignment;
  request.bytes_done = before + static_cast<std::size_t>(answer);
  if (request.bytes_done >= request.bytes.size()) return true;
  if (request.bytes_done >= before + kBlockIoAlignment) return false;
  request.os_errno = request.action == BlockRequest::Action::read ? ENODATA : EIO;
  return true;
}

/// Sets O_DIRECT. The errno if the file cannot be read with it.
int make_direct(int descriptor) {
  if (::fcntl(descriptor, F_SETFL, O_DIRECT) != 0) return errno;
  const Result<std::span<std::byte>> page = allocate_pages(kBlockIoAlignment, std::nullopt);
  if (!page) return ENOMEM;
  const int refused = ::pread(descriptor, page->data(), page->size(), 0) < 0 ? errno : 0;
  free_pages(*page);
  return refused;
}

/// Why something is not available, for a person.
std::string because(const char* what, int os_errno) {
  return fmt::format("because {} is not available{}", what,
                     os_errno > 0 ? " (" + std::generic_category().message(os_errno) + ")" : "");
}

}  // namespace

struct BlockIo::State {
  explicit State(int descriptor) : file(descriptor) {}

  const Descriptor file;
  Atomic<std::uint32_t> forked{0};
  const ForkGuard guard{file.get(), forked, 1};
  Options options;
  std::string note;
  std::optional<EventDescriptor> wake;  ///< Of the thread of the ring.

  Mutex mutex;
  Condition changed;
  std::deque<BlockRequest*> reads HEADRACE_GUARDED_BY(mutex);
  std::deque<BlockRequest*> writes HEADRACE_GUARDED_BY(mutex);
  bool sleeps HEADRACE_GUARDED_BY(mutex) = false;
  bool ending HEADRACE_GUARDED_BY(mutex) = false;
  std::size_t taken HEADRACE_GUARDED_BY(mutex) = 0;    ///< Requests that threads have.
  std::size_t calling HEADRACE_GUARDED_BY(mutex) = 0;  ///< Calls of `ended`.

  [[nodiscard]] BlockRequest* next() HEADRACE_REQUIRES(mutex) {
    std::deque<BlockRequest*>& from = reads.empty() ? writes : reads;
    if (from.empty()) return nullptr;
    BlockRequest* const first = from.front();
    from.pop_front();
    ++taken;
    return first;
  }
  /// False if BlockIo is ending.
  bool report(std::span<BlockRequest* const> ended) {
    {
      const Lock lock(mutex);
      taken -= ended.size();
      if (ending) return false;
      ++calling;
    }
    options.ended(options.context, ended);
    const Lock lock(mutex);
    --calling;
    changed.notify_all();
    return !ending;
  }
  /// Before a request is reported.
  void check_file(BlockRequest& request) const {
    if (request.action == BlockRequest::Action::read || request.os_errno != 0) return;
    struct statx status{};
    // What the kernel knows of the file: no request to its server.
    if (::statx(file.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_NLINK | STATX_SIZE,
                &status) != 0) {
      return;
    }
    if (status.stx_size < options.byte_count) request.os_errno = ENODATA;
    if (status.stx_nlink == 0) request.os_errno = ENOENT;
  }
  /// A thread of the pool.
  void work() {
    name_this_thread("hr-file");
    while (true) {
      BlockRequest* request = nullptr;
      {
        const Lock lock(mutex);
        while (!ending && (request = next()) == nullptr) changed.wait(mutex);
        if (ending) return;
      }
      std::int64_t answer = 0;
      do {
        const Rest rest = rest_of(*request);
        const auto offset = static_cast<off_t>(rest.offset);
        if (request->action == BlockRequest::Action::sync) {
          answer = ::fdatasync(file.get());
        } else if (request->action == BlockRequest::Action::read) {
          answer = ::pread(file.get(), rest.bytes.data(), rest.bytes.size(), offset);
        } else {
          answer = ::pwrite(file.get(), rest.bytes.data(), rest.bytes.size(), offset);
        }
        if (answer < 0) answer = -errno;
      } while (!take_answer(*request, answer));
      check_file(*request);
      if (!report({&request, 1})) return;
    }
  }

  // Reads that callers submit themselves. The thread that waits for one is the only one that looks
  // at this ring; without one its completions wake the thread of the other ring.
  Mutex own_mutex;
  std::size_t own_in_flight HEADRACE_GUARDED_BY(own_mutex) = 0;
  bool has_own_ring HEADRACE_GUARDED_BY(own_mutex) = false;
  bool is_awaited HEADRACE_GUARDED_BY(own_mutex) = false;

  /// What could not be read without waiting goes to the other ring.
  void take_own(std::vector<BlockRequest*>& ended) HEADRACE_REQUIRES(own_mutex) {
    if (own_in_flight == 0) return;
    submit_own();
    for (io_uring_cqe* entry = nullptr; ::io_uring_peek_cqe(&own_ring, &entry) == 0;) {
      auto* const request = static_cast<BlockRequest*>(::io_uring_cqe_get_data(entry));
      const std::int64_t answer = entry->res;
      ::io_uring_cqe_seen(&own_ring, entry);
      --own_in_flight;
      if (answer == -EOPNOTSUPP) has_own_ring = false;
      // Cancelled: the thread that submitted it has ended.
      const bool is_refused = answer == -EOPNOTSUPP || answer == -ECANCELED;
      if (take_answer(*request, is_refused ? -EAGAIN : answer)) {
        ended.push_back(request);
        continue;
      }
      const Lock lock(mutex);
      --taken;
      reads.push_back(request);
      wake->signal();
    }
  }
  void submit_own() HEADRACE_REQUIRES(own_mutex) {
    // If the kernel has no memory, the thread of the other ring tries again.
    if (::io_uring_submit(&own_ring) < 0) wake->signal();
  }
  /// The errno if the kernel refuses it.
  int make_ring() {
    const int made = ::io_uring_queue_init(static_cast<unsigned>(options.depth + 1), &ring, 0);
    if (made != 0) return -made;
    io_uring_probe* const probe = ::io_uring_get_probe_ring(&ring);
    const bool has_all = probe != nullptr &&
                         ::io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                         ::io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0 &&
                         ::io_uring_opcode_supported(probe, IORING_OP_FSYNC) != 0;
    if (probe != nullptr) ::io_uring_free_probe(probe);
    if (!has_all) ::io_uring_queue_exit(&ring);
    has_ring = has_all;
    const Lock lock(own_mutex);
    has_own_ring = has_all && (ring.features & IORING_FEAT_EXT_ARG) != 0 &&
                   ::io_uring_queue_init(static_cast<unsigned>(options.depth), &own_ring, 0) == 0 &&
                   ::io_uring_register_eventfd(&own_ring, wake->descriptor()) == 0;
    return has_all ? 0 : ENOSYS;
  }
  io_uring_sqe* prepare(io_uring& to, BlockRequest& request) {
    io_uring_sqe* const entry = ::io_uring_get_sqe(&to);
    const Rest rest = rest_of(request);
    const auto length = static_cast<unsigned>(rest.bytes.size());
    switch (request.action) {
      case BlockRequest::Action::read:
        ::io_uring_prep_read(entry, file.get(), rest.bytes.data(), length, rest.offset);
        break;
      case BlockRequest::Action::write:
        ::io_uring_prep_write(entry, file.get(), rest.bytes.data(), length, rest.offset);
        break;
      case BlockRequest::Action::sync:
        ::io_uring_prep_fsync(entry, file.get(), IORING_FSYNC_DATASYNC);
        break;
    }
    ::io_uring_sqe_set_data(entry, &request);
    return entry;
  }
  void listen() {
    io_uring_sqe* const entry = ::io_uring_get_sqe(&ring);
    // Not a read, which fails at once on a descriptor that does not block.
    ::io_uring_prep_poll_add(entry, wake->descriptor(), POLLIN);
    ::io_uring_sqe_set_data(entry, nullptr);
  }
  /// The thread of the ring.
  void serve() {
    name_this_thread("hr-file");
    std::size_t in_flight = 0;
    std::vector<BlockRequest*> ended;
    bool listens = false;
    eventfd_t count = 0;
    while (true) {
      if (!listens) listen();
      listens = true;
      {
        const Lock lock(mutex);
        if (ending) break;
        while (in_flight < options.depth) {
          BlockRequest* const request = next();
          if (request == nullptr) break;
          prepare(ring, *request);
          ++in_flight;
        }
        sleeps = true;
      }
      ::io_uring_submit_and_wait(&ring, 1);
      {
        const Lock lock(mutex);
        sleeps = false;
      }
      io_uring_cqe* entry = nullptr;
      while (::io_uring_peek_cqe(&ring, &entry) == 0) {
        auto* const request = static_cast<BlockRequest*>(::io_uring_cqe_get_data(entry));
        const std::int64_t answer = entry->res;
        ::io_uring_cqe_seen(&ring, entry);
        if (request == nullptr) {
          listens = false;
          static_cast<void>(::eventfd_read(wake->descriptor(), &count));
          const Lock lock(own_mutex);
          if (!is_awaited) take_own(ended);
        } else if (take_answer(*request, answer)) {
          check_file(*request);
          ended.push_back(request);
          --in_flight;
        } else {
          prepare(ring, *request);
        }
      }
      if (!ended.empty() && !report(ended)) break;
      ended.clear();
    }
    // The kernel may still have requests: the ring, as their memory, stays.
    if (in_flight == 0) ::io_uring_queue_exit(&ring);
    const Lock lock(own_mutex);
    has_own_ring = false;
    if (own_ring.ring_fd > 0 && own_in_flight == 0) ::io_uring_queue_exit(&own_ring);
  }

  io_uring ring{};
  io_uring own_ring{};
  bool has_ring = false;
};

BlockIo::BlockIo(std::shared_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<BlockIo>> BlockIo::make(const SharedFile& file, const Options& options) {
  const std::string tried = fmt::format("read and write '{}'", file.path());
  const int opened = ::fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0);
  if (opened < 0) return file_failure(errno, tried);
  auto state = std::make_shared<State>(opened);
  const int direct_errno = options.direct ? make_direct(opened) : -1;
  const bool is_direct = direct_errno == 0;
  // Also without O_NONBLOCK, with which io_uring fails where it would wait.
  if (!is_direct && ::fcntl(opened, F_SETFL, 0) != 0) return file_failure(errno, tried);
  state->options = options;
  if (options.ring) {
    HEADRACE_TAKE_WITHIN(tried, wake, EventDescriptor::make());
    state->wake.emplace(std::move(*wake));
  }
  const int ring_errno = options.ring ? state->make_ring() : -1;
  const bool has_ring = ring_errno == 0;
  state->note =
      (has_ring ? "io_uring" : "a pool of threads, " + because("io_uring", ring_errno)) + ", " +
      (is_direct ? "O_DIRECT" : "through the page cache, " + because("O_DIRECT", direct_errno));
  std::unique_ptr<BlockIo> made(new BlockIo(state));
  const std::size_t count = has_ring ? 1 : std::min(options.depth, kThreadsMax);
  for (std::size_t i = 0; i < count; ++i) {
    Result<std::thread> thread =
        start_thread(tried, has_ring ? &State::serve : &State::work, state);
    if (!thread) return fail(std::move(thread.error()));
    made->threads_.push_back(std::move(*thread));
  }
  return made;
}

BlockIo::~BlockIo() {
  State& state = *state_;
  bool is_idle = false;
  {
    const Lock lock(state.mutex);
    state.ending = true;
    state.changed.notify_all();
    if (state.wake) state.wake->signal();
    while (state.calling != 0) state.changed.wait(state.mutex);
    is_idle = state.taken == 0;
  }
  for (std::thread& thread : threads_) {
    // One may wait for a device that never answers.
    if (is_idle) {
      thread.join();
    } else {
      thread.detach();
    }
  }
}

void BlockIo::submit(std::span<BlockRequest* const> requests) {
  State& state = *state_;
  const Lock lock(state.mutex);
  for (BlockRequest* const request : requests) {
    request->os_errno = 0;
    request->bytes_done = 0;
    (request->action == BlockRequest::Action::read ? state.reads : state.writes).push_back(request);
  }
  if (!state.has_ring) return state.changed.notify_all();
  if (!state.sleeps) return;
  state.sleeps = false;
  state.wake->signal();
}

bool BlockIo::try_read(BlockRequest& request) {
  State& state = *state_;
  const Lock own_lock(state.own_mutex);
  if (!state.has_own_ring || state.own_in_flight == state.options.depth) return false;
  {
    const Lock lock(state.mutex);
    ++state.taken;
  }
  request.os_errno = 0;
  request.bytes_done = 0;
  // Else the kernel may let a thread wait for it, for which the calling one waits when it ends.
  state.prepare(state.own_ring, request)->rw_flags = RWF_NOWAIT;
  ++state.own_in_flight;
  state.submit_own();
  return true;
}

bool BlockIo::wait_for_reads(State& state, std::chrono::nanoseconds time_max) {
  {
    const Lock lock(state.own_mutex);
    if (state.own_in_flight == 0 || std::exchange(state.is_awaited, true)) return false;
    ::io_uring_cq_eventfd_toggle(&state.own_ring, false);
  }
  __kernel_timespec limit{.tv_sec = time_max / std::chrono::seconds(1),
                          .tv_nsec = (time_max % std::chrono::seconds(1)).count()};
  io_uring_cqe* entry = nullptr;
  ::io_uring_wait_cqe_timeout(&state.own_ring, &entry, &limit);
  std::vector<BlockRequest*> ended;
  {
    const Lock lock(state.own_mutex);
    state.take_own(ended);
    state.is_awaited = false;
    ::io_uring_cq_eventfd_toggle(&state.own_ring, true);
    // Also what ended just before notifications were on again.
    if (state.own_in_flight != 0) state.wake->signal();
  }
  if (!ended.empty()) state.report(ended);
  return true;
}

const std::string& BlockIo::note() const {
  return state_->note;
}

}  // namespace headrace::platform
