#include "tests/sass_verifier/hazards.h"
#include "compiler/sass/cubin.h"
#include "compiler/target/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

namespace srjit::sass {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint8_t kEnd = kNoBarrier;

/// Instructions by hand.
Instruction make(Form form, std::uint8_t d, std::array<std::uint8_t, 3> sources, unsigned stall,
                 std::uint8_t write = kEnd, std::uint8_t read = kEnd, std::uint8_t wait = 0) {
  Instruction i;
  i.form = form;
  i.destination = d;
  i.sources = sources;
  i.control = {static_cast<std::uint8_t>(stall), false, write, read, wait, 0};
  return i;
}
Instruction compare(std::uint8_t p, std::uint8_t a, std::uint8_t b, unsigned stall) {
  Instruction i = make(Form::kFSetPRR, kZero, {a, b, kZero}, stall);
  i.predicate = p;
  i.modifier = modifierOf(Compare::kLess);
  return i;
}
Instruction guarded(Instruction i, std::uint8_t guard) {
  i.guard = guard;
  return i;
}
Instruction branch(std::int32_t instructions, std::uint8_t guard, unsigned stall = 5) {
  Instruction i = make(Form::kBra, kZero, {kZero, kZero, kZero}, stall);
  i.guard = guard;
  i.immediate = static_cast<std::uint32_t>(instructions * 16);
  return i;
}
Instruction leave() { return make(Form::kExit, kZero, {kZero, kZero, kZero}, 5); }

std::vector<Violation> check(std::span<const Instruction> code, unsigned architecture = 90, unsigned registers = 64,
                             std::span<const std::uint32_t> targets = {}, bool in_order = false) {
  const std::vector<std::optional<Instruction>> optional(code.begin(), code.end());
  return findHazards({optional, architecture, registers, targets, in_order}, 100);
}

std::string text(const std::vector<Violation>& violations) {
  std::string all;
  for (const Violation& v : violations) all += fmt::format("{}: {}\n", v.instruction, v.rule);
  return all;
}

/// Loads, arithmetic, a loop and a store, each waiting no longer than it must.
std::vector<Instruction> tightCode(unsigned architecture) {
  const Architecture& bank = architectureOf(architecture);
  const bool variable = timingOf(descriptorLoadOf(architecture), architecture) == Timing::kVariable;
  Instruction descriptor = make(descriptorLoadOf(architecture), kZero, {kZero, kZero, kZero}, 2, variable ? 1 : kEnd);
  Instruction address = make(Form::kLdc64, 2, {kZero, kZero, kZero}, 1, 0);
  address.immediate = bank.parameters;
  std::vector<Instruction> code = {
      descriptor,
      address,
      make(Form::kMovI, 8, {kZero, kZero, kZero}, 1),                              // 2: count
      make(Form::kLdg, 4, {2, kZero, kZero}, 1, 2, kEnd, variable ? 0b11 : 0b01),  // 3: waits for address, descriptor
      make(Form::kLdg, 5, {2, kZero, kZero}, 2, 2, kEnd),
      make(Form::kFMulRR, 6, {4, 5, kZero}, 4, kEnd, kEnd, 0b100),  // 5: both loads
      make(Form::kFAddRR, 7, {6, 4, kZero}, 4),                     // 6: float after float
      make(Form::kMufuR, 9, {7, kZero, kZero}, 1, 3),               // 7: special after float
      make(Form::kFMulRR, 10, {6, 6, kZero}, 4),
      make(Form::kFAddRR, 11, {9, 10, kZero}, 5, kEnd, kEnd, 0b1000),  // 9
      compare(0, 11, 4, 0),                                            // 10: the loop's end
      make(Form::kFSelRR, 12, {11, 10, kZero}, 1),
      branch(-8, kNot),
      make(Form::kStg, kZero, {2, 12, kZero}, 2, kEnd, 4),  // 13
      make(Form::kMovI, 12, {kZero, kZero, kZero}, 1, kEnd, kEnd, 0b10000),
      leave(),
  };
  code[11].condition = 0;
  const unsigned condition = predicateDelay(Form::kFSetPRR, Form::kFSelRR, false, architecture);
  code[10].control.stall = static_cast<std::uint8_t>(condition);
  code[11].control.stall =
      static_cast<std::uint8_t>(predicateDelay(Form::kFSetPRR, Form::kBra, true, architecture) - condition);
  return code;
}

class SassHazards : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(, SassHazards, ::testing::ValuesIn(directArchitectures().begin(), directArchitectures().end()),
                         [](const auto& made) { return fmt::format("sm_{}", made.param); });

TEST_P(SassHazards, CodeThatWaitsForEverything) {
  const auto found = check(tightCode(GetParam()), GetParam());
  EXPECT_THAT(found, IsEmpty()) << text(found);
}

/// In tight code every wait, barrier and stall counts.
TEST_P(SassHazards, EveryWaitThatIsDroppedIsFound) {
  const std::vector<Instruction> code = tightCode(GetParam());
  std::size_t mutants = 0;
  for (std::size_t at = 0; at < code.size(); ++at) {
    for (unsigned barrier = 0; barrier < 6; ++barrier) {
      if ((code[at].control.wait_mask >> barrier & 1) == 0) continue;
      auto mutant = code;
      mutant[at].control.wait_mask = static_cast<std::uint8_t>(mutant[at].control.wait_mask & ~(1U << barrier));
      EXPECT_FALSE(check(mutant, GetParam()).empty())
          << "without the wait for " << barrier << " at " << at << ": " << print(code[at], true);
      ++mutants;
    }
    for (const auto member : {&Control::write_barrier, &Control::read_barrier}) {
      if (code[at].control.*member == kNoBarrier) continue;
      auto mutant = code;
      mutant[at].control.*member = kNoBarrier;
      EXPECT_FALSE(check(mutant, GetParam()).empty())
          << "without the barrier at " << at << ": " << print(code[at], true);
      ++mutants;
    }
  }
  EXPECT_GE(mutants, 9U);
}

TEST_P(SassHazards, EveryStallThatIsShortenedIsFound) {
  const std::vector<Instruction> code = tightCode(GetParam());
  // A descriptor that signals a barrier need not stall for it here, as the next instruction's barrier is waited for,
  // too.
  const std::vector<std::size_t> tight = {4, 5, 6, 9, 10, 11, 13};
  for (const std::size_t at : tight) {
    auto mutant = code;
    --mutant[at].control.stall;
    EXPECT_FALSE(check(mutant, GetParam()).empty())
        << "with a shorter stall at " << at << ": " << print(code[at], true);
  }
}

TEST(SassHazard, MessagesNameTheRule) {
  const std::vector<Instruction> code = {make(Form::kMovI, 4, {kZero, kZero, kZero}, 4),
                                         make(Form::kFAddRR, 5, {4, 4, kZero}, 1), leave()};
  const auto found = check(code);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].instruction, 1U);
  EXPECT_EQ(found[0].rule, "R4 is read 4 cycles after an ALU instruction wrote it: FADD needs 5");
}

