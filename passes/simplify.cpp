#include "passes/simplify.h"

#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <utility>
#include <vector>

#include "ir/ops.h"
#include "ir/text.h"
#include "passes/fold.h"

namespace srjit {
namespace {

bool isNormal(double value, Precision precision) {
  return withZeroOf(precision, [&]<class T>(T) { return std::isnormal(static_cast<T>(value)); });
}

/// A division by `value` is then a multiplication, bit for bit.
bool hasExactReciprocal(double value, Precision precision) {
  int exponent = 0;
  return std::fabs(std::frexp(value, &exponent)) == 0.5 && isNormal(1 / value, precision);
}

// The thresholds of two rows of ops.def as kernels have them.
double thresholdOfPdiv(Precision precision) {
  return withZeroOf(precision, []<class T>(T) { return double{static_cast<T>(0.001)}; });
}
double thresholdOfLooseDiv(Precision precision) {
  return withZeroOf(precision, []<class T>(T) { return double{static_cast<T>(1e-9)}; });
}

Expression termOf(std::string_view text) { return parse(text, Language::kInfix).value(); }

constexpr std::size_t kWildcards = 3;
constexpr std::size_t kLiterals = 2;
constexpr NodeId kUnbound = ~NodeId{0};

/// What the wildcards and literals of a pattern stand for.
struct Bindings {
  std::array<NodeId, kWildcards> wildcards{kUnbound, kUnbound, kUnbound};
  std::array<double, kLiterals> literals{};
  std::array<bool, kLiterals> bound{};
};

/// One token of a pattern.
struct PatternNode {
  Token token;
  bool commutative = false;
  std::array<std::uint32_t, kMaxArity> operands{};  ///< as indices of tokens
};

/// Which rules are applied: each extent contains the ones before it.
enum Extent : std::uint8_t {
  kNoRules,
  kFixedRules,  ///< exact ones over operators whose bits are fixed in fast f32, too
  kExactRules,
  kPreciseRules,
  kFastRules,
};
constexpr std::size_t kExtents = kFastRules + 1;

Extent extentOf(RuleClass rule_class) {
  return static_cast<Extent>(kExactRules + static_cast<std::uint8_t>(rule_class));
}

/// A rule compiled for matching.
struct CompiledRule {
  const Rule* rule;
  std::vector<PatternNode> pattern;
  unsigned commutative = 0;  ///< number of commutative operators in the pattern
  Extent extent;             ///< the smallest that contains the rule

  explicit CompiledRule(const Rule& source) : rule(&source), extent(extentOf(source.rule_class)) {
    const auto tokens = source.pattern.tokens();
    const auto starts = subtreeStarts(tokens);
    for (std::uint32_t i = 0; i < tokens.size(); ++i) {
      PatternNode& node = pattern.emplace_back(PatternNode{tokens[i]});
      std::uint32_t next = i;
      for (int k = tokens[i].arity(); k-- > 0;) {
        node.operands[static_cast<std::size_t>(k)] = next - 1;
        next = starts[next - 1];
      }
      if (tokens[i].kind != Token::Kind::kOp) continue;
      node.commutative = infoOf(tokens[i].op).has(OpProps::kCommutative);
      if (node.commutative) ++commutative;
    }
    if (extent == kExactRules && !isApproximate(source)) extent = kFixedRules;
  }

  static bool isApproximate(const Rule& source) {
    for (const Expression& term : {source.pattern, source.replacement}) {
      for (const Token& token : term.tokens()) {
        if (token.kind == Token::Kind::kOp && hasApproximateStep(token.op)) return true;
      }
    }
    return false;
  }

