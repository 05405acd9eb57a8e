// SPDX-License-Identifier: Apache-2.0
// Shared stores whose processes are forked, interrupted or killed, or have no descriptors left.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include <filesystem>
#include <thread>

#include "shared_stage.hpp"
#include "store/shared.hpp"

namespace headrace::store {
namespace {

using std::chrono::milliseconds;

TEST_F(Shared, APinEndsWithItsBlock) {
  make_engine();
  serve();
  auto a = client();
  const auto b = client();
  for (std::uint64_t key = 0; key < kBlocks / 8 + 1; ++key) {
    ASSERT_EQ(put(*a, key, 1), Outcome::done);
    EXPECT_TRUE(a->pin(std::to_string(key))) << "its part is free again";
    EXPECT_EQ((key % 2 == 0 ? a : b)->remove(std::to_string(key)), Outcome::done);
  }
  EXPECT_FALSE(a->unpin("0"));
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t key = 0; key < kBlocks / 8; ++key) {
      ASSERT_EQ(put(*a, key, 1), Outcome::done);
      EXPECT_TRUE(a->pin(std::to_string(key)));
    }
    EXPECT_EQ(b->clear(), kBlocks / 8);
  }
  EXPECT_EQ(b->statistics().clients.at(0).pins, 0U);
  // The end of a client ends no pin that another has set since.
  ASSERT_EQ(put(*b, 1, 1), Outcome::done);
  EXPECT_TRUE(a->pin("1"));
  EXPECT_EQ(b->remove("1"), Outcome::done);
  ASSERT_EQ(put(*b, 1, 2), Outcome::done);
  EXPECT_TRUE(b->pin("1"));
  a.reset();
  while (b->statistics().clients.size() != 1) std::this_thread::yield();
  for (std::uint64_t key = 100; key < 300; ++key) ASSERT_EQ(put(*b, key, 1), Outcome::done);
  EXPECT_EQ(get(*b, 1), 2U);
}

TEST_F(Shared, AChildOfForkKeepsNothingOfAServer) {
  std::array<int, 2> over{};
  ASSERT_EQ(::pipe(over.data()), 0);
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const auto fork_idle = [&] {
    if (::fork() != 0) return;
    ::close(over[1]);
    char end = 0;
    // It has closed by now what it shall not keep; its parent may be faster.
    if (::write(ready[1], "f", 1) != 1) ::_exit(1);
    ::_exit(static_cast<int>(::read(over[0], &end, 1)));
  };
  const pid_t process = ::fork();
  if (process == 0) {
    const auto engine = test::worker_engine();
    const auto server = Server::make(*engine, options());
    const auto mine = connect(*engine, options().socket).value();
    if (::write(ready[1], "r", 1) != 1) ::_exit(1);
    while ((*server)->served().statistics().blocks == 0) std::this_thread::yield();
    fork_idle();
    while (true) ::pause();
  }
  std::array<char, 2> bytes{};
  ASSERT_EQ(::read(ready[0], &bytes[0], 1), 1);
  make_engine();
  const auto store = client();
  EXPECT_EQ(put(*store, 1, 1), Outcome::done);
  ASSERT_EQ(::read(ready[0], &bytes[1], 1), 1);
  kill(process);
  EXPECT_EQ(name(put(*store, 2, 1)), "closed");
  serve();
  EXPECT_EQ(put(*store, 2, 1), Outcome::done);
  fork_idle();
  ASSERT_EQ(::read(ready[0], &bytes[1], 1), 1);
  server_.reset();
  serve();
  EXPECT_EQ(put(*client(), 3, 1), Outcome::done);
  ::close(over[1]);
}

TEST_F(Shared, AServerThatEndsLeavesTheSocketOfAnother) {
  make_engine();
  serve();
  ASSERT_EQ(::rename(folder_.file("socket").c_str(), folder_.file("moved").c_str()), 0);
  ASSERT_EQ(::unlink(folder_.file("socket.lock").c_str()), 0);
  const auto other = Server::make(*engine_, options());
  ASSERT_TRUE(other.has_value());
  server_.reset();
  EXPECT_EQ(Server::make(*engine_, options()).error().code, Code::capacity_exceeded);
  const auto store = client();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(put(*store, 1, 1), Outcome::done);
}

