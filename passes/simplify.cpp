#include "passes/simplify.h"

#include <array>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "ir/text.h"
#include "passes/fold.h"
#include "passes/rebuild.h"

namespace srjit {
namespace {

bool isNormal(double value, Precision precision) {
  return precision == Precision::kF32 ? std::isnormal(static_cast<float>(value)) : std::isnormal(value);
}

/// A division by `value` is then a multiplication, bit for bit.
bool hasExactReciprocal(double value, Precision precision) {
  int exponent = 0;
  return std::fabs(std::frexp(value, &exponent)) == 0.5 && isNormal(1 / value, precision);
}

// The thresholds of two rows of ops.def as kernels have them.
double thresholdOfPdiv(Precision precision) { return precision == Precision::kF32 ? double{0.001f} : 0.001; }
double thresholdOfLooseDiv(Precision precision) { return precision == Precision::kF32 ? double{1e-9f} : 1e-9; }

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

/// A rule made ready for matching.
struct CompiledRule {
  const Rule* rule;
  std::vector<std::array<std::uint32_t, kMaxArity>> operands;  ///< of every token of the pattern, as indices of tokens
  int commutative;                                             ///< number of commutative operators in the pattern
  bool approximate;                                            ///< its bits are not fixed in fast f32

  explicit CompiledRule(const Rule& source)
      : rule(&source), operands(source.pattern.size()), commutative(0), approximate(false) {
    const auto tokens = source.pattern.tokens();
    const auto starts = subtreeStarts(tokens);
    for (std::uint32_t i = 0; i < tokens.size(); ++i) {
      std::uint32_t next = i;
      for (int k = tokens[i].arity(); k-- > 0;) {
        operands[i][static_cast<std::size_t>(k)] = next - 1;
        next = starts[next - 1];
      }
      if (tokens[i].kind != Token::Kind::kOp) continue;
      if ((infoOf(tokens[i].op).props & kCommutative) != 0) ++commutative;
    }
    for (const Expression& term : {source.pattern, source.replacement}) {
      for (const Token& token : term.tokens()) {
        if (token.kind == Token::Kind::kOp && factsOf(token.op).approximate) approximate = true;
      }
    }
  }
};

/// The rules, grouped by the operator at the root of their pattern.
const std::vector<CompiledRule>& rulesFor(Op op) {
  static const auto table = [] {
    std::vector<std::vector<CompiledRule>> by_op(allOps().size());
    for (const Rule& rule : allRules()) {
      by_op[static_cast<std::size_t>(rule.pattern.tokens().back().op)].emplace_back(rule);
    }
    return by_op;
  }();
  return table[static_cast<std::size_t>(op)];
}

bool sameBits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

/// Tries one pattern at one node.
class Matcher {
 public:
  Matcher(const Dag& dag, const CompiledRule& rule) : dag_(dag), rule_(rule) {}

  /// True if the pattern matches `id`; bindings() then says how. Each order of the operands of commutative operators is
  /// tried in turn, so that which one is found depends on `id` alone.
  bool matches(NodeId id) {
    const auto tokens = rule_.rule->pattern.tokens();
    for (swaps_ = 0; swaps_ < 1u << rule_.commutative; ++swaps_) {
      bindings_ = {};
      seen_commutative_ = 0;
      if (matchesAt(static_cast<std::uint32_t>(tokens.size() - 1), id)) {
        const auto& literals = bindings_.literals;
        if (rule_.rule->condition(literals[0], literals[1], dag_.precision())) return true;
      }
    }
    return false;
  }

  const Bindings& bindings() const noexcept { return bindings_; }