  const PatternNode& root() const { return pattern.back(); }
  const PatternNode& operand(std::size_t k) const { return pattern[root().operands[k]]; }
};

// The sort of an operand, by which candidate rules are found before they are matched: a constant, another leaf, or one
// of the operators.
constexpr std::size_t kConstantSort = 0;
constexpr std::size_t kLeafSort = 1;
constexpr std::size_t kSorts = 2 + kOpCount;

std::size_t sortOf(const Node& node) {
  if (node.kind == Token::Kind::kOp) return 2 + static_cast<std::size_t>(node.op);
  return node.kind == Token::Kind::kConstant ? kConstantSort : kLeafSort;
}

bool takes(const Token& pattern, std::size_t sort) {
  if (pattern.kind == Token::Kind::kVariable) return true;
  return sort == (pattern.kind == Token::Kind::kOp ? 2 + static_cast<std::size_t>(pattern.op) : kConstantSort);
}

/// The rules whose pattern has one operator at its root, in the order of the table.
class RulesOfOp {
 public:
  void add(const CompiledRule& rule) {
    assert(rules_.size() < 64);
    const std::uint64_t bit = std::uint64_t{1} << rules_.size();
    const Token& root = rule.root().token;
    for (std::size_t k = 0; k < static_cast<std::size_t>(root.arity()); ++k) {
      for (std::size_t sort = 0; sort < kSorts; ++sort) {
        if (takes(rule.operand(k).token, sort)) takes_[k][sort] |= bit;
      }
    }
    const bool twice = root.arity() == 2 && rule.operand(0).token.kind == Token::Kind::kVariable &&
                       rule.operand(0).token == rule.operand(1).token;
    if (twice) twice_ |= bit;
    for (std::size_t extent = rule.extent; extent < kExtents; ++extent) within_[extent] |= bit;
    commutative_ = rule.root().commutative;
    rules_.push_back(rule);
  }

  const CompiledRule& operator[](std::size_t i) const { return rules_[i]; }
  /// The rules of an extent, as a bit set.
  std::uint64_t within(Extent extent) const { return within_[extent]; }

  /// The rules that may match `node`, by the sorts of its operands, as a bit set.
  std::uint64_t candidates(const Dag& dag, const Node& node) const {
    const auto& operands = node.operands;
    const int arity = node.arity();
    const std::size_t first = sortOf(dag.node(operands[0]));
    if (arity == 1) return takes_[0][first];
    const std::size_t second = sortOf(dag.node(operands[1]));
    std::uint64_t rules = takes_[0][first] & takes_[1][second];
    if (commutative_) rules |= takes_[0][second] & takes_[1][first];
    if (operands[0] != operands[1]) rules &= ~twice_;
    return arity == 2 ? rules : rules & takes_[2][sortOf(dag.node(operands[2]))];
  }

