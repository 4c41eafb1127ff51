#include "tests/generators/population.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ir/mix.h"
#include "ir/ops.h"

namespace srjit {
namespace {

// In the order of the random sequence: a change here changes the expressions of most tests.
constexpr Op kPinned[] = {
    Op::kAdd,      Op::kSub,      Op::kMul,       Op::kDiv,      Op::kPow,   Op::kNeg,  Op::kFma,  Op::kFms,
    Op::kFnma,     Op::kInv,      Op::kSquare,    Op::kCube,     Op::kSqrt,  Op::kCbrt, Op::kAbs,  Op::kSign,
    Op::kMin,      Op::kMax,      Op::kFloor,     Op::kCeil,     Op::kRound, Op::kMod,  Op::kExp,  Op::kExp2,
    Op::kExpm1,    Op::kLog,      Op::kLog2,      Op::kLog10,    Op::kLog1p, Op::kSin,  Op::kCos,  Op::kTan,
    Op::kAsin,     Op::kAcos,     Op::kAtan,      Op::kAtan2,    Op::kSinh,  Op::kCosh, Op::kTanh, Op::kAsinh,
    Op::kAcosh,    Op::kAtanh,    Op::kErf,       Op::kLogistic, Op::kAq,    Op::kLt,   Op::kLe,   Op::kGt,
    Op::kGe,       Op::kIf,       Op::kPdiv,      Op::kPlog,     Op::kPsqrt, Op::kPinv, Op::kPpow, Op::kLooseDiv,
    Op::kLooseInv, Op::kLooseLog, Op::kLooseSqrt, Op::kLoosePow};

bool isIn(std::span<const Op> ops, Op op) { return std::ranges::find(ops, op) != ops.end(); }

}  // namespace

std::span<const Op> pinnedOperators() noexcept { return kPinned; }

std::vector<Op> allOperators() {
  std::vector<Op> ops;
  for (std::size_t i = 0; i < allOps().size(); ++i) {
    if (!isIn(kPinned, static_cast<Op>(i))) ops.push_back(static_cast<Op>(i));
  }
  std::ranges::sort(ops, {}, nameHashOf);
  ops.insert(ops.begin(), std::begin(kPinned), std::end(kPinned));
  return ops;
}

ExpressionGenerator::ExpressionGenerator(GeneratorOptions options, std::span<const Op> pinned)
    : options_(std::move(options)), random_(options_.seed) {
  if (options_.ops.empty()) options_.ops = allOperators();
  for (const Op op : options_.ops) (isIn(pinned, op) ? drawn_ : others_).push_back(op);
  if (drawn_.empty()) drawn_.swap(others_);
  std::ranges::sort(others_, {}, nameHashOf);
  others_.erase(std::ranges::unique(others_).begin(), others_.end());
}

Expression ExpressionGenerator::next() {
  // Tokens are drawn in prefix order and then reversed, which is the postfix order of the mirrored tree.
  std::vector<Token> tokens;
  std::vector<int> sizes = {random_.between(options_.min_nodes, options_.max_nodes)};
  while (!sizes.empty()) {
    int size = sizes.back();
    sizes.pop_back();
    const bool fits = std::ranges::any_of(drawn_, [size](Op op) { return arityOf(op) < size; });
    if (!fits) {
      tokens.push_back(leaf());
      continue;
    }
    const Op op = pickOp(size);
    tokens.push_back(Token::operation(op));
    --size;
    for (int operands = arityOf(op); operands > 1; --operands) {
      const int share = random_.between(1, size - operands + 1);
      sizes.push_back(share);
      size -= share;
    }
    sizes.push_back(size);
  }
  std::ranges::reverse(tokens);
  insertOthers(tokens);
  ++expressions_;
  return Expression::create(std::move(tokens)).value();
}

std::vector<Expression> ExpressionGenerator::batch(std::size_t count) {
  std::vector<Expression> expressions;
  expressions.reserve(count);
  for (std::size_t i = 0; i < count; ++i) expressions.push_back(next());
  return expressions;
}

Op ExpressionGenerator::pickOp(int nodes) {
  for (;;) {
    const Op op = drawn_[random_.below(drawn_.size())];
    if (arityOf(op) < nodes) return op;
  }
}

void ExpressionGenerator::insertOthers(std::vector<Token>& tokens) const {
  for (const Op op : others_) {
    Random random(combine(combine(options_.seed, expressions_), nameHashOf(op)));
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].kind == Token::Kind::kOp && tokens[i].arity() == arityOf(op)) places.push_back(i);
    }
    if (places.empty() || random.below(kOthersOneIn) != 0) continue;
    tokens[places[random.below(places.size())]].op = op;
  }
}

Token ExpressionGenerator::leaf() {
  if (random_.chance(options_.constant_probability)) return Token::constant(constant());
  if (options_.parameters > 0 && (options_.variables == 0 || random_.chance(options_.parameter_probability))) {
    return Token::parameter(static_cast<std::uint32_t>(random_.between(0, options_.parameters - 1)));
  }
  if (options_.variables == 0) return Token::constant(constant());
  return Token::variable(static_cast<std::uint32_t>(random_.between(0, options_.variables - 1)));
}

double ExpressionGenerator::constant() {
  using Limits = std::numeric_limits<double>;
  constexpr double kMost = Limits::infinity(), kLargest = Limits::max(), kLeast = Limits::denorm_min();
  constexpr double kSpecial[] = {0.0,      -0.0,      1.0,           -1.0,   kMost,  -kMost, Limits::quiet_NaN(),
                                 kLargest, -kLargest, Limits::min(), kLeast, -kLeast};
  if (random_.chance(options_.special_probability)) return kSpecial[random_.below(std::size(kSpecial))];
  switch (random_.below(3)) {
    case 0:
      return random_.between(-9, 9);
    case 1:
      return random_.between(-5.0, 5.0);
    default:
      return random_.magnitude(-10, 9);
  }
}

std::optional<GeneratorOptions> findPopulation(std::string_view name, std::uint64_t seed) {
  GeneratorOptions options;
  options.seed = seed;
  if (name == "mixed" || name == "small") {
    options.ops = {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kPow, Op::kAbs, Op::kLog, Op::kExp, Op::kInv, Op::kSqrt};
    if (name == "mixed") return options;
    options.min_nodes = 5;
    options.max_nodes = 10;
    options.variables = options.parameters = 2;
    options.constant_probability = 0.1;
    options.parameter_probability = 0.4;
    return options;
  }
  if (name == "arithmetic") {
    options.ops = {Op::kAdd, Op::kSub, Op::kMul, Op::kAbs};
    return options;
  }
  return std::nullopt;
}

}  // namespace srjit
