#include "passes/rules/simplify.h"

#include <vector>

#include "ir/text.h"
#include "passes/operator_facts.h"
#include "passes/pass.h"
#include "passes/rules/rewriter.h"
#include "passes/rules/tables.h"

namespace srjit {
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
