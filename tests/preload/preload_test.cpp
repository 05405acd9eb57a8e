// SPDX-License-Identifier: Apache-2.0
// Programs under the preload: correct in every situation and with every profile, and counted.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "headrace/copy/profile.hpp"
#include "inject/copy/counters.hpp"
#include "support/seed.hpp"

namespace headrace::preload {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

/// How a program ended, and what it printed on stdout and stderr.
struct Ending {
  int status = 0;
  std::string said;
  [[nodiscard]] int exit_code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }
  [[nodiscard]] int signal() const { return WIFSIGNALED(status) ? WTERMSIG(status) : 0; }
};

Ending run(const std::vector<std::string>& words, const Environment& environment) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {.status = -1, .said = "no pipe"};
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    ::unsetenv("LD_PRELOAD");
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::alarm(60);
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  Ending ending;
  std::array<char, 4096> chunk{};
  for (;;) {
    const ssize_t got = ::read(ends[0], chunk.data(), chunk.size());
    if (got <= 0) break;
    ending.said.append(chunk.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  ::waitpid(child, &ending.status, 0);
  return ending;
}

/// The launcher's file.
class CountersFile {
 public:
  CountersFile() : descriptor_(::memfd_create("headrace-counters", 0)) {
    EXPECT_EQ(::ftruncate(descriptor_, sizeof(Counters)), 0);
    counters_ = static_cast<Counters*>(
        ::mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0));
    counters_->magic = kCountersMagic;
    counters_->byte_count = sizeof(Counters);
  }
  CountersFile(const CountersFile&) = delete;
  CountersFile& operator=(const CountersFile&) = delete;
  ~CountersFile() {
    ::munmap(counters_, sizeof(Counters));
    ::close(descriptor_);
  }
  [[nodiscard]] Counters& counters() { return *counters_; }
  [[nodiscard]] std::string path() const {
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(descriptor_);
  }
  [[nodiscard]] std::uint64_t calls(Function function, Path path) const {
    std::uint64_t count = 0;
    for (const Stripe& stripe : counters_->stripes) {
      for (const Cell& cell :
           stripe.cells[static_cast<std::size_t>(function)][static_cast<std::size_t>(path)]) {
        count += cell.call_count.load_relaxed();
      }
    }
    return count;
  }

 private:
  int descriptor_;
  Counters* counters_ = nullptr;
};

/// Every class from 64 bytes on, each a different variant; the library would leave wide ones out.
copy::Profile profile_of_all() {
  copy::Profile profile{.machine = copy::this_machine(), .classes = {}};
  for (unsigned bits = 6; bits < 20; ++bits) {
    auto grid = copy::variants_for((std::size_t{1} << (bits - 1)) + 1);
    std::erase_if(grid, [](const auto& each) { return each.through == copy::Register::zmm; });
    copy::SizeClass made{.bytes_max = std::uint64_t{1} << bits, .variant = {}};
    if (!grid.empty()) made.variant = grid[(bits * 7919U) % grid.size()];
    profile.classes.push_back(made);
    // Kernels as well, in rotation.
    const auto fill = static_cast<copy::FillKernel>(bits % copy::kFillKernelCount);
    const auto compare = static_cast<copy::CompareKernel>(bits % copy::kCompareKernelCount);
    profile.fills.push_back({.bytes_max = made.bytes_max, .kernel = {}});
    if (copy::fill_of(fill) != nullptr) profile.fills.back().kernel = fill;
    profile.comparisons.push_back({.bytes_max = made.bytes_max, .kernel = {}});
    if (copy::first_difference_of(compare) != nullptr) {
      profile.comparisons.back().kernel = compare;
    }
  }
  return profile;
}

