#include "passes/rules/rewriter.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

#include "ir/ops.h"
#include "passes/fma.h"
#include "passes/rewrite_log.h"
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

/// Nodes that tokens of a pattern stand for: the operands of its root, then the operands of each of these, then terms
/// further down.
constexpr std::uint8_t kOperandTerms = kMaxArity + kMaxArity * kMaxArity;
constexpr std::size_t kMostTerms = kOperandTerms + 2 * kMaxArity;
using Terms = std::array<NodeId, kMostTerms>;
constexpr std::uint8_t operandTermsOf(std::uint8_t operand) {
  return static_cast<std::uint8_t>(kMaxArity * (operand + 1));
}

/// One check of a term. Checks of a pattern are in an order in which each term is known before it is checked. What the
/// sorts of the root's operands say needs none.
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
  std::array<std::uint8_t, kMaxArity> operands{};  ///< by operand of a term: the pattern's that it is compared with
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
          for (std::size_t k = 0; k < kMaxArity; ++k) terms[check.other + k] = node.operands[k];
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
      terms_ = kOperandTerms;
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
      if (at == root_) made_.operands[from] = k;
      add(operands[k], static_cast<std::uint8_t>(first + from));
    }
  }

  /// Recursive in the pattern, whose depth the table bounds.
  void add(std::uint32_t at, std::uint8_t term) {
    const Token& token = tokens_[at];
    const bool is_known = term < kMaxArity;  // by its sort
    switch (token.kind) {
      case Token::Kind::kVariable:
        if (bound_wildcards_[token.index]) {
          made_.checks.push_back({.kind = Check::Kind::kSame, .term = term, .other = made_.wildcards[token.index]});
        }
        bound_wildcards_[token.index] = true;
        made_.wildcards[token.index] = term;
        break;
      case Token::Kind::kParameter:
        if (!is_known) made_.checks.push_back({.kind = Check::Kind::kLiteral, .term = term});
        if (made_.has_literal[token.index]) {
          made_.checks.push_back({.kind = Check::Kind::kSame, .term = term, .other = made_.literals[token.index]});
        }
        made_.has_literal[token.index] = true;
        made_.literals[token.index] = term;
        break;
      case Token::Kind::kConstant:
        if (is_known) break;
        made_.checks.push_back(
            {.kind = Check::Kind::kConstant, .term = term, .bits = std::bit_cast<std::uint64_t>(token.value)});
        break;
      case Token::Kind::kOp: {
        const std::uint8_t first = is_known ? operandTermsOf(term) : terms_;
        if (!is_known) {
          terms_ = static_cast<std::uint8_t>(terms_ + kMaxArity);
          assert(terms_ <= kMostTerms);
          made_.checks.push_back({.kind = Check::Kind::kOperator, .term = term, .other = first, .op = token.op});
        }
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

}  // namespace

/// A step of a replacement: an operator over what is known, which are the rule's wildcards, its literals, and the
/// values of the steps before.
struct RewriteStep {
  int arity;  ///< 0: a constant
  Op op;
  std::array<std::uint8_t, kMaxArity> operands;
  double constant;
};

namespace {

std::uint8_t placeOf(const Token& token) {
  return static_cast<std::uint8_t>(token.index + (token.kind == Token::Kind::kVariable ? 0 : kRuleWildcards));
}

/// The replacement's steps; the last one is its value, unless it is a wildcard or literal alone: then there are none.
std::vector<RewriteStep> stepsOf(std::span<const Token> replacement) {
  std::vector<RewriteStep> steps;
  std::vector<std::uint8_t> stack;
  for (const Token& token : replacement) {
    if (token.kind == Token::Kind::kVariable || token.kind == Token::Kind::kParameter) {
      stack.push_back(placeOf(token));
      continue;
    }
    RewriteStep step{.arity = token.arity(), .op = token.op, .operands = {}, .constant = token.value};
    std::copy(stack.end() - step.arity, stack.end(), step.operands.begin());
    stack.resize(stack.size() - static_cast<std::size_t>(step.arity));
    stack.push_back(static_cast<std::uint8_t>(kRuleWildcards + kRuleLiterals + steps.size()));
    steps.push_back(step);
  }
  assert(steps.size() <= kRuleSteps);
  return steps;
}

/// A variant of a rule's pattern, and the rule.
struct CompiledVariant {
  Variant variant;
  const Rule* rule;
  std::vector<RewriteStep> steps;
  std::uint8_t value;  ///< of a replacement without steps: where it is among what is known
};

/// The rules whose pattern has one operator at its root, as variants: exact ones first, then precise, then fast ones;
/// those of one class in the order of the table.
struct RulesOfOp {
  std::array<std::array<std::uint64_t, kSorts>, kMaxArity> takes{};  ///< bit sets of variants by operand and its sort
  std::uint64_t twice = 0;                                           ///< variants whose two operands are one wildcard
  std::vector<CompiledVariant> variants;

  void set(const std::vector<const Rule*>& rules) {
    for (const Rule* const rule : rules) {
      for (Variant& variant : VariantMaker(rule->pattern).all()) add(*rule, std::move(variant));
    }
  }

  /// The variants that may match the operands.
  template <int kArity>
  std::uint64_t candidates(const Dag& dag, NodeId a, NodeId b, NodeId c) const {
    std::uint64_t found = takes[0][dag.node(a).sort];
    if constexpr (kArity > 1) found &= takes[1][dag.node(b).sort] & ~(a == b ? 0 : twice);
    if constexpr (kArity > 2) found &= takes[2][dag.node(c).sort];
    return found;
  }

 private:
  void add(const Rule& rule, Variant variant) {
    assert(variants.size() < 64);
    const std::uint64_t bit = std::uint64_t{1} << variants.size();
    const std::span<const Token> tokens = rule.pattern.tokens();
    const Token& root = tokens.back();
    const std::vector<std::uint32_t> starts = subtreeStarts(tokens);
    auto operand = static_cast<std::uint32_t>(tokens.size() - 1);
    std::array<Token, kMaxArity> operands;
    for (auto k = static_cast<std::size_t>(root.arity()); k-- > 0; operand = starts[operand - 1]) {
      operands[k] = tokens[operand - 1];
    }
    for (std::size_t k = 0; k < static_cast<std::size_t>(root.arity()); ++k) {
      for (std::size_t sort = 0; sort < kSorts; ++sort) {
        if (srjit::takes(operands[variant.operands[k]], static_cast<std::uint8_t>(sort))) takes[k][sort] |= bit;
      }
    }
    const bool same = root.arity() == 2 && operands[0].kind == Token::Kind::kVariable && operands[0] == operands[1];
    if (same) twice |= bit;
    const std::span<const Token> replacement = rule.replacement.tokens();
    variants.push_back({std::move(variant), &rule, stepsOf(replacement), placeOf(replacement.back())});
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
    for (std::size_t op = 0; op < kOpCount; ++op) by_op_[op].set(rules[op]);
  }

  std::vector<RulesOfOp> by_op_;
};

namespace {

const RuleIndex& indexFor(RuleClass rule_class, Math math, Precision precision) {
  const bool only_fixed = rule_class == RuleClass::kExact && isApproximate(math, precision);
  return RuleIndex::of(only_fixed ? kFixedRules : extentOf(rule_class));
}

}  // namespace

Rewriter::Rewriter(Dag& dag, RuleClass rule_class, Math math, RewriteLog* log)
    : dag_(dag), rules_(indexFor(rule_class, math, dag.precision())), math_(math), log_(log) {
  for (std::size_t op = 0; op < kOpCount; ++op) {
    folds_[op] = rule_class != RuleClass::kExact || hasFixedBits(static_cast<Op>(op), dag.precision(), math);
  }
}

template <int kArity>
NodeId Rewriter::settle(Op op, NodeId a, NodeId b, NodeId c) {
  if constexpr (kArity > 1) dag_.orderOperands(op, a, b);
  // Without branches, which would be hard to predict.
  const auto isConstant = [&](NodeId id) { return unsigned{isSortOfConstant(dag_.node(id).sort)}; };
  const unsigned constants = isConstant(a) & (kArity < 2 ? 1U : isConstant(b)) & (kArity < 3 ? 1U : isConstant(c));
  if (constants != 0 && folds_[static_cast<std::size_t>(op)]) {
    return fold(op, {a, b, c}, kArity);
  }
  if (const std::uint64_t candidates = rules_[op].candidates<kArity>(dag_, a, b, c); candidates != 0) {
    const NodeId rewritten = applyRule(op, candidates, a, b, c);
    if (rewritten != kNone) return rewritten;
  }
  if constexpr (kArity == 2) {
    sums_of_products_ |= unsigned{isSum(op)} & (unsigned{isFusible(dag_.node(a))} | unsigned{isFusible(dag_.node(b))});
  }
  return dag_.applyOrdered<kArity>(op, a, b, c);
}

template NodeId Rewriter::settle<1>(Op op, NodeId a, NodeId b, NodeId c);
template NodeId Rewriter::settle<2>(Op op, NodeId a, NodeId b, NodeId c);
template NodeId Rewriter::settle<3>(Op op, NodeId a, NodeId b, NodeId c);

NodeId Rewriter::settle(Op op, int arity, NodeId a, NodeId b, NodeId c) {
  switch (arity) {
    case 1:
      return settle<1>(op, a, b, c);
    case 2:
      return settle<2>(op, a, b, c);
    default:
      return settle<3>(op, a, b, c);
  }
}

NodeId Rewriter::fold(Op op, const Operands& operands, int arity) {
  const NodeId value = dag_.constant(foldedValue(dag_, op, std::span(operands).first(static_cast<std::size_t>(arity))));
  if (log_ != nullptr) log_->fold(op, operands, value, hasFixedBits(op, dag_.precision(), math_));
  return value;
}

// Not inlined, since few nodes have candidates.
[[gnu::noinline]] NodeId Rewriter::applyRule(Op op, std::uint64_t candidates, NodeId a, NodeId b, NodeId c) {
  Terms terms{a, b, c};
  const auto addOperands = [&](std::uint8_t of, NodeId id) {
    const Operands& operands = dag_.node(id).operands;
    for (std::size_t i = 0; i < kMaxArity; ++i) terms[operandTermsOf(of) + i] = operands[i];
  };
  addOperands(0, a);
  addOperands(1, b);
  addOperands(2, c);
  for (const RulesOfOp& rules = rules_[op]; candidates != 0; candidates &= candidates - 1) {
    const auto& [variant, rule, steps, value] = rules.variants[static_cast<std::size_t>(std::countr_zero(candidates))];
    if (!variant.matches(dag_, terms)) continue;
    const NodeId p0 = terms[variant.literals[0]], p1 = terms[variant.literals[1]];
    // A condition is about constants.
    if (variant.has_literal[0] && !rule->condition(dag_.node(p0).value, dag_.node(p1).value, dag_.precision()))
      continue;
    const auto wildcard = [&](std::size_t i) { return terms[variant.wildcards[i]]; };
    const std::array<NodeId, kRuleWildcards + kRuleLiterals> known = {wildcard(0), wildcard(1), wildcard(2), p0, p1};
    if (log_ != nullptr) {
      log_->begin({rule->pattern_text, rule->replacement_text, wordOf(rule->rule_class), op, Operands{a, b, c}, 0, 0});
      if (steps.empty()) log_->end(known[value]);
    }
    if (steps.empty()) return known[value];
    Rewrite& rewrite = rewrites_.emplace_back();
    rewrite.next = steps.data();
    rewrite.end = steps.data() + steps.size();
    rewrite.known = known.size();
    std::ranges::copy(known, rewrite.values.begin());
    return kRewriting;
  }
  return kNone;
}

NodeId Rewriter::takeStep(const RewriteStep& step, Rewrite& rewrite) {
  if (step.arity == 0) return dag_.constant(step.constant);
  const auto operand = [&](std::size_t k) {
    return k < static_cast<std::size_t>(step.arity) ? rewrite.values[step.operands[k]] : 0;
  };
  return settle(step.op, step.arity, operand(0), operand(1), operand(2));
}

NodeId Rewriter::finishRewrites() {
  for (;;) {
    Rewrite& current = rewrites_.back();
    const NodeId value = takeStep(*current.next++, current);
    if (value == kRewriting) continue;
    // Its rewrite, and those whose last step this was, are done.
    for (;;) {
      Rewrite& waiting = rewrites_.back();
      if (waiting.next != waiting.end) {
        waiting.values[waiting.known++] = value;
        break;
      }
      rewrites_.pop_back();
      if (log_ != nullptr) log_->end(value);
      if (rewrites_.empty()) return value;
    }
  }
}

}  // namespace srjit
