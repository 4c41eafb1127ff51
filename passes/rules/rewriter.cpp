#include "passes/rules/rewriter.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

#include "ir/ops.h"
#include "passes/fma.h"
#include "passes/rules/fold.h"
#include "passes/rules/node_sort.h"

namespace srjit {
namespace {

/// Which rules are applied: each extent contains the ones before it.
enum Extent : std::uint8_t {
  kFixedRules,  ///< exact ones over operators whose bits are fixed in fast f32, too
  kExactRules,
  kPreciseRules,
  kFastRules,
};
constexpr std::size_t kExtents = kFastRules + 1;

Extent extentOf(RuleClass rule_class) {
  return static_cast<Extent>(kExactRules + static_cast<std::uint8_t>(rule_class));
}

bool hasApproximateStep(const Rule& rule) {
  for (const Expression& term : {rule.pattern, rule.replacement}) {
    for (const Token& token : term.tokens()) {
      if (token.kind == Token::Kind::kOp && hasApproximateStep(token.op)) return true;
    }
  }
  return false;
}

constexpr std::size_t kSorts = kFirstOpSort + kOpCount;
static_assert(kSorts <= 256, "a sort has 8 bits");

/// Whether an operand of this sort may match the token.
bool takes(const Token& pattern, std::uint8_t sort) {
  switch (pattern.kind) {
    case Token::Kind::kVariable:
      return true;
    case Token::Kind::kParameter:
      return isSortOfConstant(sort);
    case Token::Kind::kConstant:
      assert(sortOfConstant(pattern.value) != kOtherConstantSort);
      return sort == sortOfConstant(pattern.value);
    case Token::Kind::kOp:
      break;
  }
  return sort == sortOfOperator(pattern.op);
}

/// Nodes that tokens of a pattern stand for. The first are the operands of the pattern's root.
constexpr std::size_t kMostTerms = 12;
using Terms = std::array<NodeId, kMostTerms>;

/// One check of a term. Checks of a pattern are in an order in which each term is known before it is checked.
struct Check {
  enum class Kind : std::uint8_t {
    kOperator,  ///< it is `op`, whose operands are the terms from `other` on
    kConstant,  ///< it is the constant of these bits
    kLiteral,   ///< it is a constant
    kSame,      ///< it is the term `other`; equal constants are one node
  };
  Kind kind;
  std::uint8_t term;
  std::uint8_t other = 0;
  Op op{};
  std::uint64_t bits = 0;
};

/// A pattern with its commutative operators in certain orders.
struct Variant {
  std::vector<Check> checks;
  std::array<std::uint8_t, kRuleWildcards> wildcards{};  ///< the terms that they are
  std::array<std::uint8_t, kRuleLiterals> literals{};
  std::array<bool, kRuleLiterals> has_literal{};

  bool matches(const Dag& dag, Terms& terms) const {
    for (const Check& check : checks) {
      const Node& node = dag.node(terms[check.term]);
      switch (check.kind) {
        case Check::Kind::kOperator:
          if (node.kind != Token::Kind::kOp || node.op != check.op) return false;
          for (std::size_t k = 0; k < kMaxArity && check.other + k < kMostTerms; ++k) {
            terms[check.other + k] = node.operands[k];
          }
          break;
        case Check::Kind::kConstant:
          if (node.kind != Token::Kind::kConstant || std::bit_cast<std::uint64_t>(node.value) != check.bits)
            return false;
          break;
        case Check::Kind::kLiteral:
          if (node.kind != Token::Kind::kConstant) return false;
          break;
        case Check::Kind::kSame:
          if (terms[check.term] != terms[check.other]) return false;
          break;
      }
    }
    return true;
  }
};

/// Makes the variants of a pattern.
class VariantMaker {
 public:
  explicit VariantMaker(const Expression& pattern)
      : tokens_(pattern.tokens()),
        starts_(subtreeStarts(tokens_)),
        root_(static_cast<std::uint32_t>(tokens_.size() - 1)) {}