class Preload : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            ("headrace-preload-" + std::to_string(::getpid()) + ".json");
    // Made once: the grids are large.
    static const copy::Profile kProfile = profile_of_all();
    tuned_ = std::ranges::any_of(kProfile.classes,
                                 [](const auto& each) { return each.variant.has_value(); });
    write(copy::to_json(kProfile));
  }
  void TearDown() override {
    std::filesystem::remove(path_);
    std::filesystem::remove(path_.string() + ".counts");
  }

  void write(const std::string& text) const { std::ofstream(path_) << text; }
  [[nodiscard]] virtual Environment with(Environment more = {}) const {
    more.emplace_back("LD_PRELOAD", HEADRACE_PRELOAD);
    more.emplace_back("HEADRACE_PROFILE", path_.string());
    return more;
  }
  /// Runs a scenario, "name" or "name repetitions", of the victim or of another program, without
  /// and with counting.
  void expect_fine(const std::string& scenario, const std::string& program = HEADRACE_VICTIM) {
    std::vector<std::string> words{program};
    std::istringstream all(scenario);
    for (std::string word; all >> word;) words.push_back(word);
    for (const bool counted : {false, true}) {
      CountersFile file;
      Environment more;
      if (counted) more.emplace_back("HEADRACE_COUNTERS", file.path());
      const Ending ending = run(words, with(std::move(more)));
      EXPECT_EQ(ending.exit_code(), 0) << ending.said << ", signal " << ending.signal();
      EXPECT_EQ(file.counters().program_count.load_relaxed() > 0, counted);
      if (counted && tuned_) {
        EXPECT_GT(file.calls(Function::memcpy, Path::tuned), 0U);
        EXPECT_GT(file.calls(Function::memset, Path::tuned), 0U);
        EXPECT_GT(file.calls(Function::memcmp, Path::tuned), 0U);
      }
    }
  }

  std::filesystem::path path_;
  bool tuned_ = false;
};

/// The preload's functions linked into the program, so that this build's sanitizers see them.
class PreloadInside : public Preload {
 protected:
  [[nodiscard]] Environment with(Environment more) const override {
    more.emplace_back("HEADRACE_PROFILE", path_.string());
    return more;
  }
};

TEST_F(PreloadInside, IsRightInEverySituation) {
  for (const char* const scenario :
       {"all_lengths", "threads 5", "handlers 50", "forks", "forks_meanwhile"}) {
    SCOPED_TRACE(scenario);
    expect_fine(scenario, HEADRACE_INSIDE);
  }
  for (const char* const scenario :
       {"forking_handlers", "copy_from_nowhere", "copy_to_nowhere", "overflow"}) {
    // A child of fork gets a thread of TSan's, which allocates: in a handler, too.
    const Ending ending =
        run({HEADRACE_INSIDE, scenario}, with({{"TSAN_OPTIONS", "report_signal_unsafe=0"}}));
    EXPECT_EQ(ending.exit_code(), 0) << scenario << ending.said << ", signal " << ending.signal();
  }
}

TEST_F(Preload, MovesFillsAndComparesEveryLength) {
  expect_fine("all_lengths");
}
TEST_F(Preload, ServesWhileLibrariesAreRelocatedAndConstructed) {
  expect_fine("early");
}
TEST_F(Preload, ServesThreads) {
  expect_fine("threads");
}
TEST_F(Preload, ServesSignalHandlers) {
  expect_fine("handlers");
}
TEST_F(Preload, ServesChildrenOfForkAndVfork) {
  expect_fine("forks");
}

TEST_F(Preload, ServesAProgramThatPreloadsAnEarlierLibrary) {
  const Ending ending = run({HEADRACE_VICTIM, "some_lengths"},
                            {{"LD_PRELOAD", std::string(HEADRACE_EARLY) + ":" + HEADRACE_PRELOAD},
                             {"HEADRACE_PROFILE", path_.string()}});
  EXPECT_EQ(ending.exit_code(), 0) << ending.said;
}

TEST_F(Preload, TracesAndExceptionsGoThroughCopies) {
  const Ending without = run({HEADRACE_VICTIM, "unwinds"}, {});
  EXPECT_EQ(without.exit_code(), 0) << without.said << ", signal " << without.signal();
  for (const bool counted : {false, true}) {
    CountersFile file;
    Environment more;
    if (counted) more.emplace_back("HEADRACE_COUNTERS", file.path());
    const Ending ending = run({HEADRACE_VICTIM, "unwinds"}, with(std::move(more)));
    EXPECT_EQ(ending.exit_code(), 0) << ending.said << ", signal " << ending.signal();
  }
}

TEST_F(Preload, ServesAnotherMalloc) {
  const char* const jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
  if (!std::filesystem::exists(jemalloc)) GTEST_SKIP() << "libjemalloc2 is not installed";
  for (const bool first : {false, true}) {
    const std::string both = first ? std::string(jemalloc) + ":" + HEADRACE_PRELOAD
                                   : std::string(HEADRACE_PRELOAD) + ":" + jemalloc;
    const Ending ending = run({HEADRACE_VICTIM, "threads"},
                              {{"LD_PRELOAD", both}, {"HEADRACE_PROFILE", path_.string()}});
    EXPECT_EQ(ending.exit_code(), 0) << ending.said;
  }
}

