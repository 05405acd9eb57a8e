// SPDX-License-Identifier: Apache-2.0
// Question: what does it cost to make an entry durable in each of the rings, and in the same ring
// on libpmem2's primitives?
//
//   headrace-bench-pmem DIRECTORY ROUNDS CAPACITY_MIB [ENTRY_BYTES...]
//
// Method. Each ring has its own file in DIRECTORY, with all pages present. A round runs every ring
// once per length, in a new random order: it enqueues as many entries as fit half the ring, then
// dequeues (with a copy to DRAM) and acknowledges them. The placement of a file's pages changes
// times by a tenth, so every few rounds all rings are made again, and that variation is part of the
// spread. The time of each half round is divided by its number of entries. It is the processor time
// of the thread, which excludes other load on this core, but not its effect on memory. Both ends
// run in one thread, so the traffic between two cores is not measured.
//
// If DIRECTORY is in ordinary memory (/dev/shm), lines are flushed to DRAM and durability is
// simulated; "persistent" in the document is then false. Prints one JSON document: nanoseconds per
// entry, one value per round.
//
// "store_stream" is not a ring: the bytes of the optimised ring's records as one stream of
// non-temporal stores, without fences. It is the store bandwidth of one stream, the reference for
// the rings. "store_stream_fenced" has a fence after each record, as durability on return requires.
// "flush_ns" is the time per line stored and flushed by each instruction, with one fence per
// sixteen lines.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "headrace/base/random.hpp"
#include "headrace/pmem/mapping.hpp"
#include "headrace/pmem/ring.hpp"
#include "libpmem_ring.hpp"
#include "mapping_state.hpp"
#include "measure.hpp"
#include "position_ring.hpp"

namespace headrace::bench {
namespace {

using pmem::Acknowledgement;

/// One ring for entries of one length.
struct Subject {
  std::string name;
  std::size_t batch = 1;  ///< Entries per call of `enqueue`.
  std::function<bool()> enqueue;
  std::function<bool()> dequeue;
  std::vector<double> enqueue_ns = {};
  std::vector<double> dequeue_ns = {};
};

struct Arena {
  std::string directory;
  std::uint64_t capacity_bytes = 0;
  std::vector<std::byte> source = {};
  std::vector<std::byte> target = {};
  bool persistent = false;
  std::string note = {};
  std::vector<std::string> files = {};