 private:
  std::vector<CompiledRule> rules_;
  std::array<std::array<std::uint64_t, kSorts>, kMaxArity> takes_{};  ///< rules by operand and its sort
  std::array<std::uint64_t, kExtents> within_{};                      ///< rules by extent
  std::uint64_t twice_ = 0;                                           ///< rules whose two operands are one wildcard
  bool commutative_ = false;
};

/// All rules, by the operator at the root of their pattern.
const std::vector<RulesOfOp>& rulesByOp() {
  static const std::vector<RulesOfOp> table = [] {
    std::vector<RulesOfOp> rules(kOpCount);
    for (const Rule& rule : allRules()) {
      const CompiledRule compiled(rule);
      rules[static_cast<std::size_t>(compiled.root().token.op)].add(compiled);
    }
    return rules;
  }();
  return table;
}

bool areIdentical(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

/// Tries one pattern at one node.
class Matcher {
 public:
  Matcher(const Dag& dag, const CompiledRule& rule) : dag_(dag), rule_(rule) {}

  /// True if the pattern matches `id`; bindings() then has the match. The orders of the operands of commutative
  /// operators are tried in a fixed sequence, so the match that is found depends on `id` alone.
  bool matches(NodeId id) {
    for (swaps_ = 0; swaps_ < 1u << rule_.commutative; ++swaps_) {
      bindings_ = {};
      seen_commutative_ = 0;
      if (matchesAt(rule_.root(), id)) {
        const auto& literals = bindings_.literals;
        if (rule_.rule->condition(literals[0], literals[1], dag_.precision())) return true;
      }
    }
    return false;
  }

  const Bindings& bindings() const noexcept { return bindings_; }

 private:
  /// Recursive in the pattern, whose depth the table bounds.
  bool matchesAt(const PatternNode& pattern, NodeId id) {
    const Token& token = pattern.token;
    const Node& node = dag_.node(id);
    switch (token.kind) {
      case Token::Kind::kVariable: {
        NodeId& bound = bindings_.wildcards[token.index];
        if (bound == kUnbound) bound = id;
        return bound == id;
      }
      case Token::Kind::kParameter: {
        if (node.kind != Token::Kind::kConstant) return false;
        if (!bindings_.bound[token.index]) bindings_.literals[token.index] = node.value;
        bindings_.bound[token.index] = true;
        return areIdentical(bindings_.literals[token.index], node.value);
      }
      case Token::Kind::kConstant:
        return node.kind == Token::Kind::kConstant && areIdentical(node.value, token.value);
      case Token::Kind::kOp:
        break;
    }
    if (node.kind != Token::Kind::kOp || node.op != token.op) return false;
    const int arity = node.arity();
    const bool swap = pattern.commutative && (swaps_ >> seen_commutative_++ & 1) != 0;
    for (int k = 0; k < arity; ++k) {
      const int from = swap && k < 2 ? 1 - k : k;
      if (!matchesAt(rule_.pattern[pattern.operands[static_cast<std::size_t>(k)]],
                     node.operands[static_cast<std::size_t>(from)])) {
        return false;
      }
    }
    return true;
  }

  const Dag& dag_;
  const CompiledRule& rule_;
  Bindings bindings_;
  unsigned swaps_ = 0;
  int seen_commutative_ = 0;
};

/// Builds terms in normal form. A replacement is a postfix expression whose operators may themselves be rewritten,
/// which starts another rewrite. The rewrites that have started are on an explicit stack, since terms may be of any
/// depth.
class Rewriter {
 public:
  Rewriter(WorkingDag& work, RuleClass rule_class, Math math)
      : work_(work), dag_(work.dag()), rules_(rulesByOp()), extent_(extentOf(rule_class)) {
    const bool exact = rule_class == RuleClass::kExact;
    if (exact && isApproximate(math, dag_.precision())) extent_ = kFixedRules;
    for (std::size_t op = 0; op < kOpCount; ++op) {
      folds_[op] = !exact || hasFixedBits(static_cast<Op>(op), dag_.precision(), math);
    }
  }

  /// The normal form of `op` over operands in normal form; `same` is the node if it exists, else kNone.
  NodeId build(Op op, std::span<const NodeId> operands, NodeId same) {
    if (same != WorkingDag::kNone && work_.normality(same) >= extent_) return work_.keep(same);
    if (const NodeId value = settle(op, operands, same); value != kUnbound) return value;
    values_.clear();
    while (!rewrites_.empty()) {
      Rewrite& rewrite = rewrites_.back();
      const auto tokens = rewrite.rule->replacement.tokens();
      if (rewrite.next == tokens.size()) {
        setNormal(rewrite.redex, values_.back());
        rewrites_.pop_back();
        continue;
      }
      const Token& token = tokens[rewrite.next++];
      switch (token.kind) {
        case Token::Kind::kConstant:
          values_.push_back(work_.keep(dag_.constant(token.value)));
          break;
        case Token::Kind::kVariable:
          values_.push_back(rewrite.bindings.wildcards[token.index]);
          break;
        case Token::Kind::kParameter:
          values_.push_back(work_.keep(dag_.constant(rewrite.bindings.literals[token.index])));
          break;
        case Token::Kind::kOp: {
          const auto arity = static_cast<std::size_t>(arityOf(token.op));
          std::array<NodeId, kMaxArity> arguments{};
          for (std::size_t i = 0; i < arity; ++i) arguments[i] = values_[values_.size() - arity + i];
          values_.resize(values_.size() - arity);
          const NodeId value = settle(token.op, std::span<const NodeId>(arguments.data(), arity), WorkingDag::kNone);
          if (value != kUnbound) values_.push_back(value);
          break;
        }
      }
    }
    return values_.back();
  }

 private:
  struct Rewrite {
    const Rule* rule;
    std::size_t next;  ///< token of the replacement
    NodeId redex;      ///< the node that matched
    Bindings bindings;
  };

  /// The normal form of `op`; kUnbound if a rule matches: then its rewrite is begun and will push it.
  NodeId settle(Op op, std::span<const NodeId> operands, NodeId same) {
    const bool over_constants = areConstants(dag_, operands);
    if (over_constants && folds_[static_cast<std::size_t>(op)]) {
      return work_.keep(dag_.constant(foldedValue(dag_, op, operands)));
    }
    const NodeId id = same != WorkingDag::kNone ? same : dag_.apply(op, operands);
    const std::uint8_t known = work_.normality(id);
    if (known >= extent_) return work_.keep(id);
    if (id < normal_.size() && normal_[id] != kUnbound) return normal_[id];
    const RulesOfOp& rules = rules_[static_cast<std::size_t>(op)];
    const std::uint64_t candidates = rules.candidates(dag_, dag_.node(id)) & ~rules.within(Extent{known});
    if (candidates != 0 && startRule(rules, candidates & rules.within(extent_), id)) return kUnbound;
    const bool for_good = !over_constants && (candidates & ~rules.within(extent_)) == 0;
    work_.setNormality(id, for_good ? kFastRules : extent_);
    return work_.keep(id);
  }

  /// Begins the rewrite by the first rule among `candidates` that matches; false if none does. Not inlined, since few
  /// nodes have candidates.
  [[gnu::noinline]] bool startRule(const RulesOfOp& rules, std::uint64_t candidates, NodeId id) {
    for (; candidates != 0; candidates &= candidates - 1) {
      const CompiledRule& rule = rules[static_cast<std::size_t>(std::countr_zero(candidates))];
      Matcher matcher(dag_, rule);
      if (!matcher.matches(id)) continue;
      rewrites_.push_back({rule.rule, 0, id, matcher.bindings()});
      return true;
    }
    return false;
  }

  void setNormal(NodeId id, NodeId normal) {
    if (id >= normal_.size()) normal_.resize(dag_.size(), kUnbound);
    normal_[id] = normal;
  }

  WorkingDag& work_;
  Dag& dag_;
  const std::vector<RulesOfOp>& rules_;
  Extent extent_;
  std::array<bool, kOpCount> folds_{};  ///< operators that are folded over constants
  std::vector<NodeId> values_;          ///< the operand stack of the rewrites
  std::vector<Rewrite> rewrites_;       ///< the stack of rewrites that have started
  std::vector<NodeId> normal_;          ///< normal form of nodes that a rule has matched; kUnbound for others
};

}  // namespace

std::span<const Rule> allRules() {
  static const std::vector<Rule> rules = {
#define SRJIT_RULE(rule_class, pattern, replacement, condition)                                                   \
  Rule{RuleClass::rule_class,                                                                                     \
       pattern,                                                                                                   \
       replacement,                                                                                               \
       []([[maybe_unused]] double p0, [[maybe_unused]] double p1, [[maybe_unused]] Precision precision) -> bool { \
         return condition;                                                                                        \
       },                                                                                                         \
       termOf(pattern),                                                                                           \
       termOf(replacement)},
#include "passes/simplify.def"
#undef SRJIT_RULE
  };
  return rules;
}

void simplify(WorkingDag& work, RuleClass rule_class, Math math) {
  Rewriter rewriter(work, rule_class, math);
  work.rebuild(
      [&](NodeId id) { return work.keep(id); },
      [&](Op op, std::span<const NodeId> operands, NodeId same) { return rewriter.build(op, operands, same); });
}

Dag simplify(const Dag& dag, RuleClass rule_class, Math math) {
  WorkingDag work(dag);
  simplify(work, rule_class, math);
  return work.result();
}

void simplifyExact(WorkingDag& work, const PassContext& context) { simplify(work, RuleClass::kExact, context.math); }

void simplifyPrecise(WorkingDag& work, const PassContext& context) {
  simplify(work, RuleClass::kPrecise, context.math);
}

void simplifyFast(WorkingDag& work, const PassContext& context) {
  if (!isApproximate(Math::kFast, work.dag().precision())) return;
  simplify(work, RuleClass::kFast, context.math);
}

}  // namespace srjit