#if defined(HEADRACE_EMULATOR)

/// The same on emulated devices: every copy from 4 KiB on is shared with one.
class PreloadWithDevice : public Preload {
 protected:
  void SetUp() override {
    Preload::SetUp();
    const Ending tried = run(emulated({"true"}), {});
    if (tried.exit_code() != 0) GTEST_SKIP() << tried.said;
  }
  [[nodiscard]] std::vector<std::string> emulated(const std::vector<std::string>& words) const {
    std::vector<std::string> all{HEADRACE_EMULATOR, "--preload", HEADRACE_TRAP};
    if (!faults_.empty()) {
      const std::string path = path_.string() + ".faults";
      std::ofstream(path) << faults_;
      all.insert(all.end(), {"--faults", path});
    }
    all.emplace_back("--");
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }
  /// Command line of the victim, with the preload above the emulator's.
  [[nodiscard]] std::vector<std::string> victim(const std::string& scenario,
                                                const CountersFile* file,
                                                const std::string& path = "dsa") const {
    std::string script =
        "export LD_PRELOAD=" HEADRACE_PRELOAD ":$LD_PRELOAD HEADRACE_PATH=" + path +
        " HEADRACE_PROFILE=" + path_.string();
    if (path == "dsa") script += " HEADRACE_MIN_BYTES=4096";
    if (file != nullptr) script += " HEADRACE_COUNTERS=" + file->path();
    return emulated({"sh", "-c", script + "; exec " HEADRACE_VICTIM " " + scenario});
  }
  void expect_fine_with_device(const std::string& scenario) {
    const Ending uncounted = run(victim(scenario, nullptr), {});
    EXPECT_EQ(uncounted.exit_code(), 0) << uncounted.said << ", signal " << uncounted.signal();
    CountersFile file;
    const Ending ending = run(victim(scenario, &file), {});
    EXPECT_EQ(ending.exit_code(), 0) << ending.said << ", signal " << ending.signal();
    EXPECT_GT(file.calls(Function::memcpy, Path::dsa), 0U);
    EXPECT_GT(file.calls(Function::memset, Path::dsa), 0U);
    EXPECT_GT(file.calls(Function::memcmp, Path::dsa), 0U);
    EXPECT_GT(file.counters().device.bytes.load_relaxed(), 0U);
    EXPECT_EQ(file.counters().device.errors.load_relaxed(), 0U);
    EXPECT_EQ(file.counters().device.lost.load_relaxed(), 0U);
    EXPECT_THAT(file.counters().note.data(), ::testing::HasSubstr("are shared with 1 DSA"));
  }
  void TearDown() override {
    std::filesystem::remove(path_.string() + ".faults");
    Preload::TearDown();
  }

  std::string faults_;  ///< The emulator's script of them.
};

TEST_F(PreloadWithDevice, MovesFillsAndComparesEveryLength) {
  expect_fine_with_device("all_lengths");
}
TEST_F(PreloadWithDevice, ServesWhileLibrariesAreRelocatedAndConstructed) {
  expect_fine_with_device("early");
}
TEST_F(PreloadWithDevice, ServesThreads) {
  expect_fine_with_device("threads 3");
}
TEST_F(PreloadWithDevice, ServesSignalHandlers) {
  expect_fine_with_device("handlers 20");
}
TEST_F(PreloadWithDevice, ServesChildrenOfForkAndVfork) {
  expect_fine_with_device("forks");
}
TEST_F(PreloadWithDevice, AChildOfForkOpensPortalsOfItsOwn) {
  expect_fine_with_device("forked_copy");
}
TEST_F(PreloadWithDevice, ForkingAndExecutingDisturbNoThreadsCopies) {
  expect_fine_with_device("forks_meanwhile");
}
TEST_F(PreloadWithDevice, AHandlerThatForksWithinACopyLeavesTwoRightCopies) {
  expect_fine_with_device("forking_handlers 10");
}
#if !defined(__SANITIZE_THREAD__)  // The emulated device is in a library that TSan does not see.
TEST_F(PreloadWithDevice, TheFunctionsInsideAreRight) {
  // The emulator's signals are not AddressSanitizer's to handle.
  const char* const options =
      "verify_asan_link_order=0:handle_segv=0:handle_sigbus=0:handle_sigill=0";
  for (const char* const scenario : {"all_lengths", "threads", "handlers"}) {
    CountersFile file;
    const Ending ending =
        run(emulated({HEADRACE_INSIDE, scenario, "3"}), {{"HEADRACE_PATH", "dsa"},
                                                         {"HEADRACE_MIN_BYTES", "4096"},
                                                         {"HEADRACE_PROFILE", path_.string()},
                                                         {"HEADRACE_COUNTERS", file.path()},
                                                         {"ASAN_OPTIONS", options}});
    EXPECT_EQ(ending.exit_code(), 0) << scenario << ending.said << ", signal " << ending.signal();
    EXPECT_GT(file.calls(Function::memcpy, Path::dsa), 0U);
    EXPECT_GT(file.calls(Function::memset, Path::dsa), 0U);
    EXPECT_GT(file.calls(Function::memcmp, Path::dsa), 0U);
  }
}
#endif

