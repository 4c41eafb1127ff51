// The tiers' policy, decision by decision.
#include "runtime/tiers/policy.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace srjit {
namespace {

const char* nameOf(CodeKind kind) {
  switch (kind) {
    case CodeKind::kInterpreted:
      return "interpreted";
    case CodeKind::kDirect:
      return "direct";
    case CodeKind::kCompiled:
      return "compiled";
    case CodeKind::kCompiledRefused:
      return "refused";
  }
  return "?";
}

/// As "start direct, wait for interpreted", or "serve direct".
std::string textOf(const TierDecision& decision) {
  std::string text = decision.start ? std::string("start ") + nameOf(*decision.start) + ", " : "";
  if (!decision.wait_for) return text + "serve " + nameOf(decision.serves);
  text += std::string("wait for ") + nameOf(*decision.wait_for);
  if (decision.on_failure == OnFailure::kDecide) text += ", else decide";
  if (decision.on_failure == OnFailure::kReturnUnlessUnsupported) text += ", decide if unsupported";
  return text;
}

/// A program of 10 nodes on one row. Writing direct code takes 100 s, and compiling 10,000 s. An evaluation takes 10 s
/// by the interpreter, 5 s by direct code and 2 s by compiled code. So the interpreter is worth replacing by direct
/// code after 10 evaluations (10.2 with the self-test), and by compiled code after 1,000. Where direct code serves,
/// nothing is compiled.
constexpr DeviceCosts kRoundCosts = {.interpret = 1, .direct = 0.5, .compiled = 0.2, .write = 10, .compile = 1000};

TierFacts factsOf(Tier tier, double evaluations = 0) {
  TierFacts facts;
  facts.tier = tier;
  facts.costs = kRoundCosts;
  facts.work = {.nodes = 10, .rows = 1, .evaluations = evaluations, .kernels = 1, .threads = 1};
  facts.self_test = SelfTestState::kPassed;
  facts.has_interpreted = true;
  return facts;
}

struct Row {
  const char* name;
  Tier tier;
  double evaluations;
  void (*change)(TierFacts&);
  const char* decision;
};

constexpr auto kNothing = [](TierFacts&) {};
constexpr Row kRows[] = {
    {"interpret", Tier::kInterpret, 1e9, kNothing, "serve interpreted"},
    {"interpret without bytecode", Tier::kInterpret, 1e9, [](TierFacts& f) { f.has_interpreted = false; },
     "wait for interpreted"},
    {"interpret with refusals", Tier::kInterpret, 1e9, [](TierFacts& f) { f.interpreter_refuses = true; },
     "serve interpreted"},

    {"compile", Tier::kCompile, 0, kNothing, "wait for compiled"},
    {"compile while others do", Tier::kCompile, 1, [](TierFacts& f) { f.compiled = CodeState::kRunning; },
     "wait for compiled"},
    {"compile after a failure", Tier::kCompile, 1, [](TierFacts& f) { f.compiled = CodeState::kFailed; },
     "wait for compiled"},
    {"compile, ready", Tier::kCompile, 1e9, [](TierFacts& f) { f.compiled = CodeState::kReady; }, "serve compiled"},

    {"direct", Tier::kDirect, 0, kNothing, "wait for direct, decide if unsupported"},
    {"direct, self-test open", Tier::kDirect, 1, [](TierFacts& f) { f.self_test = SelfTestState::kOpen; },
     "wait for direct, decide if unsupported"},
    {"direct, self-test failed: the attempt says why", Tier::kDirect, 1,
     [](TierFacts& f) { f.self_test = SelfTestState::kFailed; }, "wait for direct, decide if unsupported"},
    {"direct after a failure", Tier::kDirect, 1, [](TierFacts& f) { f.direct = CodeState::kFailed; },
     "wait for direct, decide if unsupported"},
    {"direct, ready", Tier::kDirect, 1e9, [](TierFacts& f) { f.direct = CodeState::kReady; }, "serve direct"},
    {"direct, ready but incomplete", Tier::kDirect, 1,
     [](TierFacts& f) {
       f.direct = CodeState::kReady;
       f.direct_is_complete = false;
     },
     "serve direct"},
    {"direct, strides too large", Tier::kDirect, 1, [](TierFacts& f) { f.layout_suits_direct = false; },
     "serve interpreted"},
    {"direct, unsupported", Tier::kDirect, 1,
     [](TierFacts& f) {
       f.direct_was_tried = true;
       f.has_interpreted = false;
     },
     "wait for interpreted"},

    {"auto prepares", Tier::kAuto, 0, kNothing, "serve interpreted"},
    {"auto, too few evaluations", Tier::kAuto, 10, kNothing, "serve interpreted"},
    {"auto, enough for direct code", Tier::kAuto, 11, kNothing, "start direct, serve interpreted"},
    {"auto without bytecode", Tier::kAuto, 11, [](TierFacts& f) { f.has_interpreted = false; },
     "start direct, wait for interpreted"},
    {"auto, too few for the self-test", Tier::kAuto, 10.1, [](TierFacts& f) { f.self_test = SelfTestState::kOpen; },
     "serve interpreted"},
    {"auto, enough for the self-test", Tier::kAuto, 11, [](TierFacts& f) { f.self_test = SelfTestState::kOpen; },
     "start direct, serve interpreted"},
    {"auto, self-test failed", Tier::kAuto, 1001, [](TierFacts& f) { f.self_test = SelfTestState::kFailed; },
     "start compiled, serve interpreted"},
    {"auto, strides too large", Tier::kAuto, 1001, [](TierFacts& f) { f.layout_suits_direct = false; },
     "start compiled, serve interpreted"},
    {"auto, strides too large for ready code", Tier::kAuto, 0,
     [](TierFacts& f) {
       f.layout_suits_direct = false;
       f.direct = CodeState::kReady;
     },
     "serve interpreted"},
    {"auto, enough for all", Tier::kAuto, 1e9, kNothing, "start direct, serve interpreted"},
    {"auto, enough for all, but started before", Tier::kAuto, 1e9, [](TierFacts& f) { f.has_started = true; },
     "serve interpreted"},
    {"auto, enough to compile, but started before", Tier::kAuto, 1e9,
     [](TierFacts& f) {
       f.direct = CodeState::kFailed;
       f.has_started = true;
     },
     "serve interpreted"},
    {"auto with graphs, started before", Tier::kAuto, 1e9,
     [](TierFacts& f) { f.has_direct_graphs = f.has_started = true; }, "wait for direct, else decide"},
    {"auto, direct code was slower", Tier::kAuto, 1e9,
     [](TierFacts& f) {
       f.direct = CodeState::kReady;
       f.direct_was_slower = true;
     },
     "serve interpreted"},
    {"direct, though it was slower", Tier::kDirect, 1e9,
     [](TierFacts& f) {
       f.direct = CodeState::kReady;
       f.direct_was_slower = true;
     },
     "serve direct"},
    {"auto while direct code is written", Tier::kAuto, 1e9, [](TierFacts& f) { f.direct = CodeState::kRunning; },
     "serve interpreted"},
    {"auto, direct code failed", Tier::kAuto, 999, [](TierFacts& f) { f.direct = CodeState::kFailed; },
     "serve interpreted"},
    {"auto, direct code failed, very many evaluations", Tier::kAuto, 1001,
     [](TierFacts& f) { f.direct = CodeState::kFailed; }, "start compiled, serve interpreted"},
    {"auto, direct code ready", Tier::kAuto, 1e9, [](TierFacts& f) { f.direct = CodeState::kReady; }, "serve direct"},
    {"auto, direct code incomplete", Tier::kAuto, 1001,
     [](TierFacts& f) {
       f.direct = CodeState::kReady;
       f.direct_is_complete = false;
     },
     "start compiled, serve interpreted"},
    {"auto, direct code incomplete, compiled code ready", Tier::kAuto, 1e9,
     [](TierFacts& f) {
       f.compiled = f.direct = CodeState::kReady;
       f.direct_is_complete = false;
     },
     "serve compiled"},
    {"auto, compiled code ready", Tier::kAuto, 1e9, [](TierFacts& f) { f.compiled = CodeState::kReady; },
     "serve compiled"},
    {"auto, both ready", Tier::kAuto, 1e9, [](TierFacts& f) { f.compiled = f.direct = CodeState::kReady; },
     "serve direct"},
    {"auto while LLVM compiles", Tier::kAuto, 2001, [](TierFacts& f) { f.compiled = CodeState::kRunning; },
     "start direct, serve interpreted"},
    {"auto, LLVM failed", Tier::kAuto, 2001, [](TierFacts& f) { f.compiled = CodeState::kFailed; },
     "start direct, serve interpreted"},

    {"auto, refusals", Tier::kAuto, 0, [](TierFacts& f) { f.interpreter_refuses = true; }, "wait for refused"},
    {"auto, refusals: direct code is not started", Tier::kAuto, 1001,
     [](TierFacts& f) { f.interpreter_refuses = true; }, "start compiled, wait for refused"},
    {"auto, refusals compiled", Tier::kAuto, 0,
     [](TierFacts& f) {
       f.interpreter_refuses = true;
       f.compiled_refused = CodeState::kReady;
     },
     "serve refused"},
    {"auto, refusals, direct code complete", Tier::kAuto, 0,
     [](TierFacts& f) {
       f.interpreter_refuses = true;
       f.direct = CodeState::kReady;
     },
     "serve direct"},
    {"auto, refusals, direct code incomplete", Tier::kAuto, 0,
     [](TierFacts& f) {
       f.interpreter_refuses = true;
       f.direct = CodeState::kReady;
       f.direct_is_complete = false;
     },
     "wait for refused"},

    {"auto with graphs", Tier::kAuto, 1e9,
     [](TierFacts& f) {
       f.has_direct_graphs = true;
       f.has_interpreted = false;
     },
     "wait for direct, else decide"},
    {"auto with graphs prepares", Tier::kAuto, 0, [](TierFacts& f) { f.has_direct_graphs = true; },
     "wait for direct, else decide"},
    {"auto with graphs, compiled code ready", Tier::kAuto, 0,
     [](TierFacts& f) {
       f.has_direct_graphs = true;
       f.compiled = CodeState::kReady;
     },
     "wait for direct, else decide"},
    {"auto with graphs, no direct code after a wait", Tier::kAuto, 1001,
     [](TierFacts& f) {
       f.has_direct_graphs = f.direct_was_tried = true;
       f.has_interpreted = false;
     },
     "start compiled, wait for interpreted"},
    {"auto with graphs, another thread writes", Tier::kAuto, 0,
     [](TierFacts& f) {
       f.has_direct_graphs = true;
       f.has_interpreted = false;
       f.direct = CodeState::kRunning;
     },
     "wait for interpreted"},
    {"auto with graphs, strides too large", Tier::kAuto, 0,
     [](TierFacts& f) {
       f.has_direct_graphs = true;
       f.layout_suits_direct = false;
     },
     "serve interpreted"},

    {"auto, no costs known", Tier::kAuto, 1e9, [](TierFacts& f) { f.costs = {}; }, "serve interpreted"},
    {"auto, rows unknown", Tier::kAuto, 1e9, [](TierFacts& f) { f.work.rows = 0; }, "serve interpreted"},
    {"auto, not a tenth faster", Tier::kAuto, 1e9, [](TierFacts& f) { f.costs.direct = f.costs.compiled = 0.95; },
     "serve interpreted"},
};

TEST(TierPolicy, DecidesAsTheTableSays) {
  for (const Row& row : kRows) {
    TierFacts facts = factsOf(row.tier, row.evaluations);
    row.change(facts);
    EXPECT_EQ(textOf(decideTier(facts)), row.decision) << row.name;
  }
}

TEST(TierPolicy, FirstCode) {
  const auto first = [](Tier tier, SelfTestState self_test, double evaluations, double rows = 1) {
    const ExpectedWork announced{.nodes = 10, .rows = rows, .evaluations = evaluations, .kernels = 1, .threads = 1};
    return std::string(nameOf(firstCode(tier, self_test, kRoundCosts, announced)));
  };
  using enum SelfTestState;
  for (const SelfTestState state : {kOpen, kPassed, kFailed}) {
    EXPECT_EQ(first(Tier::kInterpret, state, 1e9), "interpreted");
    EXPECT_EQ(first(Tier::kCompile, state, 0), "compiled");
    EXPECT_EQ(first(Tier::kDirect, state, 0), state == kFailed ? "interpreted" : "direct");
    EXPECT_EQ(first(Tier::kAuto, state, 11), state == kPassed ? "direct" : "interpreted");
  }
  EXPECT_EQ(first(Tier::kAuto, kPassed, 10), "interpreted") << "it does not pay";
  EXPECT_EQ(first(Tier::kAuto, kPassed, 1e9, 0), "interpreted") << "rows are unknown";
}

/// Every decision for every combination of facts, with waits that succeed and waits that fail.
class AllFacts : public testing::TestWithParam<Tier> {};
INSTANTIATE_TEST_SUITE_P(, AllFacts, testing::Values(Tier::kAuto, Tier::kInterpret, Tier::kCompile, Tier::kDirect));

/// Follows the decisions until something serves. The evaluation ends with an error where a wait returns it.
void follow(TierFacts facts, bool succeeds) {
  for (int step = 0; step < 4; ++step) {
    const TierDecision decision = decideTier(facts);
    ASSERT_FALSE(decision.start && facts.has_started) << "nothing is started twice";
    ASSERT_FALSE(decision.start && decision.wait_for == CodeKind::kDirect);
    facts.has_started = facts.has_started || decision.start;
    if (!decision.wait_for) return;
    if (!succeeds && *decision.wait_for != CodeKind::kInterpreted) {
      if (decision.on_failure == OnFailure::kReturn) return;
      facts.direct_was_tried = true;
      continue;
    }
    if (*decision.wait_for == CodeKind::kInterpreted) facts.has_interpreted = facts.interpreter_refuses = true;
    if (*decision.wait_for == CodeKind::kDirect) facts.direct = CodeState::kReady;
    if (*decision.wait_for == CodeKind::kCompiled) facts.compiled = CodeState::kReady;
    if (*decision.wait_for == CodeKind::kCompiledRefused) facts.compiled_refused = CodeState::kReady;
  }
  FAIL() << "no code serves after four decisions";
}

/// Facts by `bits`, but for the states of direct and compiled code and of the self-test.
TierFacts factsOf(Tier tier, double evaluations, unsigned bits) {
  TierFacts facts = factsOf(tier, evaluations);
  facts.has_started = (bits & 1) != 0;
  facts.layout_suits_direct = (bits & 2) != 0;
  facts.has_direct_graphs = (bits & 4) != 0;
  facts.has_interpreted = (bits & 8) != 0;
  facts.interpreter_refuses = (bits & 16) != 0;
  facts.direct_is_complete = (bits & 32) != 0;
  facts.direct_was_tried = (bits & 64) != 0;
  if ((bits & 128) != 0) facts.compiled_refused = CodeState::kReady;
  return facts;
}

// With kRoundCosts writing takes 10 s per node, and direct code 0.5 s per node and row.
TEST(BestParts, OverlapWhatIsShorter) {
  const auto parts = [](CodeKind first, double nodes, double rows) {
    return bestParts(first, kRoundCosts, {.nodes = nodes, .rows = rows, .evaluations = 1, .threads = 1});
  };
  const double direct = kPartSeconds / 10;  // nodes that are written in kPartSeconds
  EXPECT_EQ(parts(CodeKind::kDirect, direct, 1000), 1U);
  EXPECT_EQ(parts(CodeKind::kDirect, 9 * direct, 1000), 3U);
  EXPECT_EQ(parts(CodeKind::kDirect, 1e9 * direct, 1000), kMostParts);
  EXPECT_EQ(parts(CodeKind::kDirect, 1e9, 1e-9 * 4 * kPartSeconds / 0.5), 2U) << "evaluating is the shorter";
  EXPECT_EQ(parts(CodeKind::kDirect, 1e9, 0), 1U) << "nothing to overlap with";
  EXPECT_EQ(parts(CodeKind::kInterpreted, 4 * kPartSeconds / kEncodeSecondsPerNode, 1000), 2U);
  EXPECT_EQ(parts(CodeKind::kInterpreted, 0, 0), 1U);
  EXPECT_EQ(parts(CodeKind::kCompiled, 1e9, 1e9), 1U);
}

TEST_P(AllFacts, LeadToCodeThatServes) {
  constexpr CodeState kStates[] = {CodeState::kOpen, CodeState::kRunning, CodeState::kReady, CodeState::kFailed};
  for (const double evaluations : {0.0, 300.0, 1e9}) {
    for (unsigned bits = 0; bits < 256; ++bits) {
      TierFacts facts = factsOf(GetParam(), evaluations, bits);
      for (const CodeState direct : kStates) {
        for (const CodeState compiled : kStates) {
          for (const SelfTestState self_test : {SelfTestState::kOpen, SelfTestState::kPassed, SelfTestState::kFailed}) {
            facts.direct = direct;
            facts.compiled = compiled;
            facts.self_test = self_test;
            for (const bool succeeds : {false, true}) follow(facts, succeeds);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace srjit