  std::string make_file() {
    const std::string path =
        fmt::format("{}/headrace-bench-pmem-{}-{}", directory, ::getpid(), files.size());
    must(pmem::make_ring(path, {.capacity = Bytes(capacity_bytes)}));
    files.push_back(path);
    return path;
  }
  ~Arena() {
    for (const std::string& path : files) ::unlink(path.c_str());
  }
};

pmem::MapOptions map_options() {
  pmem::MapOptions options{.granularity = pmem::Granularity::line};
  options.prefault = true;
  return options;
}

/// Adds a ring of which `producer` and `consumer` are the ends.
template <typename Producer, typename Consumer>
void add_ring(Arena& arena, std::vector<Subject>& subjects, std::string name,
              std::shared_ptr<Producer> producer, std::shared_ptr<Consumer> consumer,
              std::size_t entry_bytes, std::size_t batch = 1) {
  const std::span<const std::byte> entry(arena.source.data(), entry_bytes);
  subjects.push_back({.name = std::move(name),
                      .batch = batch,
                      .enqueue =
                          [producer, entries = std::vector(batch, entry)] {
                            return producer->enqueue_all(entries) == pmem::Enqueue::done;
                          },
                      .dequeue =
                          [consumer, &arena] {
                            pmem::Entry lent;
                            if (consumer->next(lent) != pmem::Next::entry) return false;
                            std::memcpy(arena.target.data(), lent.bytes.data(), lent.bytes.size());
                            consumer->acknowledge();
                            return true;
                          }});
}

void add_ours(Arena& arena, std::vector<Subject>& subjects, const char* name,
              Acknowledgement acknowledgement, std::size_t entry_bytes, std::size_t batch = 1) {
  const std::string path = arena.make_file();
  const pmem::AttachOptions options{.acknowledgement = acknowledgement, .map = map_options()};
  auto producer = std::make_shared<pmem::Producer>(must(pmem::Producer::attach(path, options)));
  auto consumer = std::make_shared<pmem::Consumer>(must(pmem::Consumer::attach(path, options)));
  arena.persistent = producer->is_persistent_memory();
  arena.note = producer->note();
  add_ring(arena, subjects, name, producer, consumer, entry_bytes, batch);
}

/// One end of a ring of positions, with its mapping, as an end of ours has.
template <typename End>
struct PositionEnd {
  PositionEnd(const std::string& path, pmem::FlushInstruction instruction)
      : mapping(must(pmem::Mapping::map(path, map_options()))),
        medium(mapping.medium()),
        end(medium, must(pmem::detail::open_ring(mapping.bytes(), "measure")), instruction) {}
  pmem::Mapping mapping;
  pmem::Medium medium;
  End end;
};

void add_positions(Arena& arena, std::vector<Subject>& subjects, pmem::FlushInstruction instruction,
                   std::size_t entry_bytes) {
  using Producer = pmem::lab::PositionProducer<pmem::Medium>;
  using Consumer = pmem::lab::PositionConsumer<pmem::Medium>;
  const std::string path = arena.make_file();
  auto producer = std::make_shared<PositionEnd<Producer>>(path, instruction);
  auto consumer = std::make_shared<PositionEnd<Consumer>>(path, instruction);
  must(producer->end.attach("measure"));
  must(consumer->end.attach("measure", false));
  const bool is_naive = instruction == pmem::FlushInstruction::clflush;
  add_ring(arena, subjects, std::string(is_naive ? "naive" : name(instruction)),
           std::shared_ptr<Producer>(producer, &producer->end),
           std::shared_ptr<Consumer>(consumer, &consumer->end), entry_bytes);
}

/// A file mapped by libpmem2, and its functions.
struct Pmem2File {
  std::shared_ptr<pmem2_map> map;
  Pmem2Memory memory;
  std::span<std::byte> bytes;
};

Pmem2File map_by_libpmem2(const std::string& path) {
  const platform::SharedFile file = must(platform::SharedFile::open(path, true));
  pmem2_source* source = nullptr;
  pmem2_config* config = nullptr;
  pmem2_map* map = nullptr;
  if (pmem2_source_from_fd(&source, file.descriptor()) != 0 || pmem2_config_new(&config) != 0 ||
      pmem2_config_set_required_store_granularity(config, PMEM2_GRANULARITY_CACHE_LINE) != 0 ||
      pmem2_map_new(&map, config, source) != 0) {
    die(fmt::format("cannot map '{}' by libpmem2: {}", path, pmem2_errormsg()));
  }
  pmem2_config_delete(&config);
  pmem2_source_delete(&source);
  Pmem2File mapped{
      .map = {map, [](pmem2_map* each) { pmem2_map_delete(&each); }},
      .memory = {.copy_bytes = pmem2_get_memcpy_fn(map),
                 .flush_bytes = pmem2_get_flush_fn(map),
                 .drain_all = pmem2_get_drain_fn(map),
                 .persist_bytes = pmem2_get_persist_fn(map)},
      .bytes = {static_cast<std::byte*>(pmem2_map_get_address(map)), pmem2_map_get_size(map)}};
  for (std::size_t i = 0; i < mapped.bytes.size(); i += 4096) {
    // Fault in every page before measuring, without changing it.
    volatile std::byte& byte = mapped.bytes[i];
    byte = byte;
  }
  return mapped;
}

void add_libpmem(Arena& arena, std::vector<Subject>& subjects, std::size_t entry_bytes) {
  const std::span<const std::byte> entry(arena.source.data(), entry_bytes);
  {
    const Pmem2File file = map_by_libpmem2(arena.make_file());
    auto ring = std::make_shared<SeedRing>(file.memory, file.bytes, entry_bytes);
    subjects.push_back({.name = "libpmem_balcer",
                        .enqueue = [ring, entry, map = file.map] { return ring->enqueue(entry); },
                        .dequeue = [ring, &arena] { return ring->dequeue(arena.target); }});
  }
  using Consumer = pmem::detail::BlockConsumer<Pmem2Memory>;
  using Producer = pmem::detail::BlockProducer<Pmem2Memory>;
  /// State of both ends.
  struct Ends {
    explicit Ends(Pmem2File mapped)
        : file(std::move(mapped)),
          ring(must(pmem::detail::open_ring(file.bytes, "measure"))),
          producer(file.memory, ring),
          staged(file.memory, ring),
          consumer(file.memory, ring, Acknowledgement::lazy) {
      must(producer.attach("measure"));
      must(consumer.attach("measure", true));
    }
    Pmem2File file;
    pmem::detail::RingMemory ring;
    Producer producer;
    StagedProducer staged;
    Consumer consumer;
  };
  const auto add = [&](const char* name, auto Ends::* producer) {
    auto ends = std::make_shared<Ends>(map_by_libpmem2(arena.make_file()));
    auto* const end = &((*ends).*producer);
    add_ring(arena, subjects, name,
             std::shared_ptr<std::remove_pointer_t<decltype(end)>>(ends, end),
             std::shared_ptr<Consumer>(ends, &ends->consumer), entry_bytes);
  };
  add("libpmem_staged", &Ends::staged);
  add("libpmem_same", &Ends::producer);
}

/// Writes records of entries sequentially and cyclically.
void add_stream(Arena& arena, std::vector<Subject>& subjects, const char* name, bool fences,
                std::size_t entry_bytes) {
  auto mapping =
      std::make_shared<pmem::Mapping>(must(pmem::Mapping::map(arena.make_file(), map_options())));
  const std::size_t record_bytes = pmem::detail::record_bytes(entry_bytes);
  const auto next = [mapping, record_bytes](std::size_t& at) {
    if (at + record_bytes > mapping->bytes().size()) at = 0;
    return mapping->bytes().data() + std::exchange(at, at + record_bytes);
  };
  subjects.push_back({.name = name,
                      .enqueue =
                          [next, fences, medium = mapping->medium(), at = std::size_t{0},
                           source = std::vector<std::byte>(record_bytes, std::byte{1})]() mutable {
                            medium.stream(next(at), source);
                            if (fences) medium.drain();
                            return true;
                          },
                      .dequeue =
                          [next, &arena, entry_bytes, at = std::size_t{0}]() mutable {
                            std::memcpy(arena.target.data(), next(at), entry_bytes);
                            return true;
                          }});
}

std::vector<Subject> subjects_for(Arena& arena, std::size_t entry_bytes) {
  std::vector<Subject> subjects;
  for (const pmem::FlushInstruction each : pmem::flush_instructions()) {
    add_positions(arena, subjects, each, entry_bytes);
  }
  add_ours(arena, subjects, "optimised", Acknowledgement::lazy, entry_bytes);
  add_ours(arena, subjects, "optimised_each", Acknowledgement::each, entry_bytes);
  add_ours(arena, subjects, "optimised_batch8", Acknowledgement::lazy, entry_bytes, 8);
  add_libpmem(arena, subjects, entry_bytes);
  add_stream(arena, subjects, "store_stream", false, entry_bytes);
  add_stream(arena, subjects, "store_stream_fenced", true, entry_bytes);
  return subjects;
}

/// Nanoseconds per entry.
double measure(const std::function<bool()>& step, std::size_t step_count, std::size_t entry_count) {
  const double begin = now_ns();
  for (std::size_t i = 0; i < step_count; ++i) {
    if (!step()) die("a ring was full or empty where it must not be");
  }
  return (now_ns() - begin) / static_cast<double>(entry_count);
}

/// Rounds before the files are made again.
constexpr std::uint64_t kRoundsPerPlace = 3;

void run(Subject& subject, std::size_t entry_count) {
  const std::size_t enqueue_count = entry_count / subject.batch;
  const std::size_t count = enqueue_count * subject.batch;
  subject.enqueue_ns.push_back(measure(subject.enqueue, enqueue_count, count));
  subject.dequeue_ns.push_back(measure(subject.dequeue, count, count));
}

/// Runs the rounds after one warm-up round.
void run_rounds(std::vector<Subject>& subjects, std::size_t entry_count, std::uint64_t round_count,
                Random& random) {
  for (std::uint64_t round = 0; round <= round_count; ++round) {
    std::vector<Subject*> order;
    for (Subject& subject : subjects) order.push_back(&subject);
    std::shuffle(order.begin(), order.end(), random);
    for (Subject* subject : order) run(*subject, entry_count);
    if (round != 0) continue;
    for (Subject& subject : subjects) {
      subject.enqueue_ns.clear();
      subject.dequeue_ns.clear();
    }
  }
}

/// Adds the times, which are kept when the files are removed.
void add_to(std::vector<Subject>& measured, const std::vector<Subject>& subjects) {
  const auto append = [](std::vector<double>& times, const std::vector<double>& more) {
    times.insert(times.end(), more.begin(), more.end());
  };
  measured.resize(subjects.size());
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    measured[i].name = subjects[i].name;
    append(measured[i].enqueue_ns, subjects[i].enqueue_ns);
    append(measured[i].dequeue_ns, subjects[i].dequeue_ns);
  }
}

/// Nanoseconds per line, one value per round for each instruction.
Json measure_flushes(Arena& arena, std::uint64_t round_count) {
  constexpr std::size_t kLines = 16;
  constexpr std::size_t kStepBytes = kLines * kLineBytes;
  const pmem::Mapping mapping = must(pmem::Mapping::map(arena.make_file(), map_options()));
  pmem::Medium medium = mapping.medium();
  const std::vector<std::byte> source(kStepBytes, std::byte{1});
  const std::size_t step_count = mapping.bytes().size() / kStepBytes / 8;
  const std::span<const pmem::FlushInstruction> instructions = pmem::flush_instructions();
  std::vector<std::vector<double>> times(instructions.size());
  std::size_t at = 0;
  for (std::uint64_t round = 0; round < round_count; ++round) {
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      const auto step = [&] {
        if (at + kStepBytes > mapping.bytes().size()) at = 0;
        std::byte* const place = mapping.bytes().data() + std::exchange(at, at + kStepBytes);
        medium.store(place, source);
        medium.flush_with(instructions[i], place, kStepBytes);
        medium.drain();
        return true;
      };
      times[i].push_back(measure(step, step_count, step_count * kLines));
    }
  }
  Json series = Json::object();
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    series[std::string(name(instructions[i]))] = list_of(times[i]);
  }
  return series;
}