TEST_F(PreloadWithDevice, ABadAddressEndsTheProgramAsItDoesWithoutUs) {
  for (const char* const scenario : {"copy_from_nowhere", "copy_to_nowhere"}) {
    CountersFile file;
    const Ending ending = run(victim(scenario, &file), {});
    EXPECT_EQ(ending.exit_code(), 0) << ending.said << ", signal " << ending.signal();
    EXPECT_GT(file.calls(Function::memcpy, Path::dsa), 0U);
  }
}
TEST_F(PreloadWithDevice, AnswersThatAreLostCostAProgramNothingButTime) {
  faults_ = "[[fault]]\nkind = 'lost_completion'\nopcode = 3\nevery = 1\n";
  CountersFile file;
  const Ending ending = run(victim("some_lengths", &file), {{"HEADRACE_ANSWER_SECONDS", "1"}});
  EXPECT_EQ(ending.exit_code(), 0) << ending.said << ", signal " << ending.signal();
  EXPECT_GT(file.counters().device.lost.load_relaxed(), 0U);
}
TEST_F(PreloadWithDevice, AProgramWhoseTargetsADeviceMayWriteToForEverEndsAndSaysWhy) {
  faults_ = "[[fault]]\nkind = 'halt'\nnth = 1\n";
  const Ending ending = run(victim("some_lengths", nullptr), {{"HEADRACE_ANSWER_SECONDS", "1"}});
  EXPECT_TRUE(ending.signal() == SIGABRT || ending.exit_code() == 128 + SIGABRT) << ending.status;
  EXPECT_THAT(ending.said, ::testing::HasSubstr("HEADRACE_ANSWER_SECONDS"));
}
TEST_F(PreloadWithDevice, ItDoesNotSayWhyIntoWhatIsNowAFileOfData) {
  faults_ = "[[fault]]\nkind = 'halt'\nnth = 1\n";
  const Ending ending =
      run(victim("data_where_messages_were", nullptr), {{"HEADRACE_ANSWER_SECONDS", "1"}});
  EXPECT_EQ(ending.exit_code(), 0) << ending.said << ", signal " << ending.signal();
}
TEST_F(PreloadWithDevice, AProgramThatAllowsNoSystemCallsIsServed) {
  expect_fine_with_device("confined");
}

TEST_F(PreloadWithDevice, WithoutAThresholdOfTheProfileAutoLeavesDevicesAlone) {
  for (const char* const path : {"auto", "cpu"}) {
    CountersFile file;
    EXPECT_EQ(run(victim("some_lengths", &file, path), {}).exit_code(), 0);
    EXPECT_EQ(file.calls(Function::memcpy, Path::dsa), 0U);
    EXPECT_EQ(file.counters().device_count.load_relaxed(), 0U);
  }
  auto profile = copy::load_profile(path_.string());
  ASSERT_TRUE(profile.has_value());
  profile->dsa_bytes_min = 60'000;
  write(copy::to_json(*profile));
  CountersFile file;
  EXPECT_EQ(run(victim("some_lengths", &file, "auto"), {}).exit_code(), 0);
  EXPECT_GT(file.calls(Function::memcpy, Path::dsa), 0U);
  for (const Stripe& stripe : file.counters().stripes) {
    const auto& cells =
        stripe
            .cells[static_cast<std::size_t>(Function::memcpy)][static_cast<std::size_t>(Path::dsa)];
    // Class 15 is the first with lengths from 60000 on.
    for (std::size_t i = 0; i < 15; ++i) EXPECT_EQ(cells[i].call_count.load_relaxed(), 0U);
  }
}

