// SPDX-License-Identifier: Apache-2.0
#include "shared.hpp"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "block.hpp"

namespace headrace::store::detail {
namespace {

constexpr auto kNumbers = [](auto& of) {
  if constexpr (requires { of.misses; }) {
    return std::tie(of.blocks, of.misses, of.dropped, of.corrupt, of.failed, of.bytes_in,
                    of.bytes_out);
  } else if constexpr (requires { of.hits; }) {
    return std::tie(of.capacity_blocks, of.blocks, of.hits, of.puts, of.evictions, of.promotions,
                    of.demotions, of.recovered, of.dropped_torn, of.blocks_lost, of.is_healthy);
  } else {
    return std::tie(of.process, of.requests, of.reads_in_place, of.leases, of.pins);
  }
};

template <typename Part>
void add(Texts& texts, const Part& of) {
  std::apply(
      [&](const auto&... each) {
        const std::array<std::uint64_t, sizeof...(each)> words{each...};
        texts.add({reinterpret_cast<const char*>(words.data()), sizeof(words)});
      },
      kNumbers(of));
}

template <typename Part>
Part take(Texts& texts) {
  Part of;
  std::apply(
      [&](auto&... each) {
        std::array<std::uint64_t, sizeof...(each)> words{};
        texts.take().value_or("").copy(reinterpret_cast<char*>(words.data()), sizeof(words));
        const std::uint64_t* next = words.data();
        ((each = static_cast<std::remove_reference_t<decltype(each)>>(*next++)), ...);
      },
      kNumbers(of));
  return of;
}

}  // namespace

Texts pack(const StoreStatistics& all) {
  Texts texts;
  add(texts, all);
  texts.add(std::string(all.tiers.size(), 't'));  // Their number is its length.
  for (const TierStatistics& each : all.tiers) {
    add(texts, each);
    texts.add(each.access);
  }
  texts.add(std::string(all.clients.size(), 'c'));
  for (const ClientStatistics& each : all.clients) add(texts, each);
  return texts;
}

StoreStatistics unpack(Texts texts) {
  auto all = take<StoreStatistics>(texts);
  for (std::size_t left = texts.take().value_or("").size(); left != 0; --left) {
    all.tiers.push_back(take<TierStatistics>(texts));
    all.tiers.back().access = texts.take().value_or("");
  }
  for (std::size_t left = texts.take().value_or("").size(); left != 0; --left) {
    all.clients.push_back(take<ClientStatistics>(texts));
  }
  return all;
}

Result<std::unique_ptr<SharedCells>> SharedCells::make(const SharedShape& shape) {
  std::optional<platform::SharedMap> map;
  HEADRACE_TAKE(file, platform::SharedFile::make_sealed(shape.byte_count(), {}, &map));
  return std::unique_ptr<SharedCells>(new SharedCells(shape, std::move(*file), std::move(*map)));
}

void SharedCells::show(Cell cell, std::string_view key, std::uint64_t hash,
                       std::uint32_t byte_count, std::optional<std::uint32_t> crc) {
  CellEntry& here = entry(cell);
  here.hash = hash;
  here.byte_count = byte_count;
  here.crc = crc.value_or(0);
  here.has_crc = crc ? 1 : 0;
  here.key_bytes = static_cast<std::uint32_t>(key.size());
  key.copy(here.key.data(), here.key.size());
  detail::show(here.version, ++versions_);
  // relaxed, here and below: a hint; the version says what is in a cell.
  auto& cells = bucket(hash).cells;
  const auto free =
      std::ranges::find_if(cells, [](const auto& each) { return each.load_relaxed() == 0; });
  // In a full bucket another block gives way: clients ask the server for it.
  (free != cells.end() ? *free : cells[versions_ % cells.size()]).store_relaxed(cell);
}

void SharedCells::hide(Cell cell) {
  CellEntry& here = entry(cell);
  if (here.version.load_relaxed() == 0) return;  // Written by the server only.
  detail::hide(here.version);
  for (Atomic<Cell>& each : bucket(here.hash).cells) {
    if (each.load_relaxed() == cell) each.store_relaxed(0);
  }
}

bool SharedCells::is_leased(Cell cell) const {
  return std::ranges::any_of(readers, [&](const Reader* reader) {
    return std::ranges::any_of(std::span(reader->words->leases).first(shape.lease_count),
                               [&](const auto& each) { return detail::is_leased(each, cell); });
  });
}

Result<std::shared_ptr<SharedLink>> SharedLink::make(const std::string& path,
                                                     std::chrono::nanoseconds time_max,
                                                     bool (*is_interrupted)()) {
  const std::string tried = "connect to a shared store";
  HEADRACE_TAKE_WITHIN(tried, socket, platform::LocalSocket::connect(path));
  pollfd watched{.fd = socket->descriptor(), .events = POLLIN, .revents = 0};
  platform::poll_until({&watched, 1}, time_max, is_interrupted);
  Welcome hello;
  hello.magic = 0;
  std::vector<platform::Descriptor> files;
  const std::size_t count =
      socket->receive(std::as_writable_bytes(std::span(&hello, 1)), &files).value_or(0);
  if (count == 0) {
    return fail(Code::not_found, tried, "the server ended, or did not answer in time",
                "start it again, or look whether it is stopped");
  }
  const bool is_known = hello.magic == Welcome::kMagic && hello.version == Welcome::kVersion &&
                        hello.hash == Index::hash_of("headrace");
  if (is_known && hello.refusal == Welcome::Refusal::no_memory) {
    return fail(Code::capacity_exceeded, tried,
                "the server has no memory or descriptor for another client",
                "raise its limits (ulimit -n, memory), or end a client");
  }
  if (is_known && hello.refusal == Welcome::Refusal::too_many) {
    return fail(Code::capacity_exceeded, tried, "the server has as many clients as it can take",
                "end one, or serve with a larger clients_max");
  }
  if (is_known && files.size() != 2) {
    return fail(Code::capacity_exceeded, tried, "this process has no free descriptors",
                "close some, or raise the limit (ulimit -n)");
  }
  if (!is_known || count != sizeof(hello)) {
    return fail(Code::version_mismatch, tried, "the server is of another version",
                "use one build of Headrace for the server and its clients");
  }
  const SharedShape& shape = hello.shape;
  const auto map = [&](std::size_t i, std::uint64_t byte_count) {
    const auto file = platform::SharedFile::adopt(std::move(files[i]));
    return platform::SharedMap::map(file, byte_count, i == 1);
  };
  HEADRACE_TAKE_WITHIN(tried, shared, map(0, shape.byte_count()));
  HEADRACE_TAKE_WITHIN(tried, mine, map(1, shape.client_byte_count()));
  return std::shared_ptr<SharedLink>(
      new SharedLink(std::move(*socket), shape, std::move(*shared), std::move(*mine)));
}

SharedLink::SharedLink(platform::LocalSocket connected, const SharedShape& known,
                       platform::SharedMap shared, platform::SharedMap mine)
    : socket(std::move(connected)),
      shape(known),
      shared_(std::move(shared)),
      mine_(std::move(mine)) {
  for (std::uint32_t i = 0; i < shape.lease_count; ++i) {
    free_[i / 64].fetch_or_relaxed(std::uint64_t{1} << i % 64);  // No other thread has it yet.
  }
}

std::optional<SharedLink::Found> SharedLink::find(std::string_view key) {
  if (is_forked()) return std::nullopt;
  const std::uint64_t hash = Index::hash_of(key);
  const std::byte* const base = shared_.bytes().data();
  const auto* const buckets = reinterpret_cast<const Bucket*>(base + SharedShape::kBucketsOffset);
  for (const Atomic<Cell>& way : buckets[hash & (shape.bucket_count() - 1)].cells) {
    const Cell cell = way.load_relaxed();  // A hint.
    if (cell == 0 || cell > shape.cell_count) continue;
    const CellEntry& entry =
        reinterpret_cast<const CellEntry*>(base + shape.entries_offset())[cell];
    const std::uint64_t version = look(entry.version);
    // The server may change these meanwhile: they count if the version is still there below.
    if (version == 0 || entry.hash != hash || entry.key_bytes != key.size() ||
        std::memcmp(entry.key.data(), key.data(), std::min(key.size(), kKeyBytesMax)) != 0) {
      continue;
    }
    Found found{.cell = cell,
                .bytes = {base + shape.data_offset() + (cell - 1) * shape.stride_bytes,
                          std::min<std::size_t>(entry.byte_count, shape.block_bytes)}};
    if (entry.has_crc != 0) found.crc = entry.crc;
    for (Atomic<std::uint64_t>& word : free_) {
      std::uint64_t free = word.load_relaxed();  // A guess.
      // edge: shared-lease-free (acq_rel)
      while (free != 0 && !word.compare_exchange_acq_rel(free, free & (free - 1))) continue;
      if (free == 0) continue;
      found.lease =
          static_cast<std::uint32_t>((&word - free_.data()) * 64 + std::countr_zero(free));
      // The block is its key's if the server lives: the next one may change it.
      if (begin_lease(words().leases[found.lease], cell, entry.version, version) &&
          reinterpret_cast<const platform::LifeMark*>(base)->is_held()) {
        return found;
      }
      give_back(found.lease);
      break;
    }
    break;
  }
  return std::nullopt;
}

void SharedLink::give_back(std::uint32_t lease) {
  if (is_forked()) return;  // The parent still reads the block.
  end_lease(words().leases[lease]);
  // edge: shared-lease-free (acq_rel)
  free_[lease / 64].fetch_or_acq_rel(std::uint64_t{1} << lease % 64);
}

void SharedLink::note(Cell cell) {
  // relaxed: hints, which nothing depends on.
  const std::uint64_t number = words().read_count.fetch_add_relaxed(1);
  words().reads[number % ClientWords::kReadsKept].store_relaxed(cell);
}

}  // namespace headrace::store::detail
