#include "runtime/tiers/policy.h"

#include <algorithm>
#include <cmath>

namespace srjit {
namespace {

TierDecision serve(CodeKind kind) { return {.serves = kind}; }

TierDecision waitFor(CodeKind kind, OnFailure on_failure) {
  return {.wait_for = kind, .on_failure = on_failure, .serves = kind};
}

TierDecision decideInterpreted(const TierFacts& facts) {
  if (facts.has_interpreted) return serve(CodeKind::kInterpreted);
  return waitFor(CodeKind::kInterpreted, OnFailure::kReturn);
}

TierDecision decideCompiled(const TierFacts& facts) {
  if (facts.compiled == CodeState::kReady) return serve(CodeKind::kCompiled);
  return waitFor(CodeKind::kCompiled, OnFailure::kReturn);
}

// A failed attempt is repeated by the next evaluation: the self-test may have been busy in another process.
TierDecision decideDirect(const TierFacts& facts) {
  if (!facts.layout_suits_direct || facts.direct_was_tried) return decideInterpreted(facts);
  if (facts.direct == CodeState::kReady) return serve(CodeKind::kDirect);
  return waitFor(CodeKind::kDirect, OnFailure::kReturnUnlessUnsupported);
}

bool directPays(const TierFacts& facts) {
  const double self_test_seconds = facts.self_test == SelfTestState::kOpen ? kSelfTestSeconds : 0;
  const double seconds = writingSeconds(facts.costs, facts.work.nodes, facts.work.threads) + self_test_seconds;
  return makingPays(facts.costs.interpret, facts.costs.direct, facts.work.evaluations, facts.work.nodeRows(), seconds);
}

bool compilingPays(const TierFacts& facts) {
  const ExpectedWork& work = facts.work;
  const double seconds = compileSeconds(facts.costs, work.nodes, work.kernels, work.threads);
  return makingPays(facts.costs.interpret, facts.costs.compiled, work.evaluations, work.nodeRows(), seconds);
}

/// What serves under Tier::kAuto where direct code does not.
TierDecision decideInterpretedOrCompiled(const TierFacts& facts) {
  if (!facts.has_interpreted || !facts.interpreter_refuses) return decideInterpreted(facts);
  if (facts.compiled_refused == CodeState::kReady) return serve(CodeKind::kCompiledRefused);
  return waitFor(CodeKind::kCompiledRefused, OnFailure::kReturn);
}

TierDecision decideAuto(const TierFacts& facts) {
  const bool direct_is_usable = facts.layout_suits_direct && !facts.direct_was_tried;
  const CodeState direct = direct_is_usable ? facts.direct : CodeState::kFailed;
  // A program that begins with graphs has many evaluations announced. Direct code takes no longer than bytecode.
  if (facts.has_direct_graphs && direct == CodeState::kOpen) return waitFor(CodeKind::kDirect, OnFailure::kDecide);
  if (direct == CodeState::kReady && facts.direct_is_complete && !facts.direct_was_slower) {
    return serve(CodeKind::kDirect);
  }
  if (facts.compiled == CodeState::kReady) return serve(CodeKind::kCompiled);

  TierDecision decision = decideInterpretedOrCompiled(facts);
  if (facts.has_started || !(facts.work.evaluations > 0)) return decision;
  if (direct == CodeState::kOpen && facts.self_test != SelfTestState::kFailed && !facts.interpreter_refuses &&
      directPays(facts)) {
    decision.start = CodeKind::kDirect;
  }
  // LLVM's code is no quicker where direct code is slower than the interpreter: functions take the time.
  const bool direct_will_serve = decision.start || direct == CodeState::kRunning || facts.direct_was_slower;
  if (facts.compiled == CodeState::kOpen && !direct_will_serve && compilingPays(facts)) {
    decision.start = CodeKind::kCompiled;
  }
  return decision;
}

/// What work takes.
struct Seconds {
  double preparing, evaluating;
  double per_node_row;  ///< of evaluating
};

Seconds secondsOfCode(CodeKind code, const DeviceCosts& costs, const ExpectedWork& work) {
  const auto with = [&](double preparing, double per_node_row) {
    return Seconds{preparing, work.nodeRows() * per_node_row, per_node_row};
  };
  switch (code) {
    case CodeKind::kInterpreted:
      return with(encodingSeconds(work.nodes, work.threads), costs.interpret);
    case CodeKind::kDirect:
      return with(writingSeconds(costs, work.nodes, work.threads), costs.direct);
    case CodeKind::kCompiled:
    case CodeKind::kCompiledRefused:
      return with(compileSeconds(costs, work.nodes, work.kernels, work.threads), costs.compiled);
  }
  __builtin_unreachable();
}

}  // namespace

CodeKind firstCode(Tier tier, SelfTestState self_test, const DeviceCosts& costs, const ExpectedWork& announced) {
  switch (tier) {
    case Tier::kInterpret:
      return CodeKind::kInterpreted;
    case Tier::kCompile:
      return CodeKind::kCompiled;
    case Tier::kDirect:
      return self_test == SelfTestState::kFailed ? CodeKind::kInterpreted : CodeKind::kDirect;
    case Tier::kAuto:
      break;
  }
  if (self_test != SelfTestState::kPassed || !costs.direct_is_surely_quicker) return CodeKind::kInterpreted;
  const double seconds = writingSeconds(costs, announced.nodes, announced.threads);
  const bool pays = makingPays(costs.interpret, costs.direct, announced.evaluations, announced.nodeRows(), seconds);
  return pays ? CodeKind::kDirect : CodeKind::kInterpreted;
}

double secondsOf(CodeKind first, const DeviceCosts& costs, const ExpectedWork& work) {
  const Seconds seconds = secondsOfCode(first, costs, work);
  const double evaluations = std::max(1.0, work.evaluations);
  return work.rows > 0 ? seconds.preparing + evaluations * seconds.evaluating : work.nodes * seconds.per_node_row;
}

std::size_t bestParts(CodeKind first, const DeviceCosts& costs, const ExpectedWork& work) {
  // LLVM's modules are made on all threads, and loaded when all are there.
  if (first == CodeKind::kCompiled || first == CodeKind::kCompiledRefused) return 1;
  const auto [preparing, evaluating, per_node_row] = secondsOfCode(first, costs, work);
  // longer + shorter / parts + parts * kPartSeconds is least here.
  const double best = std::sqrt(std::min(preparing, evaluating) / kPartSeconds);
  return static_cast<std::size_t>(std::clamp(std::round(best), 1.0, static_cast<double>(kMostParts)));
}

TierDecision decideTier(const TierFacts& facts) {
  switch (facts.tier) {
    case Tier::kInterpret:
      return decideInterpreted(facts);
    case Tier::kCompile:
      return decideCompiled(facts);
    case Tier::kDirect:
      return decideDirect(facts);
    case Tier::kAuto:
      break;
  }
  return decideAuto(facts);
}

}  // namespace srjit
