#include "passes/rules/tables.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <vector>

#include "ir/text.h"
#include "passes/operator_facts.h"
#include "passes/pass.h"
#include "passes/rewrite_log.h"
#include "passes/rules/rewriter.h"
#include "passes/working_dag.h"

namespace srjit {
namespace {

/// Whether an operand of this sort may match the token.
bool mayMatch(const Token& pattern, std::uint8_t sort) {
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

/// A pattern with its commutative operators in certain orders.
struct Pattern {
  std::array<std::uint8_t, kMaxArity> operands{};  ///< by operand of a term: the pattern's that it is compared with
  std::vector<RuleCheck> checks;
  std::array<std::uint8_t, kRuleWildcards> wildcards{};  ///< the terms that they are
  std::array<std::uint8_t, kRuleLiterals> literals{};
  std::array<bool, kRuleLiterals> has_literal{};
};

/// Makes the orders of a pattern.
class PatternMaker {
 public:
  explicit PatternMaker(const Expression& pattern)
      : tokens_(pattern.tokens()),
        starts_(subtreeStarts(tokens_)),
        root_(static_cast<std::uint32_t>(tokens_.size() - 1)) {}

  /// Orders of operands are tried in a fixed sequence, so that the match depends only on the term.
  std::vector<Pattern> all() {
    const auto commutative = std::ranges::count_if(tokens_, commutes);
    std::vector<Pattern> patterns;
    for (swaps_ = 0; swaps_ < 1u << commutative; ++swaps_) {
      made_ = {};
      seen_commutative_ = 0;
      bound_wildcards_ = {};
      terms_ = kOperandTerms;
      addOperands(root_, 0);
      patterns.push_back(std::move(made_));
    }
    return patterns;
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
          made_.checks.push_back({.kind = RuleCheck::Kind::kSame, .term = term, .other = made_.wildcards[token.index]});
        }
        bound_wildcards_[token.index] = true;
        made_.wildcards[token.index] = term;
        break;
      case Token::Kind::kParameter:
        if (!is_known) made_.checks.push_back({.kind = RuleCheck::Kind::kLiteral, .term = term});
        if (made_.has_literal[token.index]) {
          made_.checks.push_back({.kind = RuleCheck::Kind::kSame, .term = term, .other = made_.literals[token.index]});
        }
        made_.has_literal[token.index] = true;
        made_.literals[token.index] = term;
        break;
      case Token::Kind::kConstant:
        if (is_known) break;
        made_.checks.push_back(
            {.kind = RuleCheck::Kind::kConstant, .term = term, .bits = std::bit_cast<std::uint64_t>(token.value)});
        break;
      case Token::Kind::kOp: {
        const std::uint8_t first = is_known ? operandTermsOf(term) : terms_;
        if (!is_known) {
          terms_ = static_cast<std::uint8_t>(terms_ + kMaxArity);
          assert(terms_ <= kMostTerms);
          made_.checks.push_back({.kind = RuleCheck::Kind::kOperator, .term = term, .other = first, .op = token.op});
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
  Pattern made_;
};

std::uint8_t placeOf(const Token& token) {
  return static_cast<std::uint8_t>(token.index + (token.kind == Token::Kind::kVariable ? 0 : kRuleWildcards));
}

/// The replacement's steps: none if it is only a wildcard or literal.
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

/// The last token of each operand of the pattern's root, for comparison with an operand's sort.
std::array<Token, kMaxArity> rootOperands(std::span<const Token> pattern) {
  const std::vector<std::uint32_t> starts = subtreeStarts(pattern);
  auto operand = static_cast<std::uint32_t>(pattern.size() - 1);
  std::array<Token, kMaxArity> operands;
  for (auto k = static_cast<std::size_t>(pattern.back().arity()); k-- > 0; operand = starts[operand - 1]) {
    operands[k] = pattern[operand - 1];
  }
  return operands;
}

template <class T>
std::uint32_t sizeOf(const std::vector<T>& values) {
  return static_cast<std::uint32_t>(values.size());
}

/// The tables of one mode.
class CompiledRules {
 public:
  explicit CompiledRules(Math mode) : ops_(kOpCount) {
    std::vector<std::vector<std::uint32_t>> rules(kOpCount);
    for (const Math own : kMathModes) {
      for (std::uint32_t number = 0; number < allRules().size(); ++number) {
        const Rule& rule = allRules()[number];
        if (rule.mode != own || own > mode) continue;
        rules[static_cast<std::size_t>(rule.pattern.tokens().back().op)].push_back(number);
      }
    }
    for (std::size_t op = 0; op < kOpCount; ++op) {
      ops_[op].first = sizeOf(variants_);
      for (const std::uint32_t rule : rules[op]) add(ops_[op], rule);
    }
  }

  RuleTables view() const { return {ops_, variants_, checks_, steps_}; }

 private:
  void add(RulesOfOp& rules, std::uint32_t number) {
    const Rule& rule = allRules()[number];
    const std::span<const Token> replacement = rule.replacement.tokens();
    const std::vector<RewriteStep> steps = stepsOf(replacement);
    for (const Pattern& pattern : PatternMaker(rule.pattern).all()) {
      addToSets(rules, rule.pattern.tokens(), pattern);
      variants_.push_back({.first_check = sizeOf(checks_),
                           .check_count = sizeOf(pattern.checks),
                           .first_step = sizeOf(steps_),
                           .step_count = sizeOf(steps),
                           .rule = number,
                           .wildcards = pattern.wildcards,
                           .literals = pattern.literals,
                           .has_literal = pattern.has_literal[0],
                           .value = placeOf(replacement.back())});
      checks_.insert(checks_.end(), pattern.checks.begin(), pattern.checks.end());
    }
    steps_.insert(steps_.end(), steps.begin(), steps.end());
  }

  /// Adds the next variant to the sets of its operator.
  void addToSets(RulesOfOp& rules, std::span<const Token> tokens, const Pattern& pattern) const {
    assert(variants_.size() - rules.first < 64);
    const std::uint64_t bit = std::uint64_t{1} << (variants_.size() - rules.first);
    const std::array<Token, kMaxArity> operands = rootOperands(tokens);
    const auto arity = static_cast<std::size_t>(tokens.back().arity());
    for (std::size_t k = 0; k < arity; ++k) {
      for (std::size_t sort = 0; sort < kSorts; ++sort) {
        if (mayMatch(operands[pattern.operands[k]], static_cast<std::uint8_t>(sort))) rules.takes[k][sort] |= bit;
      }
    }
    const bool same = arity == 2 && operands[0].kind == Token::Kind::kVariable && operands[0] == operands[1];
    if (same) rules.twice |= bit;
  }

  std::vector<RulesOfOp> ops_;
  std::vector<RuleVariant> variants_;
  std::vector<RuleCheck> checks_;
  std::vector<RewriteStep> steps_;
};

}  // namespace

const RuleTables& rulesFor(Math mode) {
  static const std::array<CompiledRules, std::size(kMathModes)> compiled = {
      CompiledRules(Math::kStrict), CompiledRules(Math::kPrecise), CompiledRules(Math::kFast)};
  static const std::array<RuleTables, std::size(kMathModes)> tables = {compiled[0].view(), compiled[1].view(),
                                                                       compiled[2].view()};
  return tables[static_cast<std::size_t>(mode)];
}

namespace {

Expression termOf(std::string_view text) { return parse(text, Language::kInfix).value(); }

std::string_view wordOf(Math mode) { return mode == Math::kStrict ? "exact" : nameOf(mode); }

}  // namespace

std::span<const Rule> allRules() {
  static const std::vector<Rule> rules = {
#define SRJIT_RULE(mode, pattern, replacement, condition) \
  Rule{Math::mode, pattern, replacement, termOf(pattern), termOf(replacement)},
#include "passes/rules/simplify.def"
#undef SRJIT_RULE
  };
  return rules;
}

Rewriter::Rewriter(Dag& dag, Math mode, RewriteLog* log) : Rewriter(dag, rulesFor(mode)) {
  mode_ = mode;
  log_ = log;
}

void Rewriter::reportFold(Op op, const Operands& operands, NodeId value) const {
  const bool is_approximate = isApproximate(mode_, dag_.precision()) && hasApproximateStep(op);
  log_->fold(op, operands, value, !is_approximate);
}

void Rewriter::reportRule(std::size_t number, Op op, const Operands& operands) const {
  const Rule& rule = allRules()[number];
  log_->begin({rule.pattern_text, rule.replacement_text, wordOf(rule.mode), op, operands, 0, 0});
}

void Rewriter::reportEnd(NodeId result) const { log_->end(result); }

void simplify(WorkingDag& work, Math mode, RewriteLog* log) {
  Rewriter rewriter(work.dag(), mode, log);
  work.rebuild([&](Op op, const Operands& operands) { return rewriter.build(op, operands); }, log);
}

void simplify(WorkingDag& work, const PassContext& context) {
  simplify(work, ruleModeOf(context.math, work.dag().precision()), context.log);
}

}  // namespace srjit