int main_of(const std::vector<std::string>& arguments) {
  if (arguments.size() < 4) {
    die("usage: headrace-bench-pmem DIRECTORY ROUNDS CAPACITY_MIB [ENTRY_BYTES...]");
  }
  const std::uint64_t round_count = parse_number(arguments[2]);
  const std::uint64_t capacity_bytes = parse_number(arguments[3]) << 20U;
  std::vector<std::size_t> lengths;
  for (std::size_t i = 4; i < arguments.size(); ++i) lengths.push_back(parse_number(arguments[i]));
  if (lengths.empty()) lengths = {64, 256, 1024, 2048, 4096, 16384};
  Random random(1);
  Json results = Json::array();
  bool persistent = false;
  std::string note;
  for (const std::size_t entry_bytes : lengths) {
    std::vector<Subject> measured;
    std::size_t entry_count = 0;
    for (std::uint64_t round = 0; round < round_count; round += kRoundsPerPlace) {
      Arena arena{.directory = arguments[1],
                  .capacity_bytes = capacity_bytes,
                  .source = std::vector<std::byte>(entry_bytes),
                  .target = std::vector<std::byte>(entry_bytes)};
      for (std::byte& byte : arena.source) byte = static_cast<std::byte>(random());
      std::vector<Subject> subjects = subjects_for(arena, entry_bytes);
      persistent = arena.persistent;
      note = arena.note;
      entry_count = arena.capacity_bytes / 2 / (entry_bytes + 512);
      run_rounds(subjects, entry_count, std::min(kRoundsPerPlace, round_count - round), random);
      add_to(measured, subjects);
    }
    Json series = Json::object();
    for (const Subject& subject : measured) {
      series[subject.name] = {{"enqueue_ns", list_of(subject.enqueue_ns)},
                              {"dequeue_ns", list_of(subject.dequeue_ns)}};
    }
    results.push_back(
        {{"entry_bytes", entry_bytes}, {"entry_count", entry_count}, {"series", series}});
  }
  Arena arena{.directory = arguments[1], .capacity_bytes = capacity_bytes};
  print({{"persistent", persistent},
         {"note", note},
         {"capacity_bytes", capacity_bytes},
         {"flush_ns", measure_flushes(arena, round_count)},
         {"lengths", results}});
  return 0;
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  // Make libpmem2 treat ordinary memory as persistent, as our rings do; it would use msync. It
  // reads the variable once, when it is loaded.
  if (std::getenv("PMEM2_FORCE_GRANULARITY") == nullptr) {
    ::setenv("PMEM2_FORCE_GRANULARITY", "CACHE_LINE", 1);
    ::execv("/proc/self/exe", argv);
  }
  return headrace::bench::main_of({argv, argv + argc});
}
