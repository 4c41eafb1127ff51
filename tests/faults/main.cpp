// Faults, systematically: every scenario with every fault that it can have. Each pair is a test, and each scenario a
// suite.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/faults/kinds.h"
#include "tests/faults/scenarios.h"
#include "tests/generators/environment.h"

#ifdef SRJIT_SANITIZED
#include <sanitizer/lsan_interface.h>
#endif

namespace srjit {
namespace {

#ifdef SRJIT_SANITIZED
constexpr std::size_t kEveryPoint = 60, kStride = 29;  // a point takes several times as long
#else
constexpr std::size_t kEveryPoint = 400, kStride = 7;
#endif
constexpr unsigned kSecondsOfPoint = 100;  // a call that hangs ends the process, with the point's name

constexpr std::string_view kHappened = "the fault happened";

char point_name[256] = "no point";

void onSignal(int number) {
  const SparedScope spared;
  constexpr std::string_view kText = "\nwhile trying: ";
  [[maybe_unused]] const auto told = write(STDERR_FILENO, kText.data(), kText.size()) +
                                     write(STDERR_FILENO, point_name, std::strlen(point_name)) +
                                     write(STDERR_FILENO, "\n", 1);
  std::signal(number, SIG_DFL);
  raise(number);
}

std::size_t openFiles() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

bool hasLeaks() {
#ifdef SRJIT_SANITIZED
  return __lsan_do_recoverable_leak_check() != 0;
#else
  return false;
#endif
}

bool isFitting(Errc code) {
  return code == Errc::kMachine || code == Errc::kCompile || code == Errc::kIo || code == Errc::kCancelled;
}

void printCalls(const FakeDriver& driver) {
  std::size_t number = 0;
  for (const FakeCall& call : driver.calls()) {
    fmt::print("{:5} {} stream {} bytes {} {}\n", ++number, call.entry, call.stream, call.bytes, call.detail);
  }
}

class Points {
 public:
  Points(const Scenario& scenario, const FaultKind& kind) : scenario_(scenario), kind_(kind) {}

  /// The points of a run without a fault, whose numbers are the reference.
  std::size_t count() {
    std::size_t points = 0;
    // The second run finds what the first made for the process.
    for (int run = 0; run < 2; ++run) points = tryPoint(0);
    return points;
  }

  /// Whether the fault happened, or how many points there are for n = 0.
  std::size_t tryPoint(std::size_t n) {
    std::snprintf(point_name, sizeof point_name, "%s, fault %s at point %zu", std::string(scenario_.name).c_str(),
                  std::string(kind_.name).c_str(), n);
    SCOPED_TRACE(point_name);
    alarm(kSecondsOfPoint);
    const std::size_t files = openFiles();
    const std::size_t found = run(n);
    alarm(0);
    EXPECT_EQ(openFiles(), files) << "files that stay open";
    if (const std::ptrdiff_t live = liveAllocations(); live > most_live_) {
      most_live_ = live;
      EXPECT_FALSE(n > 0 && hasLeaks());
    }
    return found;
  }

 private:
  std::size_t run(std::size_t n) {
    World world(scenario_.machine());
    const int last = static_cast<int>(scenario_.machine().devices.size()) - 1;
    Calls calls = scenario_.prepare(world);
    Fault fault(kind_, n, world.machine.driver, last);
    const Outcome first = outcomeOf(calls);
    if (n > 0 && numberInEnvironment("SRJIT_FAULT_POINT", 0) == n && (kind_.uses & kGpu) != 0) {
      printCalls(world.machine.driver);
    }
    fault.end();
    EXPECT_TRUE(fault.hasHappened() || first.errors.empty()) << first.errors.front().message;
    const Outcome second = outcomeOf(calls);
    if (reference_.empty()) reference_ = second.numbers;
    check(first, &fault);
    EXPECT_TRUE(kind_.source == FaultKind::Source::kLost || kind_.source == FaultKind::Source::kKernel ||
                second.errors.empty())
        << "later, without faults: " << second.errors.front().message;
    check(second, nullptr);
    dropped(std::move(calls));
    return n == 0 ? fault.points() : fault.hasHappened();
  }

  Outcome outcomeOf(const Calls& calls) const {
    try {
      return calls();
    } catch (const std::bad_alloc&) {
      EXPECT_TRUE(scenario_.may_throw) << "std::bad_alloc from a call that throws nothing";
      return {.numbers = {}, .errors = {{Errc::kMachine, "out of memory", {}}}};
    } catch (const std::exception& failure) {
      ADD_FAILURE() << "an exception: " << failure.what();
      return {.numbers = {}, .errors = {{Errc::kMachine, failure.what(), {}}}};
    }
  }

  void check(const Outcome& outcome, const Fault* fault) const {
    for (const Error& error : outcome.errors) {
      EXPECT_FALSE(error.message.empty());
      EXPECT_TRUE(isFitting(error.code)) << nameOf(error.code) << ": " << error.message;
      EXPECT_EQ(fault == nullptr ? "" : fault->missingIn(error.message), "") << "the message: " << error.message;
    }
    const std::size_t numbers = outcome.numbers.size();
    EXPECT_TRUE(outcome.errors.empty() ? numbers == reference_.size() : numbers <= reference_.size())
        << numbers << " numbers instead of " << reference_.size();
    for (std::size_t i = 0; i < std::min(numbers, reference_.size()); ++i) {
      const double value = outcome.numbers[i];
      const bool is_right = sameBits(value, reference_[i]) || (!outcome.errors.empty() && std::isnan(value));
      EXPECT_TRUE(is_right) << "number " << i << " is " << value << " instead of " << reference_[i];
      if (!is_right) return;
    }
  }

