// SPDX-License-Identifier: Apache-2.0
// Reads the files of other processes, without trusting them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "headrace/platform/shared_file.hpp"
#include "headrace/platform/wait.hpp"
#include "layout.hpp"

namespace headrace::telemetry {
namespace {

using detail::Head;
using detail::PackedRow;
using detail::Table;

constexpr int kTriesMax = 200;
constexpr std::chrono::microseconds kBetweenTries{500};

Result<Head> head_of(const platform::SharedFile& file, const std::string& tried) {
  Head head;
  HEADRACE_TAKE(got, file.read_at(0, std::as_writable_bytes(std::span(&head, 1))));
  if (*got != sizeof(head) || head.magic != detail::kMagic) {
    return fail(Code::corrupt_data, tried, "it is not a file of statistics", "remove it");
  }
  if (head.version != detail::kVersion) {
    return fail(
        Code::version_mismatch, tried,
        fmt::format("its layout is version {}, this is version {}", head.version, detail::kVersion),
        "use the 'headrace top' of the Headrace that wrote it");
  }
  if (head.row_bytes != sizeof(PackedRow) || head.rows_max != kRowsMax ||
      file.byte_count() != detail::kFileBytes) {
    return fail(Code::corrupt_data, tried, "its sizes contradict each other", "remove it");
  }
  return head;
}

/// Tries to copy the table once; returns false if it is being written.
bool copy_table(Table& table, Process& process) {
  // edge: telemetry-sequence (acquire)
  const std::uint64_t sequence = table.sequence.load_acquire();
  if (sequence % 2 != 0) return false;
  std::array<std::uint64_t, 3> about{};
  detail::read_words(about, {&table.written_ns, about.size()});
  const std::size_t count = std::min<std::uint64_t>(about[1], kRowsMax);
  std::vector<PackedRow> packed(count);
  constexpr std::size_t kWords = sizeof(PackedRow) / sizeof(std::uint64_t);
  for (std::size_t i = 0; i < count; ++i) {
    std::array<std::uint64_t, kWords> words{};
    detail::read_words(words, {reinterpret_cast<std::uint64_t*>(&table.rows[i]), kWords});
    std::memcpy(&packed[i], words.data(), sizeof(PackedRow));
  }
  // relaxed: the acquire loads of the words come before it.
  if (table.sequence.load_relaxed() != sequence) return false;
  process.publications = sequence / 2;
  process.written = std::chrono::nanoseconds(about[0]);
  process.rows_left_out = about[2];
  process.rows.clear();
  for (const PackedRow& row : packed) process.rows.push_back(detail::unpack(row));
  return true;
}

/// Nothing if the file belongs to a dead process, or has been removed.
Result<std::optional<Process>> read_file(const std::string& path) {
  const std::string tried = "read statistics of another process";
  // Open for writing: needed to query the lock and to read the words as atomics.
  Result<platform::SharedFile> file = platform::SharedFile::open(path, true);
  if (!file) {
    if (file.error().code == Code::not_found) return std::nullopt;
    return fail(std::move(file.error()));
  }
  if (!file->is_locked_by_another(detail::kLock)) return std::nullopt;
  HEADRACE_TAKE(head, head_of(*file, tried));
  HEADRACE_TAKE(map, platform::SharedMap::map(*file, detail::kFileBytes));
  Atomic<std::uint32_t> fault{0};
  const platform::FaultGuard guard(map->bytes(), fault, 1);
  Table& table = *reinterpret_cast<Table*>(map->bytes().data() + detail::kTableOffset);
  Process process;
  process.number = head->process;
  process.program = detail::get_text(head->program);
  process.began = std::chrono::nanoseconds(head->began_ns);
  process.interval = std::chrono::nanoseconds(head->interval_ns);
  for (int i = 0; i < kTriesMax; ++i) {
    const bool is_whole = copy_table(table, process);
    if (fault.load_relaxed() != 0) {
      return fail(Code::corrupt_data, tried, "the file was truncated", "remove it");
    }
    if (is_whole) return process;
    platform::sleep(kBetweenTries);
  }
  if (!file->is_locked_by_another(detail::kLock)) return std::nullopt;
  return fail(Code::corrupt_data, tried,
              fmt::format("process {} began to write it and does not finish", head->process),
              "let it continue if it is stopped");
}

}  // namespace

Result<Everything> read_all(const std::string& directory) {
  Everything everything;
  std::error_code error;
  const std::filesystem::directory_iterator files(directory, error);
  if (error) {
    const Code code = error == std::errc::no_such_file_or_directory ? Code::not_found
                      : error == std::errc::permission_denied       ? Code::permission_denied
                                                                    : Code::io_failed;
    return fail(code, "look for published statistics in " + directory, error.message(),
                "name the folder that the processes publish in");
  }
  const std::uint32_t user = platform::effective_user();
  for (const auto& each : files) {
    const std::string path = each.path().string();
    if (!each.path().filename().string().starts_with(detail::kFilePrefix)) continue;
    const std::optional<platform::SharedFile::Identity> identity =
        platform::SharedFile::identity_at(path);
    if (!identity || (user != 0 && identity->owner != user)) continue;
    Result<std::optional<Process>> process = read_file(path);
    if (!process) {
      everything.unreadable.push_back({path, std::move(process.error())});
    } else if (*process) {
      everything.processes.push_back(std::move(**process));
    }
  }
  std::ranges::sort(everything.processes, {}, &Process::number);
  std::ranges::sort(everything.unreadable, {}, &Unreadable::path);
  return everything;
}

}  // namespace headrace::telemetry