 private:
  /// Recursive in the pattern, whose depth the table bounds.
  bool matchesAt(std::uint32_t position, NodeId id) {
    const Token& token = rule_.rule->pattern.tokens()[position];
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
        return sameBits(bindings_.literals[token.index], node.value);
      }
      case Token::Kind::kConstant:
        return node.kind == Token::Kind::kConstant && sameBits(node.value, token.value);
      case Token::Kind::kOp:
        break;
    }
    if (node.kind != Token::Kind::kOp || node.op != token.op) return false;
    const int arity = node.arity();
    const bool swap = (infoOf(node.op).props & kCommutative) != 0 && (swaps_ >> seen_commutative_++ & 1) != 0;
    for (int k = 0; k < arity; ++k) {
      const int from = swap && k < 2 ? 1 - k : k;
      if (!matchesAt(rule_.operands[position][static_cast<std::size_t>(k)],
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

/// Builds terms in normal form. A replacement is a postfix program whose operators may themselves be rewritten, which
/// starts another program; the programs under way are a stack of our own, because terms may be of any depth.
class Rewriter {
 public:
  Rewriter(Dag& dag, RuleClass rule_class, Math math) : dag_(dag), rule_class_(rule_class), math_(math) {}

  /// The normal form of `op` over operands in normal form.
  NodeId build(Op op, std::span<const NodeId> operands) {
    values_.clear();
    step(op, operands);
    while (!programs_.empty()) {
      Program& program = programs_.back();
      const auto tokens = program.rule->replacement.tokens();
      if (program.next == tokens.size()) {
        setNormal(program.redex, values_.back());
        programs_.pop_back();
        continue;
      }
      const Token& token = tokens[program.next++];
      switch (token.kind) {
        case Token::Kind::kConstant:
          values_.push_back(dag_.constant(token.value));
          break;
        case Token::Kind::kVariable:
          values_.push_back(program.bindings.wildcards[token.index]);
          break;
        case Token::Kind::kParameter:
          values_.push_back(dag_.constant(program.bindings.literals[token.index]));
          break;
        case Token::Kind::kOp: {
          const auto arity = static_cast<std::size_t>(arityOf(token.op));
          std::array<NodeId, kMaxArity> arguments{};
          for (std::size_t i = 0; i < arity; ++i) arguments[i] = values_[values_.size() - arity + i];
          values_.resize(values_.size() - arity);
          step(token.op, std::span<const NodeId>(arguments.data(), arity));
          break;
        }
      }
    }
    return values_.back();
  }

 private:
  struct Program {
    const Rule* rule;
    std::size_t next;  ///< token of the replacement
    NodeId redex;      ///< the node that matched
    Bindings bindings;
  };

  /// Pushes the value of `op`, or starts the program that will.
  void step(Op op, std::span<const NodeId> operands) {
    if (rule_class_ != RuleClass::kExact || isExactlyRounded(op, dag_.precision(), math_)) {
      if (const auto value = foldedValue(dag_, op, operands)) {
        values_.push_back(dag_.constant(*value));
        return;
      }
    }
    const NodeId id = dag_.apply(op, operands);
    if (id < normal_.size() && normal_[id] != kUnbound) {
      values_.push_back(normal_[id]);
      return;
    }
    const bool keep_approximate =
        rule_class_ == RuleClass::kExact && math_ == Math::kFast && dag_.precision() == Precision::kF32;
    for (const CompiledRule& rule : rulesFor(op)) {
      if (rule.rule->rule_class > rule_class_ || (keep_approximate && rule.approximate)) continue;
      Matcher matcher(dag_, rule);
      if (!matcher.matches(id)) continue;
      programs_.push_back({rule.rule, 0, id, matcher.bindings()});
      return;
    }
    setNormal(id, id);
    values_.push_back(id);
  }

  void setNormal(NodeId id, NodeId normal) {
    if (id >= normal_.size()) normal_.resize(dag_.size(), kUnbound);
    normal_[id] = normal;
  }

  Dag& dag_;
  RuleClass rule_class_;
  Math math_;
  std::vector<NodeId> values_;
  std::vector<Program> programs_;
  std::vector<NodeId> normal_;  ///< normal form of every node of dag_ that was met; kUnbound for others
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

Dag simplify(const Dag& dag, RuleClass rule_class, Math math) {
  Dag rewritten(dag.precision());
  Rewriter rewriter(rewritten, rule_class, math);
  rebuildInto(
      rewritten, dag, [&](NodeId id) { return rewritten.copyLeaf(dag, id); },
      [&](Op op, std::span<const NodeId> operands) { return rewriter.build(op, operands); });
  return withoutUnreachable(std::move(rewritten));
}

Dag simplifyExact(const Dag& dag, const PassContext& context) { return simplify(dag, RuleClass::kExact, context.math); }

Dag simplifyPrecise(const Dag& dag, const PassContext& context) {
  return simplify(dag, RuleClass::kPrecise, context.math);
}

Dag simplifyFast(const Dag& dag, const PassContext& context) {
  if (dag.precision() == Precision::kF64) return dag;  // fast is precise there (ir/numeric.h)
  return simplify(dag, RuleClass::kFast, context.math);
}

}  // namespace srjit