  const Scenario& scenario_;
  const FaultKind& kind_;
  std::vector<double> reference_;
  std::ptrdiff_t most_live_ = 0;
};

/// Threads are started once in a process, so each point has its own, which is this program with SRJIT_FAULT_POINT. Its
/// reference are the calls after the fault.
void tryInProcesses() {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::size_t tried = 0;
  for (std::size_t n = 1; !testing::Test::HasFailure(); ++n) {
    const std::string command = fmt::format("SRJIT_FAULT_POINT={} '{}' --gtest_filter={}.{} 2>&1", n, program,
                                            test.test_suite_name(), test.name());
    std::FILE* const child = popen(command.c_str(), "r");
    ASSERT_NE(child, nullptr);
    std::string text;
    for (int c = 0; (c = std::fgetc(child)) != EOF;) text += static_cast<char>(c);
    EXPECT_EQ(pclose(child), 0) << text;
    if (text.find(kHappened) == std::string::npos) break;
    ++tried;
  }
  EXPECT_GT(tried, 0U) << "the scenario starts no thread";
  fmt::print("{} points of {} were tried\n", tried, tried);
}

/// Runs the scenario with the fault at point n, for n = 1, 2, ... until it no longer happens, each time on a new
/// machine. A run is a preparation without faults, the calls with the fault, the calls again without, and the end of
/// all objects. Fails the test, with scenario, fault and n, unless
/// - the calls gave the bits of a run without faults, or errors of a fitting code that name what failed;
/// - after them the same calls give those bits, or, where a device was lost, errors;
/// - the model of the driver has nothing left that was not freed, the process no more open files than before, and
///   LeakSanitizer, where it is, nothing to report. It is asked where more allocations live than after any point
///   before, and at the end.
/// Where there are more than kEveryPoint points, those of every kStride-th n are tried;
/// SRJIT_FAULT_STRIDE=1 in the environment tries all. SRJIT_FAULT_POINT=n tries only point n, and prints the calls of
/// the driver.
void tryEveryPoint(const Scenario& scenario, const FaultKind& kind) {
  const SparedScope spared;
  Points points(scenario, kind);
  const std::size_t wanted = numberInEnvironment("SRJIT_FAULT_POINT", 0);
  if (kind.uses == kThreads && wanted == 0) return tryInProcesses();
  const std::size_t count = kind.uses == kThreads ? 1 : points.count();
  EXPECT_GT(count, 0U) << "the scenario has no such point: it is not for this kind of fault";
  if (wanted > 0) {
    if (points.tryPoint(wanted) != 0) fmt::print("{}\n", kHappened);
    return;
  }
  const std::size_t chosen = count > kEveryPoint ? kStride : 1;
  const std::size_t stride = std::max<std::size_t>(1, numberInEnvironment("SRJIT_FAULT_STRIDE", chosen));
  std::size_t tried = 0;
  for (std::size_t n = 1; !testing::Test::HasFailure(); n += stride) {
    if (points.tryPoint(n) == 0) break;
    ++tried;
  }
  EXPECT_FALSE(hasLeaks());
  fmt::print("{} points of {} were tried\n", tried, count);
}

/// Makes a process that ends in the middle of a run say in which.
void namePointOfCrash() {
  std::signal(SIGABRT, onSignal);
  std::signal(SIGALRM, onSignal);
#ifndef SRJIT_SANITIZED
  std::signal(SIGSEGV, onSignal);
#endif
}

class EveryPoint : public testing::Test {
 public:
  EveryPoint(const Scenario& scenario, const FaultKind& kind) : scenario_(scenario), kind_(kind) {}
  void TestBody() override { tryEveryPoint(scenario_, kind_); }

 private:
  const Scenario& scenario_;
  const FaultKind& kind_;
};

void registerTests(std::span<const Scenario> scenarios) {
  for (const Scenario& scenario : scenarios) {
    for (const FaultKind& kind : faultKinds()) {
      if ((scenario.uses & kind.uses) != kind.uses) continue;
      testing::RegisterTest(("Faults/" + std::string(scenario.name)).c_str(), std::string(kind.name).c_str(), nullptr,
                            nullptr, __FILE__, __LINE__,
                            [&scenario, &kind]() -> testing::Test* { return new EveryPoint(scenario, kind); });
    }
  }
}

}  // namespace
}  // namespace srjit

int main(int count, char** arguments) {
  // Scratch folders in memory, if the system has them there: the speed of a disk is not tested.
  if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
  srjit::namePointOfCrash();
  testing::InitGoogleTest(&count, arguments);
  for (const auto scenarios :
       {srjit::gpuScenarios(), srjit::hostScenarios(), srjit::fileScenarios(), srjit::cScenarios()}) {
    srjit::registerTests(scenarios);
  }
  return RUN_ALL_TESTS();
}
