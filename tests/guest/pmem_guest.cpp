// SPDX-License-Identifier: Apache-2.0
// One end of a ring in a guest's persistent memory, in a program that is killed: prints what is
// guaranteed, and verifies it afterwards. tests/guest/test_power_loss.py runs it.
//
//   pmem_guest make    FILE
//   pmem_guest produce FILE NAME    "NAME durable N": the enqueue of entry N has returned
//   pmem_guest consume FILE NAME    "NAME acknowledged N": so has its acknowledgement
//   pmem_guest recover FILE NAME DURABLE ACKNOWLEDGED    exit code 1 if a guarantee was violated
//
// Uses the platform's granularity; anything but persistent memory is an error.
#include <fmt/format.h>
#include <sched.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "headrace/pmem/ring.hpp"

namespace headrace::test {
namespace {

using pmem::Enqueue;
using pmem::Next;

/// Entries per line of output: the console is slow.
constexpr std::uint64_t kEntriesPerLine = 8;

[[noreturn]] void die(const std::string& message) {
  fmt::print(stderr, "pmem_guest: {}\n", message);
  std::exit(1);
}

template <typename T>
T value_of(Result<T> result) {
  if (!result.has_value()) die(result.error().message());
  return std::move(*result);
}

/// Prints a line atomically and drains the console before it returns, so that output and state are
/// never more than one line apart, even if this machine dies.
void say(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) die("nobody reads this");
  if (::isatty(STDOUT_FILENO) == 1) ::tcdrain(STDOUT_FILENO);
}

std::vector<std::byte> bytes_of(std::uint64_t ordinal) {
  std::vector<std::byte> bytes(ordinal * 37 % 700);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(ordinal * 131 + i * 7 + 1);
  }
  return bytes;
}

/// Whether the kernel makes metadata of a fault at `path` durable before the fault returns
/// (MAP_SYNC: "sf" among the flags). A device does not need that.
bool is_synchronous(const std::string& path) {
  if (path.rfind("/dev/", 0) == 0) return true;
  std::ifstream maps("/proc/self/smaps");
  bool ours = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(path) != std::string::npos) ours = true;
    if (ours && line.rfind("VmFlags:", 0) == 0) return line.find(" sf") != std::string::npos;
  }
  return false;
}

/// An end of the ring, which must be on persistent memory.
template <typename End>
End attach(const std::string& path) {
  End end = value_of(End::attach(path));
  if (!end.is_persistent_memory()) die(path + " is " + end.note());
  if (!is_synchronous(path)) die(path + " is not mapped with MAP_SYNC");
  return end;
}

[[noreturn]] void produce(const std::string& path, const std::string& name) {
  auto producer = attach<pmem::Producer>(path);
  for (;;) {
    const std::uint64_t ordinal = producer.next_ordinal();
    switch (producer.enqueue(bytes_of(ordinal))) {
      case Enqueue::done:
        if (ordinal % kEntriesPerLine == 0) say(fmt::format("{} durable {}", name, ordinal));
        break;
      case Enqueue::full:
        ::sched_yield();
        break;
      default:
        die("an entry was not taken");
    }
  }
}

[[noreturn]] void consume(const std::string& path, const std::string& name) {
  auto consumer = attach<pmem::Consumer>(path);
  for (;;) {
    pmem::Entry entry;
    switch (consumer.next(entry)) {
      case Next::entry:
        if (!std::ranges::equal(entry.bytes, bytes_of(entry.ordinal))) die("not what was put in");
        consumer.acknowledge();
        if (entry.ordinal % kEntriesPerLine == 0) {
          say(fmt::format("{} acknowledged {}", name, entry.ordinal));
        }
        break;
      case Next::empty:
        ::sched_yield();
        break;
      default:
        die("an entry is damaged or lost");
    }
  }
}

/// `durable` and `acknowledged` are the last numbers printed, -1 if none.
void recover(const std::string& path, const std::string& name, std::int64_t durable,
             std::int64_t acknowledged) {
  auto consumer = attach<pmem::Consumer>(path);
  const pmem::RingState state = consumer.recovered();
  const auto first = static_cast<std::int64_t>(state.first_ordinal);
  const auto end = first + static_cast<std::int64_t>(state.entry_count);
  say(fmt::format("{} has entries {} to {}; said durable: {}, acknowledged: {}; {}", name, first,
                  end - 1, durable, acknowledged, consumer.note()));
  if (end <= durable) die("an entry is lost whose enqueue had returned");
  if (first <= acknowledged) die("an entry comes again that was acknowledged");
  // Lines on their way to the host are lost with the guest: how many entries were acknowledged
  // after the last one is not known.
  for (std::int64_t expected = first; expected < end; ++expected) {
    pmem::Entry entry;
    if (consumer.next(entry) != Next::entry) die("an entry cannot be read");
    if (static_cast<std::int64_t>(entry.ordinal) != expected) die("an entry is out of order");
    if (!std::ranges::equal(entry.bytes, bytes_of(entry.ordinal))) die("not what was put in");
  }
  pmem::Entry entry;
  if (consumer.next(entry) != Next::empty) die("there is an entry too many");
}

int main_of(const std::vector<std::string>& arguments) {
  if (arguments.size() == 3 && arguments[1] == "make") {
    const Result<void> made = pmem::make_ring(arguments[2]);
    if (!made.has_value()) die(made.error().message());
    return 0;
  }
  if (arguments.size() == 4 && arguments[1] == "produce") produce(arguments[2], arguments[3]);
  if (arguments.size() == 4 && arguments[1] == "consume") consume(arguments[2], arguments[3]);
  if (arguments.size() == 6 && arguments[1] == "recover") {
    recover(arguments[2], arguments[3], std::stoll(arguments[4]), std::stoll(arguments[5]));
    return 0;
  }
  die("usage: pmem_guest make|produce|consume|recover FILE ...");
}

}  // namespace
}  // namespace headrace::test

int main(int argc, char** argv) {
  return headrace::test::main_of({argv, argv + argc});
}