TEST(SassHazard, PredicatesNeedLongerAsGuards) {
  const auto code = [](unsigned stall) {
    return std::vector<Instruction>{compare(2, 0, 1, stall),
                                    guarded(make(Form::kFAddRR, 5, {4, 4, kZero}, 1), kNot + 2), leave()};
  };
  EXPECT_THAT(check(code(13)), IsEmpty());
  EXPECT_THAT(text(check(code(12))), HasSubstr("P2 is read 12 cycles after it was written: FADD needs 13"));
}

Instruction compareDoubles(std::uint8_t p, std::uint8_t a, std::uint8_t b, unsigned stall, std::uint8_t write = kEnd) {
  Instruction i = make(Form::kDSetPRR, kZero, {a, b, kZero}, stall, write);
  i.predicate = p;
  i.modifier = modifierOf(Compare::kLess);
  return i;
}

TEST(SassHazard, DoublesHaveFixedDelaysOnSomeArchitectures) {
  const auto code = [](Form reader, unsigned stall) {
    return std::vector<Instruction>{make(Form::kDAddRR, 4, {2, 2, kZero}, stall),
                                    make(reader, 6, {4, kZero, kZero}, 1, 0), leave()};
  };
  for (const auto& [reader, cycles] : {std::pair(Form::kDAddRR, 8U), {Form::kMovR, 10U}, {Form::kFRndDouble, 10U}}) {
    EXPECT_THAT(check(code(reader, cycles)), IsEmpty());
    EXPECT_FALSE(check(code(reader, cycles - 1)).empty());
  }
  EXPECT_THAT(text(check(code(Form::kMovR, 15), 86)), HasSubstr("R4 is read before the barrier"));
  const auto choice = [](unsigned stall, std::uint8_t barrier, std::uint8_t wait) {
    std::vector<Instruction> choosing = {compareDoubles(2, 4, 6, stall, barrier),
                                         make(Form::kSelRR, 8, {4, 6, kZero}, 1, kEnd, kEnd, wait), leave()};
    choosing[1].condition = 2;
    return choosing;
  };
  EXPECT_THAT(check(choice(6, kEnd, 0)), IsEmpty());
  EXPECT_THAT(text(check(choice(5, kEnd, 0))), HasSubstr("P2 is read 5 cycles after it was written: SEL needs 6"));
  EXPECT_THAT(check(choice(2, 0, 1), 120), IsEmpty());
  EXPECT_THAT(text(check(choice(15, 0, 0), 120)), HasSubstr("P2 is read before the barrier"));
}