  /// Orders of operands are tried in a fixed sequence, so that the match that is found depends on the term alone.
  std::vector<Variant> all() {
    const auto commutative = std::ranges::count_if(tokens_, commutes);
    std::vector<Variant> variants;
    for (swaps_ = 0; swaps_ < 1u << commutative; ++swaps_) {
      made_ = {};
      seen_commutative_ = 0;
      bound_wildcards_ = {};
      terms_ = static_cast<std::uint8_t>(tokens_[root_].arity());
      addOperands(root_, 0);
      variants.push_back(std::move(made_));
    }
    return variants;
  }

 private:
  static bool commutes(const Token& token) {
    return token.kind == Token::Kind::kOp && infoOf(token.op).has(OpProps::kCommutative);
  }

  /// Adds the checks of the operands of token `at`, which are the terms from `first` on.
  void addOperands(std::uint32_t at, std::uint8_t first) {
    const bool swap = commutes(tokens_[at]) && (swaps_ >> seen_commutative_++ & 1) != 0;
    const auto arity = static_cast<std::uint8_t>(tokens_[at].arity());
    std::array<std::uint32_t, kMaxArity> operands{};
    std::uint32_t next = at;
    for (std::size_t k = arity; k-- > 0; next = starts_[operands[k]]) operands[k] = next - 1;
    for (std::uint8_t k = 0; k < arity; ++k) {
      const auto from = static_cast<std::uint8_t>(swap && k < 2 ? 1 - k : k);
      add(operands[k], static_cast<std::uint8_t>(first + from));
    }
  }

  /// Recursive in the pattern, whose depth the table bounds.
  void add(std::uint32_t at, std::uint8_t term) {
    const Token& token = tokens_[at];
    switch (token.kind) {
      case Token::Kind::kVariable:
        if (bound_wildcards_[token.index]) {
          made_.checks.push_back({.kind = Check::Kind::kSame, .term = term, .other = made_.wildcards[token.index]});
        }
        bound_wildcards_[token.index] = true;
        made_.wildcards[token.index] = term;
        break;
      case Token::Kind::kParameter:
        made_.checks.push_back({.kind = Check::Kind::kLiteral, .term = term});
        if (made_.has_literal[token.index]) {
          made_.checks.push_back({.kind = Check::Kind::kSame, .term = term, .other = made_.literals[token.index]});
        }
        made_.has_literal[token.index] = true;
        made_.literals[token.index] = term;
        break;
      case Token::Kind::kConstant:
        made_.checks.push_back(
            {.kind = Check::Kind::kConstant, .term = term, .bits = std::bit_cast<std::uint64_t>(token.value)});
        break;
      case Token::Kind::kOp: {
        const std::uint8_t first = terms_;
        terms_ = static_cast<std::uint8_t>(terms_ + token.arity());
        assert(terms_ <= kMostTerms);
        made_.checks.push_back({.kind = Check::Kind::kOperator, .term = term, .other = first, .op = token.op});
        addOperands(at, first);
        break;
      }
    }
  }

  std::span<const Token> tokens_;
  std::vector<std::uint32_t> starts_;
  std::uint32_t root_;
  unsigned swaps_ = 0;
  unsigned seen_commutative_ = 0;
  std::uint8_t terms_ = 0;
  std::array<bool, kRuleWildcards> bound_wildcards_{};
  Variant made_;
};

struct CompiledRule {
  const Rule* rule;
  std::vector<Variant> variants;
};

/// Rules that may match a term whose first two operands are as given, or exchanged; bit sets.
struct Candidates {
  std::uint64_t as_given, swapped;
};

/// The rules whose pattern has one operator at its root: exact ones first, then precise, then fast ones; those of one
/// class in the order of the table.
struct RulesOfOp {
  std::array<std::array<std::uint64_t, kSorts>, kMaxArity> takes;  ///< bit sets of rules by operand and its sort
  std::uint64_t twice = 0;                                         ///< rules whose two operands are one wildcard
  std::uint64_t exchange = 0;                                      ///< all rules if the operator is commutative
  std::vector<CompiledRule> rules;

  // Operands past the arity match every rule, so that nobody asks for it.
  RulesOfOp() {
    for (auto& by_sort : takes) by_sort.fill(~std::uint64_t{0});
  }