#endif  // HEADRACE_EMULATOR

TEST_F(Preload, WithoutDevicesCopiesAreTheProcessors) {
  if (std::filesystem::exists("/dev/dsa")) GTEST_SKIP() << "this machine may have devices";
  CountersFile file;
  const Ending ending = run({HEADRACE_VICTIM, "some_lengths"},
                            with({{"HEADRACE_COUNTERS", file.path()}, {"HEADRACE_PATH", "dsa"}}));
  EXPECT_EQ(ending.exit_code(), 0) << ending.said;
  EXPECT_EQ(ending.said, "");
  EXPECT_EQ(file.calls(Function::memcpy, Path::dsa), 0U);
  EXPECT_THAT(file.counters().note.data(), ::testing::HasSubstr("there is no DSA work queue"));
}

TEST_F(Preload, AnOverflowEndsTheProgramAsItDoesWithoutUs) {
  EXPECT_EQ(run({HEADRACE_VICTIM, "overflow"}, with()).exit_code(), 0);
}

TEST_F(Preload, CountsProgramsThatClosedEverythingAndWereKilled) {
  for (const auto& [scenario, number] :
       {std::pair{"sigterm", SIGTERM}, std::pair{"sigkill", SIGKILL}}) {
    CountersFile file;
    const Ending ending =
        run({HEADRACE_VICTIM, scenario}, with({{"HEADRACE_COUNTERS", file.path()}}));
    EXPECT_EQ(ending.signal(), number) << ending.said;
    EXPECT_GT(file.calls(Function::memset, Path::libc), 0U);
    EXPECT_GT(file.calls(Function::memcmp, Path::libc), 0U);
    EXPECT_GT(file.calls(Function::memmove, Path::libc), 0U);
  }
}

TEST_F(Preload, CountsEveryProgramThatIsExecuted) {
  CountersFile file;
  const Ending ending =
      run({"sh", "-c", std::string(HEADRACE_VICTIM) + " some_lengths; /bin/true; exec /bin/true"},
          with({{"HEADRACE_COUNTERS", file.path()}}));
  EXPECT_EQ(ending.exit_code(), 0) << ending.said;
  EXPECT_EQ(file.counters().program_count.load_relaxed(), 4U);
  EXPECT_EQ(file.counters().tuned_count.load_relaxed(), tuned_ ? 4U : 0U);
  EXPECT_THAT(file.counters().note.data(), ::testing::HasSubstr(path_.string()));
}

TEST_F(Preload, StrangeCountersAreLeftAlone) {
  const std::string text(sizeof(Counters), 'x');
  write(text);
  for (const std::string& path : {path_.string(), std::string("/dev/zero"), std::string("/"),
                                  std::string("/nonexistent"), std::string(HEADRACE_VICTIM)}) {
    const Ending ending = run({HEADRACE_VICTIM, "some_lengths"},
                              {{"LD_PRELOAD", HEADRACE_PRELOAD}, {"HEADRACE_COUNTERS", path}});
    EXPECT_EQ(ending.exit_code(), 0) << ending.said;
  }
  std::ifstream file(path_);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), text);
}

TEST_F(Preload, CopiesBelowTheWantedLengthAreTheCLibrarys) {
  if (!tuned_) GTEST_SKIP() << "nothing is generated here";
  CountersFile file;
  const Ending ending =
      run({HEADRACE_VICTIM, "some_lengths"},
          with({{"HEADRACE_COUNTERS", file.path()}, {"HEADRACE_MIN_BYTES", "60000"}}));
  EXPECT_EQ(ending.exit_code(), 0) << ending.said;
  std::uint64_t tuned = 0;
  for (const Stripe& stripe : file.counters().stripes) {
    const auto& cells = stripe.cells[static_cast<std::size_t>(Function::memcpy)]
                                    [static_cast<std::size_t>(Path::tuned)];
    for (std::size_t i = 0; i < kLengthClassCount; ++i) {
      const std::uint64_t calls = cells[i].call_count.load_relaxed();
      tuned += calls;
      // Class 15 is the first with lengths from 60000 on.
      EXPECT_TRUE(i >= 15 || calls == 0) << i;
    }
  }
  EXPECT_GT(tuned, 0U);
}

