// SPDX-License-Identifier: Apache-2.0
// Shared stores: the guarantees in headrace/store/shared.hpp, with clients in this process, in
// others, and hostile ones.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "headrace/base/atomic.hpp"
#include "headrace/platform/local_socket.hpp"
#include "shared_stage.hpp"
#include "store/shared.hpp"
#include "support/seed.hpp"
#include "support/watchdog.hpp"

namespace headrace::store {
namespace {

using platform::LocalSocket;

TEST_F(Shared, AClientGetsWhatAnotherPutAndReadsItInPlace) {
  make_engine();
  serve();
  const auto a = client();
  const auto b = client();
  EXPECT_EQ(put(*a, 1, 1), Outcome::done);
  EXPECT_EQ(get(*b, 1), 1U);
  EXPECT_EQ(put(*b, 1, 2), Outcome::done);
  EXPECT_EQ(get(*a, 1), 2U);
  EXPECT_EQ(get(server_->served(), 1), 2U);
  const BlockView view = a->view("1");
  EXPECT_TRUE(view.in_place);
  EXPECT_EQ(version_of(1, view.bytes), 2U);
  EXPECT_EQ(a->length("1"), kBlockBytes);
  EXPECT_EQ(b->length("2"), std::nullopt);
  const StoreStatistics known = server_->served().statistics();
  EXPECT_EQ(known.tiers.at(0).hits, 4U);
  EXPECT_EQ(a->remove("1"), Outcome::done);
  EXPECT_EQ(a->remove("1"), Outcome::unknown_key);
  EXPECT_EQ(get(*b, 1), 0U);
  EXPECT_EQ(b->view("1").outcome, Outcome::unknown_key);
}

TEST_F(Shared, AClientHasEveryMethodOfAStore) {
  make_engine();
  ServeOptions chosen = options();
  chosen.store.tiers.push_back(
      {.capacity = Bytes(4 * kBlocks * kBlockBytes), .path = folder_.file("f")});
  chosen.group = ::getegid();
  serve(chosen);
  struct stat status{};
  ASSERT_EQ(::stat(chosen.socket.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0660U);
  const auto a = client();
  const auto b = client();
  EXPECT_TRUE(b->keys().empty());
  for (std::uint64_t key = 0; key < 3; ++key) EXPECT_EQ(put(*a, key, 1), Outcome::done);
  std::vector<std::string> keys = b->keys();
  std::ranges::sort(keys);
  EXPECT_EQ(keys, (std::vector<std::string>{"0", "1", "2"}));
  const Transfer flushed = b->flush();
  flushed.wait();
  EXPECT_TRUE(flushed.all_done());
  EXPECT_TRUE(a->pin("0"));
  EXPECT_TRUE(a->pin("0"));
  EXPECT_FALSE(a->pin("none"));
  EXPECT_FALSE(b->unpin("0")) << "a client ends its own pins only";
  EXPECT_TRUE(a->unpin("0"));
  EXPECT_EQ(get(*a, 2), 1U);
  const BlockView view = a->view("2");
  const StoreStatistics known = b->statistics();
  EXPECT_EQ(known.blocks, 3U);
  EXPECT_EQ(known.tiers.at(0).puts, 3U);
  EXPECT_EQ(known.tiers.at(0).access, "memory");
  EXPECT_EQ(known.tiers.at(1).blocks, 3U) << "the flush has written them";
  ASSERT_EQ(known.clients.size(), 2U);
  EXPECT_EQ(known.clients[0].process, static_cast<std::uint64_t>(::getpid()));
  EXPECT_EQ(known.clients[0].requests, 7U);
  EXPECT_EQ(known.clients[0].reads_in_place, 2U);
  EXPECT_EQ(known.clients[0].leases, 1U);
  EXPECT_EQ(known.clients[0].pins, 1U);
  EXPECT_EQ(b->clear(), 3U);
  EXPECT_EQ(a->length("0"), std::nullopt);
}

TEST_F(Shared, TheEndOfAClientEndsItsPins) {
  make_engine();
  serve();
  auto holder = client();
  const auto other = client();
  for (std::uint64_t key = 0; key < 10; ++key) {
    EXPECT_EQ(put(*other, key, 1), Outcome::done);
    EXPECT_EQ(holder->pin(std::to_string(key)), key < kBlocks / 8) << "its part of the memory";
  }
  for (std::uint64_t key = 100; key < 300; ++key) EXPECT_EQ(put(*other, key, 1), Outcome::done);
  EXPECT_EQ(count(*other, 0, 10), kBlocks / 8);
  holder.reset();
  for (std::uint64_t key = 300; count(*other, 0, 10) != 0; ++key) {
    ASSERT_EQ(put(*other, key, 1), Outcome::done);
  }
}

TEST_F(Shared, RefusesWhatAStoreRefuses) {
  make_engine();
  serve();
  const auto store = client();
  std::vector<std::byte> bytes(2 * kBlockBytes);
  EXPECT_EQ(store->put("", bytes).outcome, Outcome::bad_key);
  EXPECT_EQ(store->put(std::string(300, 'k'), bytes).outcome, Outcome::bad_key);
  EXPECT_EQ(store->put("a", bytes).outcome, Outcome::wrong_length);
  EXPECT_EQ(store->put("a", {}).outcome, Outcome::wrong_length);
  EXPECT_EQ(store->put("a", std::span(bytes).first(9), 300).outcome, Outcome::no_such_tier);
  EXPECT_EQ(put(*store, 1, 1), Outcome::done);
  EXPECT_EQ(store->get("1", std::span(bytes).first(9)).outcome, Outcome::wrong_length);
  EXPECT_EQ(store->get("2", bytes).outcome, Outcome::unknown_key);
  EXPECT_TRUE(store->put({}, 0).poll());
}

TEST_F(Shared, BatchesLargerThanTheSharedMemoryEnd) {
  make_engine();
  serve();
  const auto store = client();
  constexpr std::size_t kMany = 500;
  std::vector<std::string> keys;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<PutBlock> puts;
  std::vector<GetBlock> gets;
  for (std::size_t i = 0; i < kMany; ++i) {
    keys.push_back(std::to_string(i % 40));
    bytes.push_back(block_bytes(i % 40, i, kBlockBytes));
  }
  for (std::size_t i = 0; i < kMany; ++i) puts.push_back({keys[i], bytes[i]});
  const Transfer put = store->put(puts);
  put.wait();
  EXPECT_TRUE(put.all_done());
  for (std::size_t i = 0; i < kMany; ++i) gets.push_back({keys[i], bytes[i]});
  const Transfer got = store->get(gets);
  got.wait();
  EXPECT_TRUE(got.all_done());
  for (std::size_t i = 0; i < kMany; ++i)
    EXPECT_EQ(version_of(i % 40, bytes[i]), 480 + i % 40 - (i % 40 >= 20 ? 40 : 0));
}

TEST_F(Shared, OfTwoPutsInFlightTheLaterStays) {
  make_engine();
  ServeOptions chosen = options();
  chosen.store.block_bytes = mib(1);
  chosen.store.tiers[0].capacity = mib(16);
  serve(chosen);
  const auto store = client();
  const std::vector<std::byte> lengthy(mib(1).count());  // Beyond what the calling thread sends.
  const PutBlock first{.key = "1", .source = lengthy};
  for (int round = 0; round < 20; ++round) {
    const Transfer before = store->put({&first, 1});
    EXPECT_EQ(put(*store, 1, 2), Outcome::done);
    before.wait();
    EXPECT_TRUE(before.all_done());
    EXPECT_EQ(store->length("1"), kBlockBytes);
  }
}

TEST_F(Shared, AViewStaysWhileItsBlockIsReplacedRemovedAndEvicted) {
  make_engine();
  serve();
  const auto reader = client();
  const auto writer = client();
  std::vector<BlockView> views;
  for (std::uint64_t key = 1; key <= 3; ++key) {
    EXPECT_EQ(put(*writer, key, 7), Outcome::done);
    views.push_back(reader->view(std::to_string(key)));
    EXPECT_TRUE(views.back().in_place);
  }
  EXPECT_EQ(put(*writer, 1, 8), Outcome::done);
  EXPECT_EQ(writer->remove("2"), Outcome::done);
  for (std::uint64_t key = 100; key < 100 + 4 * kBlocks; ++key) {
    ASSERT_EQ(put(*writer, key, 1), Outcome::done);
  }
  for (std::uint64_t key = 1; key <= 3; ++key) EXPECT_EQ(version_of(key, views[key - 1].bytes), 7U);
  EXPECT_EQ(get(*reader, 3), 7U) << "a block in use is not evicted";
}

TEST_F(Shared, AClientKeepsAtMostItsPartOfTheMemory) {
  make_engine();
  serve();
  const auto greedy = client();
  const auto other = client();
  std::vector<BlockView> views;
  std::size_t in_place = 0;
  for (std::uint64_t key = 0; key < kBlocks; ++key) {
    ASSERT_EQ(put(*greedy, key, 1), Outcome::done);
    views.push_back(greedy->view(std::to_string(key)));
    in_place += views.back().in_place ? 1 : 0;
    EXPECT_EQ(version_of(key, views.back().bytes), 1U);
  }
  EXPECT_EQ(in_place, kBlocks / 8);
  for (std::uint64_t key = 100; key < 400; ++key) {
    ASSERT_EQ(put(*other, key, 1), Outcome::done);
    ASSERT_EQ(get(*other, key), 1U);
  }
  views.clear();
  EXPECT_TRUE(greedy->view("0").in_place);
}

TEST_F(Shared, AViewOutlivesItsStore) {
  make_engine();
  serve();
  auto reader = client();
  const auto writer = client();
  EXPECT_EQ(put(*writer, 1, 7), Outcome::done);
  BlockView view = reader->view("1");
  reader.reset();
  for (std::uint64_t key = 100; key < 300; ++key) ASSERT_EQ(put(*writer, key, 1), Outcome::done);
  EXPECT_TRUE(view.in_place);
  EXPECT_EQ(version_of(1, view.bytes), 7U);
  view = {};
  for (std::uint64_t key = 300; count(*writer, 1, 2) != 0; ++key) {
    ASSERT_EQ(put(*writer, key, 1), Outcome::done);
  }
}

TEST_F(Shared, TheEndOfAClientFreesWhatItHeld) {
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  std::array<int, 2> over{};
  ASSERT_EQ(::pipe(over.data()), 0);
  const pid_t server = serve_elsewhere();
  const pid_t holder = ::fork();
  if (holder == 0) {
    const auto engine = test::worker_engine();
    const auto store = connect(*engine, folder_.file("socket")).value();
    std::vector<BlockView> views;
    for (std::uint64_t key = 0; key < 8; ++key) {
      put(*store, key, 1);
      views.push_back(store->view(std::to_string(key)));
    }
    if (::write(ready[1], "r", 1) != 1) ::_exit(1);
    const pid_t forked = ::fork();  // Keeps the descriptor of the connection.
    if (forked == 0) {
      views.clear();  // Its parent keeps them.
      ::_exit(put(*store, 9, 1) == Outcome::closed ? 0 : 1);
    }
    int status = 0;
    ::waitpid(forked, &status, 0);
    if (status != 0 || ::write(ready[1], "f", 1) != 1) ::_exit(1);
    char end = 0;
    ::close(over[1]);
    // Keeps the connection's descriptor until the end of the test.
    if (::fork() == 0) ::_exit(::read(over[0], &end, 1) == 0 ? 0 : 1);
    while (true) ::pause();
  }
  std::array<char, 2> bytes{};
  ASSERT_EQ(::read(ready[0], &bytes[0], 1), 1);
  ASSERT_EQ(::read(ready[0], &bytes[1], 1), 1);
  EXPECT_EQ(bytes[1], 'f') << "a child uses its parent's store";
  make_engine();
  const auto store = client();
  ::kill(holder, SIGSTOP);
  for (std::uint64_t key = 1; key < 8; ++key) {
    ASSERT_EQ(store->remove(std::to_string(key)), Outcome::done);
  }
  for (std::uint64_t key = 100; key < 300; ++key) ASSERT_EQ(put(*store, key, 1), Outcome::done);
  EXPECT_EQ(get(*store, 0), 1U);
  EXPECT_EQ(count(*store, 0, 300), kBlocks - 7) << "it keeps what it reads";
  kill(holder);
  // Once the server knows of its end.
  for (std::uint64_t key = 300; count(*store, 0, key) != kBlocks; ++key) {
    ASSERT_EQ(put(*store, key, 1), Outcome::done);
  }
  ::close(over[1]);
  kill(server);
}

TEST_F(Shared, AChildOfForkLeavesTheServerToItsParent) {
  make_engine();
  serve();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    server_.reset();
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const auto store = client();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(put(*store, 1, 1), Outcome::done);
}

TEST_F(Shared, WhenTheServerEndsRequestsAreClosedAndTheNextServerServes) {
  ServeOptions chosen = options();
  chosen.store.tiers.push_back(
      {.capacity = Bytes(kBlocks * kBlockBytes), .path = folder_.file("f")});
  pid_t server = serve_elsewhere(chosen);
  make_engine();
  const auto store = client();
  ASSERT_EQ(store->put("1", block_bytes(1, 5, kBlockBytes), 1).outcome, Outcome::done);
  ASSERT_EQ(put(*store, 2, 5), Outcome::done);
  const BlockView view = store->view("2");
  // A client whose thread has not seen yet that the server has ended.
  const auto late = detail::SharedLink::make(chosen.socket, std::chrono::hours(1)).value();
  const auto found = late->find("2");
  ASSERT_TRUE(found.has_value());
  late->give_back(found->lease);
  kill(server);
  EXPECT_EQ(version_of(2, view.bytes), 5U);
  EXPECT_FALSE(late->find("2").has_value());
  EXPECT_EQ(put(*store, 3, 1), Outcome::closed);
  EXPECT_EQ(get(*store, 2), 0U) << "a server that has ended has no blocks";
  server = serve_elsewhere(chosen);
  EXPECT_EQ(version_of(2, view.bytes), 5U);
  EXPECT_EQ(get(*store, 1), 5U) << "what was durable is there";
  EXPECT_EQ(get(*store, 2), 0U);
  EXPECT_EQ(put(*store, 3, 2), Outcome::done);
  EXPECT_EQ(get(*store, 3), 2U);
  kill(server);
}

TEST_F(Shared, AServerReplacesAnotherAndHasWhatThatAcknowledgedInItsFile) {
  ServeOptions chosen = options();
  chosen.store.tiers.push_back(
      {.capacity = Bytes(kBlocks * kBlockBytes), .path = folder_.file("f")});
  const pid_t before = serve_elsewhere(chosen);
  make_engine();
  const auto store = client();
  ASSERT_EQ(store->put("1", block_bytes(1, 5, kBlockBytes), 1).outcome, Outcome::done);
  ::kill(before, SIGSTOP);
  ::waitpid(before, nullptr, WUNTRACED);
  chosen.replace_within = std::chrono::milliseconds(50);
  const auto refused = Server::make(*engine_, chosen);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::capacity_exceeded);
  EXPECT_NE(refused.error().message().find("kill -KILL"), std::string::npos);
  ::kill(before, SIGCONT);
  chosen.replace_within = std::chrono::hours(1);
  serve(chosen);
  int status = 0;
  ::waitpid(before, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  EXPECT_EQ(get(*store, 1), 5U);
  EXPECT_EQ(put(*store, 2, 2), Outcome::done);
  EXPECT_EQ(Server::make(*engine_, chosen).error().code, Code::unsupported) << "its own process";
  server_.reset();
  serve(chosen);
  EXPECT_EQ(get(*store, 1), 5U) << "no other server was there";
}

TEST_F(Shared, AServerAnswersWhatItHasTakenBeforeItsEnd) {
  make_engine();
  ServeOptions chosen = options();
  chosen.clients_max = 1;
  serve(chosen);
  const auto store = client();
  std::vector<BlockView> views;
  for (std::uint64_t key = 0; key < kBlocks; ++key) {
    ASSERT_EQ(put(*store, key, 1), Outcome::done);
    if (key % 2 == 0) views.push_back(store->view(std::to_string(key)));
    EXPECT_TRUE(key % 2 == 0 || server_->served().pin(std::to_string(key)));
  }
  for (std::uint64_t key = 0; key < kBlocks; key += 2) store->remove(std::to_string(key));
  const auto bytes = block_bytes(100, 1, kBlockBytes);
  const PutBlock last{.key = "100", .source = bytes};
  const Transfer waits = store->put({&last, 1});
  EXPECT_EQ(store->statistics().clients.at(0).leases, kBlocks / 2) << "it has taken the put";
  EXPECT_FALSE(waits.poll());
  std::thread ending([&] { server_.reset(); });
  const ConnectOptions brief{.deadline = std::chrono::milliseconds(20)};
  while (connect(*engine_, chosen.socket, brief).error().code == Code::capacity_exceeded) continue;
  views.clear();
  waits.wait();
  EXPECT_EQ(name(waits.ends().front().outcome), "done");
  ending.join();
}

TEST_F(Shared, AServerEndsWhileBlocksMoveAndClientsAreConnected) {
  make_engine();
  ServeOptions chosen = options();
  chosen.store.tiers.push_back(
      {.capacity = Bytes(4 * kBlocks * kBlockBytes), .path = folder_.file("f")});
  for (std::uint64_t round = 1; round <= 20; ++round) {
    serve(chosen);
    const auto store = client();
    for (std::uint64_t key = 0; key < 2 * kBlocks; ++key) {
      ASSERT_EQ(put(*store, key, round), Outcome::done);
    }
    server_.reset();
    EXPECT_EQ(put(*store, 1, round), Outcome::closed);
  }
}

TEST_F(Shared, AStoppedServerTimesOutAndIsReadInPlace) {
  const pid_t server = serve_elsewhere();
  make_engine();
  const auto store = client({.deadline = std::chrono::milliseconds(50)});
  const auto patient = client();
  EXPECT_EQ(put(*patient, 1, 1), Outcome::done);
  ::kill(server, SIGSTOP);
  ::waitpid(server, nullptr, WUNTRACED);
  EXPECT_EQ(put(*store, 2, 1), Outcome::timed_out);
  EXPECT_EQ(put(*store, 2, 2), Outcome::timed_out);
  EXPECT_EQ(get(*store, 1), 1U);
  const auto bytes = block_bytes(1, 1, kBlockBytes);
  const PutBlock refused{.key = "none", .source = bytes};
  const Transfer next = store->put({&refused, 1}, 9);
  ::kill(server, SIGCONT);
  next.wait();
  EXPECT_NE(next.ends().front().outcome, Outcome::done) << "it has the answer to another request";
  EXPECT_EQ(put(*patient, 4, 3), Outcome::done);
  while (put(*store, 3, 3) == Outcome::timed_out) continue;
  EXPECT_EQ(get(*store, 2), 2U) << "the late puts came before";
  EXPECT_EQ(get(*patient, 3), 3U);
  kill(server);
}

TEST_F(Shared, RefusesASecondServerAndMoreClientsThanItTakes) {
  make_engine();
  ServeOptions chosen = options();
  chosen.store.tiers.push_back(
      {.capacity = Bytes(kBlocks * kBlockBytes), .path = folder_.file("f")});
  serve(chosen);
  EXPECT_EQ(Server::make(*engine_, options()).error().code, Code::capacity_exceeded);
  chosen.socket = folder_.file("other");
  EXPECT_EQ(Server::make(*engine_, chosen).error().code, Code::capacity_exceeded);
  std::vector<std::unique_ptr<Store>> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(client());
  EXPECT_EQ(connect(*engine_, folder_.file("socket")).error().code, Code::capacity_exceeded);
  EXPECT_EQ(connect(*engine_, folder_.file("none")).error().code, Code::not_found);
  chosen.socket = folder_.file("large");
  chosen.store.tiers[0].capacity = gib(1U << 20U);
  EXPECT_EQ(Server::make(*engine_, chosen).error().code, Code::out_of_memory);
  server_.reset();
  for (const char* name : {"socket", "other", "large"}) {
    EXPECT_FALSE(std::filesystem::exists(folder_.file(name))) << name;
    EXPECT_FALSE(std::filesystem::exists(folder_.file(name) + ".lock")) << name;
  }
  chosen.store.tiers.erase(chosen.store.tiers.begin());
  EXPECT_EQ(Server::make(*engine_, chosen).error().code, Code::invalid_argument);
}

TEST_F(Shared, NamesAServerOfAnotherVersion) {
  make_engine();
  serve();
  const auto before = client();
  server_.reset();
  const auto socket = LocalSocket::listen(folder_.file("socket")).value();
  Atomic<bool> is_over;
  std::thread server([&] {
    detail::Welcome hello;
    ++hello.version;
    while (!is_over.load_relaxed()) {
      const std::optional<LocalSocket> accepted = socket.accept();
      EXPECT_TRUE(!accepted || accepted->send(std::as_bytes(std::span(&hello, 1))));
    }
  });
  EXPECT_EQ(connect(*engine_, folder_.file("socket")).error().code, Code::version_mismatch);
  // The first may still go to the server that has ended; after it, the client connects again.
  EXPECT_EQ(put(*before, 1, 1), Outcome::closed);
  EXPECT_EQ(put(*before, 1, 1), Outcome::closed);
  is_over.store_relaxed(true);
  server.join();
}

/// A client without the library.
struct Raw {
  explicit Raw(const std::string& path) : socket(LocalSocket::connect(path).value()) {
    pollfd watched{.fd = socket.descriptor(), .events = POLLIN, .revents = 0};
    platform::poll_until({&watched, 1}, std::chrono::hours(1));
    EXPECT_EQ(socket.receive(std::as_writable_bytes(std::span(&hello, 1)), &files), sizeof(hello));
    EXPECT_EQ(files.size(), 2U);
  }
  void* map(std::size_t file, std::uint64_t byte_count, int access) const {
    return ::mmap(nullptr, byte_count, access, MAP_SHARED, files.at(file).get(), 0);
  }

  LocalSocket socket;
  detail::Welcome hello;
  std::vector<platform::Descriptor> files;
};

TEST_F(Shared, NoClientCanWriteToTheMemoryOfBlocks) {
  make_engine();
  serve();
  const Raw raw(folder_.file("socket"));
  const std::uint64_t bytes = raw.hello.shape.byte_count();
  EXPECT_EQ(raw.map(0, bytes, PROT_READ | PROT_WRITE), MAP_FAILED);
  void* const mapped = raw.map(0, bytes, PROT_READ);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_NE(::mprotect(mapped, bytes, PROT_READ | PROT_WRITE), 0);
  ::munmap(mapped, bytes);
  const int again = ::open(("/proc/self/fd/" + std::to_string(raw.files[0].get())).c_str(), O_RDWR);
  EXPECT_EQ(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
  EXPECT_LT(::pwrite(again, "x", 1, 0), 0);
  EXPECT_NE(::fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  for (const platform::Descriptor& file : raw.files) {
    EXPECT_NE(::ftruncate(file.get(), 0), 0);
    EXPECT_NE(::ftruncate(file.get(), 1 << 30), 0);
  }
  ::close(again);
}

TEST_F(Shared, AHostileClientHarmsNoOther) {
  make_engine();
  ServeOptions chosen = options();
  // Its puts in flight evict no block of the other.
  chosen.store.tiers[0].capacity = Bytes(4 * kBlocks * kBlockBytes);
  serve(chosen);
  const auto good = client();
  Random random(test::seed());
  for (int round = 0; round < 20; ++round) {
    const Raw raw(folder_.file("socket"));
    const std::uint64_t bytes = raw.hello.shape.client_byte_count();
    auto* const mine = static_cast<std::byte*>(raw.map(1, bytes, PROT_READ | PROT_WRITE));
    ASSERT_NE(mine, MAP_FAILED);
    Atomic<bool> ends{false};
    std::thread scribbler([&, seed = random()] {
      Random other(seed);
      const auto words = std::span(reinterpret_cast<std::uint32_t*>(mine), bytes / 4);
      // relaxed: only to end.
      while (!ends.load_relaxed()) {
        // Cells that exist, and others.
        const std::uint64_t value = other.below(2) == 0 ? other.below(2 * kBlocks) : other();
        const std::size_t at = other.below(2) == 0 ? other.below(4096) : other.below(words.size());
        store_relaxed(words[at], static_cast<std::uint32_t>(value));
      }
    });
    for (std::uint64_t i = 0; i < 100; ++i) {
      // Its own keys: it may put and remove others as well. One in many is no request.
      std::string packet;
      detail::RequestHead head{.wish = static_cast<detail::Wish>(random.below(10)),
                               .tier = static_cast<std::uint8_t>(random.below(3)),
                               .key_bytes = 4};
      if (head.wish == detail::Wish::clear) head.wish = detail::Wish::keys;
      const bool is_batch = head.wish <= detail::Wish::get || random.below(20) == 0;
      for (std::uint64_t left = is_batch ? 1 + random.below(66) : 1; left != 0; --left) {
        head.place = static_cast<std::uint32_t>(random.below(64));
        head.byte_count = static_cast<std::uint32_t>(random.below(4097));
        if (random.below(500) == 0) head.wish = static_cast<detail::Wish>(random.below(256) | 16U);
        if (random.below(500) == 0) head.place = static_cast<std::uint32_t>(random());
        if (random.below(500) == 0) head.byte_count = 5000;
        if (random.below(500) == 0) head.key_bytes = static_cast<std::uint16_t>(random());
        if (random.below(500) == 0) ++head.tier;
        packet.append(reinterpret_cast<const char*>(&head), sizeof(head)).append("xxx");
        packet.push_back(static_cast<char>('a' + random.below(20)));
      }
      static_cast<void>(raw.socket.send(std::as_bytes(std::span(packet))));
      ASSERT_EQ(put(*good, i % 20, i + 1), Outcome::done);
      ASSERT_EQ(get(*good, i % 20), i + 1);
    }
    ends.store_relaxed(true);  // As above.
    scribbler.join();
    ::munmap(mine, bytes);
  }
  EXPECT_EQ(put(*good, 1, 3), Outcome::done);
}

TEST_F(Shared, HistoriesOfSeveralClientsFollowTheSpecification) {
  make_engine();
  ServeOptions chosen = options();
  chosen.store.tiers.push_back(
      {.capacity = Bytes(4 * kBlocks * kBlockBytes), .path = folder_.file("f")});
  serve(chosen);
  // Each key has one writer, whose versions grow. A get returns one that was not replaced before it
  // began, and was begun before it ended.
  constexpr std::uint64_t kKeys = 96;
  std::array<Atomic<std::uint64_t>, kKeys> begun;
  std::array<Atomic<std::uint64_t>, kKeys> ended;
  std::vector<std::thread> threads;
  constexpr std::uint64_t kThreads = 3;
  for (std::uint64_t me = 0; me < kThreads; ++me) {
    threads.emplace_back([&, me, seed = test::seed() + me] {
      const auto store = client();
      Random random(seed);
      for (int i = 0; i < 3000; ++i) {
        const std::uint64_t key = random.below(kKeys);
        // edge: test-history (acquire, release)
        if (key % kThreads == me && random.below(2) == 0) {
          const std::uint64_t next = begun[key].load_relaxed() + 1;  // relaxed: written here only.
          begun[key].store_release(next);
          const auto bytes = block_bytes(key, next, kBlockBytes);
          EXPECT_EQ(store->put(std::to_string(key), bytes, random.below(2)).outcome, Outcome::done);
          ended[key].store_release(next);
        } else if (key % 2 == 0) {
          const std::uint64_t least = ended[key].load_acquire();
          const BlockView view = store->view(std::to_string(key));
          const std::optional<std::uint64_t> seen = version_of(key, view.bytes);
          const std::uint64_t most = begun[key].load_acquire();
          EXPECT_TRUE(seen.has_value() || least == 0);
          EXPECT_GE(seen.value_or(0), least) << "key " << key;
          EXPECT_LE(seen.value_or(0), most) << "key " << key;
        } else {
          const std::uint64_t least = ended[key].load_acquire();
          const std::uint64_t seen = get(*store, key);
          EXPECT_GE(seen, least) << "key " << key;
          EXPECT_LE(seen, begun[key].load_acquire()) << "key " << key;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace headrace::store