  void set(Op op, const std::vector<const Rule*>& all) {
    assert(all.size() <= 64);
    for (std::size_t k = 0; k < static_cast<std::size_t>(arityOf(op)); ++k) takes[k].fill(0);
    for (const Rule* const rule : all) add(*rule);
    if (infoOf(op).has(OpProps::kCommutative)) exchange = ~std::uint64_t{0};
  }

  /// The rules that may match the operands.
  Candidates candidates(const Dag& dag, const Operands& operands) const {
    const auto [a, b, c] = operands;
    const std::uint8_t first = dag.node(a).sort, second = dag.node(b).sort, third = dag.node(c).sort;
    const std::uint64_t mask = takes[2][third] & ~(a == b ? 0 : twice);
    return {takes[0][first] & takes[1][second] & mask, takes[0][second] & takes[1][first] & mask & exchange};
  }

 private:
  void add(const Rule& rule) {
    const std::uint64_t bit = std::uint64_t{1} << rules.size();
    const std::span<const Token> tokens = rule.pattern.tokens();
    const Token& root = tokens.back();
    const std::vector<std::uint32_t> starts = subtreeStarts(tokens);
    auto operand = static_cast<std::uint32_t>(tokens.size() - 1);
    std::array<Token, kMaxArity> operands;
    for (std::size_t k = static_cast<std::size_t>(root.arity()); k-- > 0; operand = starts[operand - 1]) {
      operands[k] = tokens[operand - 1];
      for (std::size_t sort = 0; sort < kSorts; ++sort) {
        if (srjit::takes(operands[k], static_cast<std::uint8_t>(sort))) takes[k][sort] |= bit;
      }
    }
    const bool same = root.arity() == 2 && operands[0].kind == Token::Kind::kVariable && operands[0] == operands[1];
    if (same) twice |= bit;
    rules.push_back({&rule, VariantMaker(rule.pattern).all()});
  }
};

}  // namespace

/// The rules of one extent, by the operator at the root of their pattern.
class RuleIndex {
 public:
  static const RuleIndex& of(Extent extent) {
    static const std::array<RuleIndex, kExtents> all = [] {
      std::array<RuleIndex, kExtents> made;
      for (std::size_t each = 0; each < kExtents; ++each) made[each].addRules(static_cast<Extent>(each));
      return made;
    }();
    return all[extent];
  }

  const RulesOfOp& operator[](Op op) const { return by_op_[static_cast<std::size_t>(op)]; }

 private:
  void addRules(Extent extent) {
    std::vector<std::vector<const Rule*>> rules(kOpCount);
    for (const RuleClass rule_class : {RuleClass::kExact, RuleClass::kPrecise, RuleClass::kFast}) {
      for (const Rule& rule : allRules()) {
        if (rule.rule_class != rule_class || extentOf(rule_class) > std::max(extent, kExactRules)) continue;
        if (extent == kFixedRules && hasApproximateStep(rule)) continue;
        rules[static_cast<std::size_t>(rule.pattern.tokens().back().op)].push_back(&rule);
      }
    }
    by_op_.resize(kOpCount);
    for (std::size_t op = 0; op < kOpCount; ++op) by_op_[op].set(static_cast<Op>(op), rules[op]);
  }