TEST_F(Preload, ShortCopiesUseRegistersOf64BytesWhereTheyCostNothing) {
  copy::Variant wide;
  wide.through = copy::Register::zmm;
  if (!copy::can_run(wide)) GTEST_SKIP() << "this processor has none";
  copy::Profile profile{
      .machine = copy::this_machine(),
      .classes = {{.bytes_max = 4096, .variant = wide}, {.bytes_max = 131072, .variant = wide}}};
  // Unknown, high, and none.
  for (const std::optional<double> cost : {std::optional<double>(), {1.9}, {1.05}}) {
    profile.wide_cost = cost;
    write(copy::to_json(profile));
    CountersFile file;
    const Ending ending =
        run({HEADRACE_VICTIM, "some_lengths"}, with({{"HEADRACE_COUNTERS", file.path()}}));
    EXPECT_EQ(ending.exit_code(), 0) << ending.said;
    EXPECT_EQ(file.calls(Function::memcpy, Path::tuned) > 0, cost == 1.05);
    EXPECT_GT(file.calls(Function::memcpy, Path::libc), 0U);
  }
}

TEST_F(Preload, CopiesLookWhetherBytesAreColdOnDemandOnly) {
  const copy::Variant cold{.store_nontemporal = true};
  if (!copy::can_run(cold)) GTEST_SKIP() << "this processor cannot";
  write(copy::to_json(
      {.machine = copy::this_machine(),
       .classes = {{.bytes_max = 131072, .variant = std::nullopt, .cold_variant = cold}},
       .cold_probe = copy::ColdProbe{.ticks_min = 1, .ticks_max = 1U << 20U}}));
  for (const bool looks : {false, true}) {
    CountersFile file;
    Environment more{{"HEADRACE_COUNTERS", file.path()}};
    if (looks) more.emplace_back("HEADRACE_PROBE", "1");
    const Ending ending = run({HEADRACE_VICTIM, "some_lengths"}, with(std::move(more)));
    EXPECT_EQ(ending.exit_code(), 0) << ending.said;
    EXPECT_EQ(file.calls(Function::memcpy, Path::tuned) > 0, looks);
  }
}

TEST_F(Preload, ABadProfileLeavesTheCLibrarysCopies) {
  std::string foreign;
  {
    std::ifstream file(path_);
    foreign.assign(std::istreambuf_iterator<char>(file), {});
  }
  const std::string cut = foreign.substr(0, foreign.size() / 2);
  const std::size_t family = foreign.find("\"family\": ");
  foreign.insert(family + 10, "9");
  std::string version = cut;
  if (const std::size_t at = version.find("\"version\": 1"); at != std::string::npos) {
    version.insert(at + 12, "7");
  }
  const std::string deep(500'000, '[');
  const std::string huge(std::size_t{3} << 20U, ' ');
  for (const std::string& text : {std::string(), std::string("{}"), cut, foreign, version, deep,
                                  huge, std::string("\xff\xfe\0x", 4)}) {
    write(text);
    CountersFile file;
    const Ending ending =
        run({HEADRACE_VICTIM, "some_lengths"}, with({{"HEADRACE_COUNTERS", file.path()}}));
    EXPECT_EQ(ending.exit_code(), 0) << ending.said << text.substr(0, 40);
    EXPECT_EQ(ending.said, "");
    EXPECT_EQ(file.counters().program_count.load_relaxed(), 1U);
    EXPECT_EQ(file.counters().tuned_count.load_relaxed(), 0U);
    EXPECT_EQ(file.calls(Function::memcpy, Path::tuned), 0U);
    EXPECT_THAT(file.counters().note.data(), ::testing::HasSubstr("cannot"));
    EXPECT_THAT(file.counters().note.data(), ::testing::HasSubstr(path_.string()));
  }
}

TEST_F(Preload, AProfileThatIsNoFileKeepsNobodyWaiting) {
  const std::string pipe = path_.string() + "-pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/ptmx"), std::string("/")}) {
    CountersFile file;
    const Ending ending =
        run({HEADRACE_VICTIM, "some_lengths"}, {{"LD_PRELOAD", HEADRACE_PRELOAD},
                                                {"HEADRACE_PROFILE", path},
                                                {"HEADRACE_COUNTERS", file.path()}});
    EXPECT_EQ(ending.exit_code(), 0) << path << ending.said;
    EXPECT_THAT(file.counters().note.data(), ::testing::HasSubstr(path));
  }
  std::filesystem::remove(pipe);
}