TEST(SassHazard, BarriersNeedTwoCycles) {
  const auto code = [](unsigned stall) {
    return std::vector<Instruction>{make(Form::kMufuR, 4, {5, kZero, kZero}, stall, 0),
                                    make(Form::kFAddRR, 6, {4, 4, kZero}, 1, kEnd, kEnd, 1), leave()};
  };
  EXPECT_THAT(check(code(2)), IsEmpty());
  EXPECT_THAT(text(check(code(1))), HasSubstr("barrier 0 is waited for 1 cycles after it was set: 2 are needed"));
}

TEST(SassHazard, OverwritesOfOutstandingRegisters) {
  const Instruction load = make(Form::kLdg, 4, {2, kZero, kZero}, 2, 0);
  EXPECT_THAT(text(check(std::vector{load, make(Form::kMovI, 4, {kZero, kZero, kZero}, 1), leave()})),
              HasSubstr("R4 is overwritten before the barrier of its write was waited for"));
  EXPECT_THAT(text(check(std::vector{load, make(Form::kMovI, 3, {kZero, kZero, kZero}, 1), leave()})),
              HasSubstr("R3 is overwritten before a barrier of its last reader was waited for"));
  EXPECT_THAT(check(std::vector{load, make(Form::kMovI, 3, {kZero, kZero, kZero}, 1, kEnd, kEnd, 1), leave()}),
              IsEmpty())
      << "what delivered has read";
  EXPECT_THAT(text(check(std::vector{make(Form::kMovI, 4, {kZero, kZero, kZero}, 5), load, leave()})),
              HasSubstr("R4 is overwritten 5 cycles after an ALU instruction wrote it: LDG.E needs 6"));
  EXPECT_THAT(text(check(std::vector{make(Form::kFAddRR, 5, {4, 6, kZero}, 1), load, leave()})),
              HasSubstr("R4 is overwritten 1 cycles after it was read: LDG.E needs 2"));
}

TEST(SassHazard, LoopsAreFollowed) {
  // The load at the end of an iteration is read at the beginning of the next.
  const std::vector<Instruction> code = {make(Form::kFAddRR, 5, {4, 4, kZero}, 13), compare(0, 5, 6, 13),
                                         make(Form::kLdg, 4, {2, kZero, kZero}, 2, 0), branch(-4, 0), leave()};
  const auto found = check(code);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].instruction, 0U);
  auto waiting = code;
  waiting[0].control.wait_mask = 1;
  EXPECT_THAT(check(waiting), IsEmpty());
  auto short_stall = waiting;  // R5 is read by the comparison of the same iteration, 5 cycles after
  short_stall[0].control.stall = 4;
  EXPECT_FALSE(check(short_stall).empty());
}