  std::vector<RulesOfOp> by_op_;
};

namespace {

const RuleIndex& indexFor(RuleClass rule_class, Math math, Precision precision) {
  const bool only_fixed = rule_class == RuleClass::kExact && isApproximate(math, precision);
  return RuleIndex::of(only_fixed ? kFixedRules : extentOf(rule_class));
}

}  // namespace

Rewriter::Rewriter(Dag& dag, RuleClass rule_class, Math math)
    : dag_(dag), rules_(indexFor(rule_class, math, dag.precision())) {
  for (std::size_t op = 0; op < kOpCount; ++op) {
    folds_[op] = rule_class != RuleClass::kExact || hasFixedBits(static_cast<Op>(op), dag.precision(), math);
  }
}

template <int kArity>
NodeId Rewriter::settle(Op op, Operands operands) {
  dag_.orderOperands(op, operands);
  // Without branches, which would be hard to predict.
  const auto isConstant = [&](std::size_t k) { return unsigned{isSortOfConstant(dag_.node(operands[k]).sort)}; };
  const unsigned constants = isConstant(0) & (kArity < 2 ? 1U : isConstant(1)) & (kArity < 3 ? 1U : isConstant(2));
  if (constants != 0 && folds_[static_cast<std::size_t>(op)]) {
    return dag_.constant(foldedValue(dag_, op, std::span(operands).first(kArity)));
  }
  const Candidates found = rules_[op].candidates(dag_, operands);
  if ((found.as_given | found.swapped) != 0 && startRule(op, found.as_given, found.swapped, operands))
    return kRewriting;
  if (kArity == 2 && isSum(op)) {
    has_sums_of_products_ |= isFusible(dag_.node(operands[0])) || isFusible(dag_.node(operands[1]));
  }
  return dag_.applyOrdered<kArity>(op, operands);
}

template NodeId Rewriter::settle<1>(Op op, Operands operands);
template NodeId Rewriter::settle<2>(Op op, Operands operands);
template NodeId Rewriter::settle<3>(Op op, Operands operands);

NodeId Rewriter::settle(Op op, int arity, const Operands& operands) {
  switch (arity) {
    case 1:
      return settle<1>(op, operands);
    case 2:
      return settle<2>(op, operands);
    default:
      return settle<3>(op, operands);
  }
}

// Not inlined, since few nodes have candidates.
[[gnu::noinline]] bool Rewriter::startRule(Op op, std::uint64_t as_given, std::uint64_t swapped,
                                           const Operands& operands) {
  Terms terms;
  std::ranges::copy(operands, terms.begin());
  const RulesOfOp& rules = rules_[op];
  for (std::uint64_t left = as_given | swapped; left != 0; left &= left - 1) {
    const auto rule = static_cast<std::size_t>(std::countr_zero(left));
    const CompiledRule& compiled = rules.rules[rule];
    for (std::size_t v = 0; v < compiled.variants.size(); ++v) {
      // Of a commutative root, every second variant has its operands exchanged.
      const std::uint64_t candidates = rules.exchange != 0 && v % 2 == 1 ? swapped : as_given;
      const Variant& variant = compiled.variants[v];
      if ((candidates >> rule & 1) == 0 || !variant.matches(dag_, terms)) continue;
      Rewrite rewrite{.replacement = compiled.rule->replacement.tokens(), .next = 0, .wildcards = {}, .literals = {}};
      std::array<double, kRuleLiterals> numbers{};
      for (std::size_t i = 0; i < kRuleLiterals; ++i) {
        rewrite.literals[i] = terms[variant.literals[i]];
        if (variant.has_literal[i]) numbers[i] = dag_.node(rewrite.literals[i]).value;
      }
      if (!compiled.rule->condition(numbers[0], numbers[1], dag_.precision())) continue;
      for (std::size_t i = 0; i < kRuleWildcards; ++i) rewrite.wildcards[i] = terms[variant.wildcards[i]];
      rewrites_.push_back(rewrite);
      return true;
    }
  }
  return false;
}

NodeId Rewriter::finishRewrites() {
  values_.clear();
  while (!rewrites_.empty()) {
    Rewrite& rewrite = rewrites_.back();
    if (rewrite.next == rewrite.replacement.size()) {
      rewrites_.pop_back();
      continue;
    }
    const Token& token = rewrite.replacement[rewrite.next++];
    switch (token.kind) {
      case Token::Kind::kConstant:
        values_.push_back(dag_.constant(token.value));
        break;
      case Token::Kind::kVariable:
        values_.push_back(rewrite.wildcards[token.index]);
        break;
      case Token::Kind::kParameter:
        values_.push_back(rewrite.literals[token.index]);
        break;
      case Token::Kind::kOp: {
        const auto arity = static_cast<std::size_t>(arityOf(token.op));
        Operands operands{};
        std::copy(values_.end() - static_cast<std::ptrdiff_t>(arity), values_.end(), operands.begin());
        values_.resize(values_.size() - arity);
        const NodeId value = settle(token.op, static_cast<int>(arity), operands);
        if (value != kRewriting) values_.push_back(value);
        break;
      }
    }
  }
  return values_.back();
}

}  // namespace srjit