TEST_F(Preload, APathThatIsNoneIsTold) {
  CountersFile file;
  const Ending ending = run({HEADRACE_VICTIM, "some_lengths"},
                            with({{"HEADRACE_COUNTERS", file.path()}, {"HEADRACE_PATH", "DSA"}}));
  EXPECT_EQ(ending.exit_code(), 0) << ending.said;
  EXPECT_THAT(file.counters().note.data(), ::testing::HasSubstr("HEADRACE_PATH is 'DSA'"));
}

TEST_F(Preload, AProfileWithNothingBetterIsTold) {
  write(copy::to_json({.machine = copy::this_machine(),
                       .classes = {{.bytes_max = 4096, .variant = std::nullopt}}}));
  CountersFile file;
  const Ending ending =
      run({HEADRACE_VICTIM, "some_lengths"}, with({{"HEADRACE_COUNTERS", file.path()}}));
  EXPECT_EQ(ending.exit_code(), 0) << ending.said;
  EXPECT_EQ(file.counters().tuned_count.load_relaxed(), 0U);
  EXPECT_THAT(file.counters().note.data(), ::testing::HasSubstr("nothing better"));
}

TEST_F(Preload, WithoutExecutableMemoryCopiesAreTheCLibrarys) {
  if (!tuned_) GTEST_SKIP() << "nothing is generated here";
  CountersFile file;
  const Ending ending = run({HEADRACE_VICTIM, "without_executable_memory"},
                            with({{"HEADRACE_COUNTERS", file.path()}}));
  EXPECT_EQ(ending.exit_code(), 0) << ending.said;
  EXPECT_EQ(file.counters().program_count.load_relaxed(), 2U);
  EXPECT_EQ(file.counters().tuned_count.load_relaxed(), 1U);  // Before the exec.
}

/// For a process of this program under valgrind, whose processor is another one.
TEST(Machine, IsPrinted) {
  std::puts(copy::to_json({.machine = copy::this_machine(), .classes = {}}).c_str());
}

/// What valgrind counts.
struct Cost {
  double instructions = 0;
  double loads = 0;
};

std::vector<std::string> under_valgrind(const std::vector<std::string>& words,
                                        const std::filesystem::path& output = "/dev/null") {
  std::vector<std::string> all{"valgrind",
                               "--tool=callgrind",
                               "--cache-sim=yes",
                               "--dump-after=headrace_counted_until_here",
                               "--combine-dumps=yes",
                               "--callgrind-out-file=" + output.string()};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

/// Of one call with each length, in one program: to start valgrind takes longer than to count.
std::vector<Cost> costs_of(const std::string& scenario, const std::vector<std::size_t>& lengths,
                           const Environment& environment, const std::filesystem::path& output) {
  constexpr int kCount = 1000;
  std::vector<std::string> words{HEADRACE_VICTIM, scenario};
  for (const std::size_t length : lengths) words.push_back(std::to_string(length));
  words.push_back(std::to_string(kCount));
  const Ending ending = run(under_valgrind(words, output), environment);
  EXPECT_EQ(ending.exit_code(), 0) << ending.said;
  std::ifstream dumps(output);
  std::vector<Cost> costs;
  for (std::string line; std::getline(dumps, line);) {
    if (!line.starts_with("summary:")) continue;
    std::istringstream numbers(line.substr(8));
    Cost& cost = costs.emplace_back();
    numbers >> cost.instructions >> cost.loads;
    cost.instructions /= kCount;
    cost.loads /= kCount;
  }
  // Before, and of, each length; and the end of the program.
  EXPECT_EQ(costs.size(), 2 * lengths.size() + 1) << ending.said;
  costs.resize(2 * lengths.size() + 1);
  for (std::size_t i = 0; i < lengths.size(); ++i) costs[i] = costs[2 * i + 1];
  costs.resize(lengths.size());
  return costs;
}

/// With a profile for the processor that valgrind makes.
class PreloadInstructions : public Preload {
 protected:
  void SetUp() override {
    Preload::SetUp();
    const Ending here =
        run(under_valgrind({std::filesystem::read_symlink("/proc/self/exe").string(),
                            "--gtest_filter=Machine.IsPrinted"}),
            {});
    if (here.exit_code() == 127) GTEST_SKIP() << "valgrind is not installed";
    const std::size_t begin = here.said.find("{\n");
    ASSERT_NE(begin, std::string::npos) << here.said;
    auto profile = copy::parse_profile(here.said.substr(begin, here.said.rfind('}') + 1 - begin));
    ASSERT_TRUE(profile.has_value()) << profile.error().message() << here.said;
    const auto variant = [](const std::string& through, int block) {
      return *copy::parse_variant(through + " load=t store=t prefetch=none block=" +
                                  std::to_string(block) + " align=target forward streams=1");
    };
    profile_ = *profile;
    profile_.classes = {{.bytes_max = 128, .variant = variant("ymm", 1)},
                        {.bytes_max = 256, .variant = variant("ymm", 2)},
                        {.bytes_max = 512, .variant = {}},
                        {.bytes_max = 1024, .variant = variant("xmm", 1)},
                        {.bytes_max = 2048, .variant = {}}};
  }
  [[nodiscard]] std::vector<Cost> costs(const std::string& scenario,
                                        const std::vector<std::size_t>& lengths,
                                        const Environment& environment) const {
    return costs_of(scenario, lengths, environment, path_.string() + ".counts");
  }
  /// Calls take at most so many instructions more than the C library's, and no more loads.
  void expect_more(const std::string& scenario,
                   const std::vector<std::pair<std::size_t, int>>& more_by_length,
                   const Environment& environment) {
    write(copy::to_json(profile_));
    std::vector<std::size_t> lengths;
    for (const auto& [length, more] : more_by_length) lengths.push_back(length);
    const std::vector<Cost> libc = costs(scenario, lengths, {});
    const std::vector<Cost> ours = costs(scenario, lengths, environment);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const int more = more_by_length[i].second;
      EXPECT_GT(libc[i].instructions, 4) << scenario << lengths[i];
      EXPECT_LE(ours[i].instructions, libc[i].instructions + more) << scenario << lengths[i];
      EXPECT_LE(ours[i].loads, libc[i].loads) << scenario << lengths[i] << ": only the bytes";
    }
  }

  copy::Profile profile_;
};