TEST_F(Shared, ACurrentDirectoryThatIsGoneIsAnError) {
  const std::string gone = folder_.file("gone");
  const pid_t child = ::fork();
  if (child == 0) {
    if (::mkdir(gone.c_str(), 0700) != 0 || ::chdir(gone.c_str()) != 0) ::_exit(1);
    ::rmdir(gone.c_str());
    ::_exit(platform::LocalSocket::listen("socket").error().code == Code::not_found ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(Shared, AServerThatEndsSeesTheEndOfClients) {
  make_engine();
  ServeOptions chosen = options();
  chosen.clients_max = 2;
  serve(chosen);
  const auto store = client();
  auto holder = detail::SharedLink::make(chosen.socket, std::chrono::hours(1)).value();
  for (std::uint64_t key = 0; key < kBlocks; ++key) {
    ASSERT_EQ(put(*store, key, 1), Outcome::done);
    EXPECT_TRUE(key < kBlocks / 4 ? holder->find(std::to_string(key)).has_value()
                                  : server_->served().pin(std::to_string(key)));
  }
  for (std::uint64_t key = 0; key < kBlocks / 4; ++key) store->remove(std::to_string(key));
  const auto bytes = block_bytes(100, 1, kBlockBytes);
  const PutBlock last{.key = "100", .source = bytes};
  const Transfer waits = store->put({&last, 1});
  EXPECT_EQ(store->statistics().clients.at(1).leases, kBlocks / 4) << "it has taken the put";
  EXPECT_FALSE(waits.poll());
  std::thread ending([&] { server_.reset(); });
  const ConnectOptions brief{.deadline = milliseconds(20)};
  while (connect(*engine_, chosen.socket, brief).error().code == Code::capacity_exceeded) continue;
  holder.reset();
  waits.wait();
  EXPECT_EQ(name(waits.ends().front().outcome), "done");
  ending.join();
}

TEST_F(Shared, APutOfTheServersProcessWaitsForTheEndOfAView) {
  make_engine();
  ServeOptions chosen = options();
  chosen.clients_max = 1;
  serve(chosen);
  const auto store = client();
  std::vector<BlockView> views;
  for (std::uint64_t key = 0; key < kBlocks; ++key) {
    ASSERT_EQ(put(*store, key, 1), Outcome::done);
    if (key % 2 == 0) views.push_back(store->view(std::to_string(key)));
    EXPECT_TRUE(key % 2 == 0 || store->pin(std::to_string(key)));
  }
  for (std::uint64_t key = 0; key < kBlocks; key += 2) store->remove(std::to_string(key));
  const auto bytes = block_bytes(100, 1, kBlockBytes);
  const PutBlock last{.key = "100", .source = bytes};
  const Transfer waits = server_->served().put({&last, 1});
  EXPECT_FALSE(waits.wait_for(milliseconds(50)));
  views.clear();
  waits.wait();
  EXPECT_EQ(name(waits.ends().front().outcome), "done");
}

TEST_F(Shared, ADeadlineMayBeAsLongOrShortAsItsTypeAllows) {
  make_engine();
  ServeOptions chosen = options();
  chosen.store.tiers.push_back({.capacity = Bytes(kBlocks * kBlockBytes),
                                .path = folder_.file("f"),
                                .deadline = milliseconds::max()});
  serve(chosen);
  const auto store = client({.deadline = milliseconds::max()});
  ASSERT_NE(store, nullptr);
  const auto bytes = block_bytes(1, 1, kBlockBytes);
  EXPECT_EQ(name(store->put("1", bytes, 1).outcome), "done");
  EXPECT_EQ(get(*store, 1), 1U);
  const auto brief = client({.deadline = milliseconds(3)});
  const auto used = [] {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  const auto before = used();
  ::poll(nullptr, 0, 400);
  EXPECT_LT(used() - before, milliseconds(200)) << "a client that waits takes a processor";
}

extern "C" void ignore_signal(int) {}

TEST_F(Shared, ASignalEndsNoWaitForAServer) {
  struct sigaction ignore{};
  ignore.sa_handler = ignore_signal;
  ASSERT_EQ(::sigaction(SIGUSR1, &ignore, nullptr), 0);
  const pid_t server = serve_elsewhere();
  make_engine();
  ::kill(server, SIGSTOP);
  ::waitpid(server, nullptr, WUNTRACED);
  const auto interrupt = [server, self = ::pthread_self()] {
    for (int i = 0; i < 50; ++i) {
      ::poll(nullptr, 0, 2);
      ::pthread_kill(self, SIGUSR1);
    }
    ::kill(server, SIGCONT);
  };
  std::thread first(interrupt);
  EXPECT_NE(client(), nullptr);
  first.join();
  ::kill(server, SIGSTOP);
  ::waitpid(server, nullptr, WUNTRACED);
  std::thread second(interrupt);
  ServeOptions next = options();
  next.replace_within = milliseconds::max();
  serve(next);
  second.join();
  ::waitpid(server, nullptr, 0);
}

TEST_F(Shared, AClientWithoutDescriptorsSaysSo) {
  const pid_t server = serve_elsewhere();
  make_engine();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(0);  // The lowest that is free: that of the socket.
  ::close(next);
  const rlimit one{.rlim_cur = static_cast<rlim_t>(next) + 2, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &one);
  const auto made = connect(*engine_, folder_.file("socket"));
  ::setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(name(made.error().code), "capacity_exceeded") << made.error().message();
  kill(server);
}

TEST_F(Shared, AServerWithoutDescriptorsWaitsAndSaysSo) {
  const pid_t server = serve_elsewhere();
  make_engine();
  rlim_t next = 0;  // The lowest descriptor that is free.
  while (std::filesystem::exists(
      std::filesystem::symlink_status(fmt::format("/proc/{}/fd/{}", server, next)))) {
    ++next;
  }
  rlimit before{};
  ASSERT_EQ(::prlimit(server, RLIMIT_NOFILE, nullptr, &before), 0);
  const auto connect_with = [&](rlim_t free) {
    const rlimit limit{.rlim_cur = next + free, .rlim_max = before.rlim_max};
    ::prlimit(server, RLIMIT_NOFILE, &limit, nullptr);
    return connect(*engine_, folder_.file("socket"), {.deadline = milliseconds(500)});
  };
  clockid_t clock = 0;
  ASSERT_EQ(::clock_getcpuclockid(server, &clock), 0);
  timespec took{};
  ::clock_gettime(clock, &took);
  const std::int64_t begin_ns = took.tv_sec * 1'000'000'000 + took.tv_nsec;
  EXPECT_EQ(name(connect_with(0).error().code), "not_found");
  ::clock_gettime(clock, &took);
  EXPECT_LT(took.tv_sec * 1'000'000'000 + took.tv_nsec - begin_ns, 50'000'000) << "ns of 500 ms";
  const auto refused = connect_with(1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), ::testing::HasSubstr("no memory or descriptor"));
  ::prlimit(server, RLIMIT_NOFILE, &before, nullptr);
  EXPECT_EQ(put(*client(), 1, 1), Outcome::done);
  kill(server);
}

TEST_F(Shared, AClientFindsTheNextServerFromAnotherDirectory) {
  pid_t server = serve_elsewhere();
  make_engine();
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(std::filesystem::path(folder_.file("socket")).parent_path());
  const auto store = connect(*engine_, "socket").value();
  std::filesystem::current_path(before);
  kill(server);
  EXPECT_EQ(name(put(*store, 1, 1)), "closed");
  server = serve_elsewhere();
  EXPECT_EQ(put(*store, 1, 1), Outcome::done);
  kill(server);
}

}  // namespace
}  // namespace headrace::store
