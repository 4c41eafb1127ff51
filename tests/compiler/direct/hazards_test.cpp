// The hazard verifier on code of the direct tier: unchanged, and mutated by removing a wait, barrier or stall.
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "compiler/direct/emitter.h"
#include "compiler/target/architecture.h"
#include "ir/losses.h"
#include "tests/compiler/direct/emitted.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

using ::testing::IsEmpty;

Emitted emit(const DirectOptions& options, std::size_t count, std::uint64_t seed, std::vector<Op> ops = {}) {
  GeneratorOptions population;
  population.seed = seed;
  population.min_nodes = 1;
  population.max_nodes = 30;
  population.variables = 8;
  population.parameters = 2;
  population.parameter_probability = 0.2;
  population.ops = std::move(ops);
  const auto batch = ExpressionGenerator(population).batch(count);
  const Dag dag = Pipeline::standard(options.math).run(Dag::fromExpressions(batch, options.precision), {options.math});
  auto emitter = DirectEmitter::create(options);
  const DirectPart part = emitter.value().emit(dag);
  const DirectImage image = joinDirect({&part, 1}, options).value();
  return {image, options.architecture};
}

/// No loss; then every term, in turns plain, and with weights and skipped rows.
std::vector<std::optional<LossSpec>> someLosses() {
  std::vector<std::optional<LossSpec>> losses = {std::nullopt};
  for (const auto& [term, name, tuning, targets] : kernelLossTerms()) {
    const bool is_plain = losses.size() % 2 == 1;
    losses.push_back(LossSpec{term, !is_plain, !is_plain});
  }
  return losses;
}

class DirectHazards : public ::testing::TestWithParam<unsigned> {};
class DirectMutantsSlow : public ::testing::TestWithParam<unsigned> {};
const auto kEveryArchitecture = ::testing::ValuesIn(directArchitectures().begin(), directArchitectures().end());
std::string architectureNameOf(const ::testing::TestParamInfo<unsigned>& architecture) {
  return fmt::format("sm_{}", architecture.param);
}
INSTANTIATE_TEST_SUITE_P(, DirectHazards, kEveryArchitecture, architectureNameOf);
INSTANTIATE_TEST_SUITE_P(, DirectMutantsSlow, kEveryArchitecture, architectureNameOf);

TEST_P(DirectHazards, EmittedCodeHasNoHazards) {
  std::uint64_t seed = 1;
  const auto check = [&](const DirectOptions& options) {
    const Emitted emitted = emit(options, 40, seed++);
    EXPECT_TRUE(std::ranges::all_of(emitted.code, [](const auto& i) { return i.has_value(); }));
    const auto found = emitted.hazards();
    EXPECT_TRUE(found.empty()) << emitted.text(found);
  };
  for (const auto& loss : someLosses()) {
    for (const unsigned window : {1U, 24U}) {
      for (const Math math : {Math::kStrict, Math::kPrecise, Math::kFast}) {
        check({.architecture = GetParam(), .math = math, .loss = loss, .window = window});
      }
      check({.architecture = GetParam(), .precision = Precision::kF64, .loss = loss, .window = window});
    }
  }
}

/// The mutants of one kind, and those that the verifier accepts.
struct Mutants {
  std::size_t made = 0;
  std::vector<std::size_t> accepted = {};
};

template <class Change>
void mutate(Emitted emitted, std::size_t at, Change change, Mutants& mutants) {
  change(*emitted.code[at]);
  ++mutants.made;
  if (emitted.hazards(1).empty()) mutants.accepted.push_back(at);
}

// Shortens only stalls above `least_stall` cycles.
void expectMutantsAreFound(const Emitted& emitted, unsigned least_stall = 1) {
  Mutants waits, barriers, stalls;
  for (std::size_t at = 0; at < emitted.code.size(); ++at) {
    const sass::Control control = emitted.code[at]->control;
    for (unsigned barrier = 0; barrier < 6; ++barrier) {
      if ((control.wait_mask >> barrier & 1) == 0) continue;
      mutate(
          emitted, at, [&](sass::Instruction& i) { i.control.wait_mask ^= static_cast<std::uint8_t>(1U << barrier); },
          waits);
    }
    if (control.write_barrier != sass::kNoBarrier) {
      mutate(emitted, at, [](sass::Instruction& i) { i.control.write_barrier = sass::kNoBarrier; }, barriers);
    }
    if (control.read_barrier != sass::kNoBarrier) {
      mutate(emitted, at, [](sass::Instruction& i) { i.control.read_barrier = sass::kNoBarrier; }, barriers);
    }
    if (control.stall > least_stall) {
      mutate(emitted, at, [](sass::Instruction& i) { i.control.stall = 1; }, stalls);
    }
  }
  // In principle a wait may be redundant; none of the tested ones is.
  EXPECT_GT(waits.made, 50U);
  EXPECT_THAT(waits.accepted, IsEmpty()) << "mutants without a wait";
  EXPECT_GT(barriers.made, 50U);
  EXPECT_THAT(barriers.accepted, IsEmpty()) << "mutants without a barrier";
  EXPECT_GT(stalls.made, 70U);
  EXPECT_THAT(stalls.accepted, IsEmpty()) << "mutants with a shorter stall";
}

TEST_P(DirectMutantsSlow, AreFound) {
  expectMutantsAreFound(emit({.architecture = GetParam(), .math = Math::kFast, .loss = LossSpec{}}, 6, 99));
}

// A pair counts as written with its upper half, so a reader of the lower half may stall one cycle longer than
// necessary.
TEST_P(DirectMutantsSlow, OfDoublesAreFound) {
  // Short operators, and a few with steps on words, quotients and a root: the time grows with the square of the length.
  const DirectOptions options{.architecture = GetParam(), .precision = Precision::kF64, .loss = LossSpec{}};
  expectMutantsAreFound(
      emit(options, 8, 98, {Op::kAdd, Op::kMul, Op::kMax, Op::kAdd, Op::kSub, Op::kMul, Op::kExp, Op::kDiv, Op::kSqrt}),
      2);
}

}  // namespace
}  // namespace srjit