TEST(SassHazard, JoinsTakeTheWorstCase) {
  // Only one of two paths leaves a load outstanding.
  std::vector<Instruction> code = {branch(1, 0, 13), make(Form::kLdg, 4, {2, kZero, kZero}, 2, 0),
                                   make(Form::kFAddRR, 5, {4, 4, kZero}, 1), leave()};
  EXPECT_THAT(text(check(code)), HasSubstr("2: R4 is read before the barrier"));
  code[2].control.wait_mask = 1;
  EXPECT_THAT(check(code), IsEmpty());
}

TEST(SassHazard, LaterBarriersCoverEarlierResultsInOrder) {
  const std::vector<Instruction> code = {make(Form::kMufuR, 4, {8, kZero, kZero}, 1),
                                         make(Form::kMufuR, 5, {9, kZero, kZero}, 2, 0),
                                         make(Form::kFAddRR, 6, {4, 5, kZero}, 1, kEnd, kEnd, 1), leave()};
  EXPECT_THAT(check(code, 90, 64, {}, true), IsEmpty());
  EXPECT_THAT(text(check(code)), HasSubstr("R4 is read before the barrier of its write was waited for"));
  auto loads = code;
  loads[0].form = loads[1].form = Form::kLdg;
  loads[0].sources[0] = loads[1].sources[0] = 8;
  EXPECT_THAT(text(check(loads, 90, 64, {}, true)),
              HasSubstr("R4 is read before the barrier of its write was waited for"));
}

TEST(SassHazard, RegistersAndBranches) {
  EXPECT_THAT(text(check(std::vector{make(Form::kMovI, 64, {kZero, kZero, kZero}, 1), leave()})),
              HasSubstr("R64 is used, but 64 registers are declared"));
  EXPECT_THAT(text(check(std::vector{make(Form::kLdg128, 6, {2, kZero, kZero}, 1, 0), leave()})),
              HasSubstr("R6 does not begin 4 aligned registers"));
  EXPECT_THAT(text(check(std::vector{make(Form::kLdg, 6, {3, kZero, kZero}, 1, 0), leave()})),
              HasSubstr("R3 does not begin 2 aligned registers"));
  EXPECT_THAT(text(check(std::vector{branch(5, kTrue), leave()})), HasSubstr("the branch leaves the code"));
  EXPECT_THAT(text(check(std::vector{make(Form::kMovI, 4, {kZero, kZero, kZero}, 1)})),
              HasSubstr("the code runs past its end"));
  EXPECT_THAT(text(check(std::vector{make(Form::kBrx, kZero, {4, kZero, kZero}, 5), leave()})),
              HasSubstr("no targets are given for the indirect branch"));
  const std::uint32_t target[] = {2};
  const std::vector<Instruction> jump = {make(Form::kMufuR, 4, {8, kZero, kZero}, 2, 0),
                                         make(Form::kBrx, kZero, {6, kZero, kZero}, 5),
                                         make(Form::kFAddRR, 6, {4, 5, kZero}, 1), leave()};
  EXPECT_THAT(text(check(jump, 90, 64, target)), HasSubstr("2: R4 is read before the barrier"));
  EXPECT_THAT(text(check(std::vector{make(Form::kMufuR, 4, {8, kZero, kZero}, 2, 6), leave()})),
              HasSubstr("there is no barrier 6"));
  EXPECT_THAT(text(check(std::vector{branch(0, 0, 4), leave()})),
              HasSubstr("0: BRA stalls for 4 cycles: 5 are needed"));
}

TEST(SassHazard, ReportsTheFirst) {
  std::vector<Instruction> code;
  for (int n = 0; n < 50; ++n) code.push_back(make(Form::kFAddRR, 5, {5, 5, kZero}, 1));
  code.push_back(leave());
  const std::vector<std::optional<Instruction>> optional(code.begin(), code.end());
  const auto found = findHazards({optional, 90, 64, {}, false}, 3);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].instruction, 1U);
}

}  // namespace
}  // namespace srjit::sass