TEST_F(PreloadInstructions, ACopyThatStaysTakesFourMoreAndAShortOneOfOursNone) {
  expect_more("copy_repeatedly",
              {{3, 4}, {16, 4}, {32, 4}, {64, 4}, {128, 0}, {256, 0}, {512, 4}, {2048, 4}}, with());
  EXPECT_GT(costs("copy_repeatedly", {1024}, with())[0].instructions,
            costs("copy_repeatedly", {1024}, {})[0].instructions + 20)
      << "the profile is used";
  const Environment unused{{"LD_PRELOAD", HEADRACE_PRELOAD}, {"HEADRACE_PROFILE", "none"}};
  EXPECT_EQ(run({HEADRACE_VICTIM, "some_lengths"}, unused).exit_code(), 0);
  expect_more("copy_repeatedly", {{64, 4}}, unused);
}

TEST_F(PreloadInstructions, AFillIsInlineUpTo256BytesAndAComparisonTheCLibrarys) {
  expect_more(
      "fill_repeatedly",
      {{1, 4}, {3, 4}, {5, 4}, {8, 4}, {16, 4}, {32, 4}, {64, 4}, {128, 4}, {256, 4}, {512, 4}},
      with());
  expect_more("compare_repeatedly", {{8, 0}, {64, 0}, {512, 0}},
              {{"LD_PRELOAD", HEADRACE_PRELOAD_COPIES}, {"HEADRACE_PROFILE", path_.string()}});
}

TEST_F(PreloadInstructions, ALongCopyThatStaysTakesFourMore) {
  profile_.classes = {{.bytes_max = 4096, .variant = {}},
                      {.bytes_max = 16384, .variant = profile_.classes[0].variant}};
  expect_more("copy_repeatedly", {{64, 4}, {512, 4}, {4096, 4}, {32768, 4}}, with());
}

TEST_F(PreloadInstructions, LongClassesPutNoComparesInFrontOfShortCopies) {
  const auto variant = std::exchange(profile_.classes[3].variant, {});
  for (std::uint64_t bytes_max = 4096; bytes_max <= 1U << 25U; bytes_max *= 2) {
    profile_.classes.push_back({.bytes_max = bytes_max, .variant = {}});
    if (std::countr_zero(bytes_max) % 2 == 0) profile_.classes.back().variant = variant;
  }
  expect_more("copy_repeatedly", {{64, 2}, {128, 0}, {2048, 4}}, with());
}

}  // namespace
}  // namespace headrace::preload
