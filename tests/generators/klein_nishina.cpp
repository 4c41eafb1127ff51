#include "tests/generators/klein_nishina.h"

#include <cmath>
#include <numbers>

#include "ir/ops.h"
#include "ir/text.h"

namespace srjit {
namespace {

constexpr std::size_t kMinTokens = 24, kMaxTokens = 64, kMaxSubtree = 7;
constexpr double kFreshCopy = 1.0 / 3;
constexpr int kFirstMutations = 3;

constexpr Op kMutatedUnary[] = {Op::kSin, Op::kCos, Op::kExp, Op::kLog, Op::kSqrt, Op::kInv};
constexpr Op kMutatedBinary[] = {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kPow};

GeneratorOptions subtreeOptions(std::uint64_t seed) {
  GeneratorOptions options;
  options.seed = seed;
  options.min_nodes = 1;
  options.max_nodes = static_cast<int>(kMaxSubtree);
  options.variables = static_cast<int>(kKleinNishinaVariables);
  for (const Op op : kMutatedBinary) options.ops.push_back(op);
  for (const Op op : kMutatedUnary) options.ops.push_back(op);
  return options;
}

}  // namespace

Expression kleinNishina() {
  return parse(
             "1 2 / x0 2 ^ * x1 2 pi * / 2 ^ * x2 2 ^ x3 2 ^ * / x4 x5 / x4 x5 / * * x5 x4 / x4 x5 / + x6 sin 2 ^ - *",
             Language::kPostfix)
      .value();
}

double kleinNishinaValue(const std::array<double, kKleinNishinaVariables>& x) {
  const auto [alpha, h, m, c, w, w0, theta] = x;
  const double radius = alpha * h / (2 * std::numbers::pi * m * c), ratio = w / w0, sine = std::sin(theta);
  return 0.5 * radius * radius * ratio * ratio * (1 / ratio + ratio - sine * sine);
}

Generations::Generations(std::size_t count, std::uint64_t seed)
    : random_(seed), subtrees_(subtreeOptions(seed)), formula_(kleinNishina()) {
  current_.assign(count, formula_);
  for (int i = 0; i < kFirstMutations; ++i) next();
}

void Generations::next() {
  std::vector<Expression> children;
  children.reserve(current_.size());
  while (children.size() < current_.size()) {
    const bool fresh = random_.chance(kFreshCopy);
    children.push_back(mutated(fresh ? formula_ : current_[random_.below(current_.size())]));
  }
  current_ = std::move(children);
}

Expression Generations::mutated(const Expression& parent) {
  std::vector<Token> tokens(parent.tokens().begin(), parent.tokens().end());
  const std::vector<std::uint32_t> starts = subtreeStarts(tokens);
  for (;;) {
    const std::size_t place = random_.below(tokens.size());
    Token& token = tokens[place];
    if (random_.chance(0.5)) {
      if (token.arity() == 1) {
        token.op = kMutatedUnary[random_.below(std::size(kMutatedUnary))];
      } else if (token.arity() == 2) {
        token.op = kMutatedBinary[random_.below(std::size(kMutatedBinary))];
      } else {
        token = Token::variable(static_cast<std::uint32_t>(random_.below(kKleinNishinaVariables)));
      }
      break;
    }
    const std::size_t size = place + 1 - starts[place];
    const Expression subtree = subtrees_.next();
    const std::size_t after = tokens.size() - size + subtree.size();
    if (size > kMaxSubtree || after < kMinTokens || after > kMaxTokens) continue;
    const auto first = tokens.begin() + starts[place];
    const auto gap = tokens.erase(first, first + static_cast<std::ptrdiff_t>(size));
    tokens.insert(gap, subtree.tokens().begin(), subtree.tokens().end());
    break;
  }
  return Expression::create(std::move(tokens)).value();
}

}  // namespace srjit
