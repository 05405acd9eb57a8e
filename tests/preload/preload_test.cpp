// SPDX-License-Identifier: Apache-2.0
// Programs under the preload: correct in every situation and with every profile, and counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
#include "program.hpp"
#include "support/seed.hpp"

namespace headrace::preload {
namespace {

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
  void TearDown() override { std::filesystem::remove(path_); }

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

#if defined(HEADRACE_INSIDE)

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

#endif  // HEADRACE_INSIDE

TEST_F(Preload, MovesFillsAndComparesEveryLength) {
  expect_fine("all_lengths");
}
TEST_F(Preload, ServesWhileLibrariesAreRelocatedAndConstructed) {
  expect_fine("early");
}
TEST_F(Preload, ServesThreads) {
  expect_fine("threads 5");
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
    const Ending ending = run({HEADRACE_VICTIM, "threads", "5"},
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
  expect_fine_with_device("forking_handlers 4");
}
#if defined(HEADRACE_INSIDE) && \
    !defined(__SANITIZE_THREAD__)  // The emulated device is in a library that TSan does not see.
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

}  // namespace
}  // namespace headrace::preload
