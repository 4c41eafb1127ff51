#include "passes/rewrite_log.h"
#include "passes/rules/fold.h"
#include "passes/rules/rewriter.h"
#include "passes/rules/simplify.h"
#include "passes/rules/tables.h"

namespace srjit {

Rewriter::Rewriter(Dag& dag, RuleClass rule_class, Math math, RewriteLog* log)
    : Rewriter(dag, rulesFor(rule_class, math, dag.precision()), foldedOperators(rule_class, math, dag.precision()),
               math) {
  log_ = log;
}

void Rewriter::reportFold(Op op, const Operands& operands, NodeId value) const {
  log_->fold(op, operands, value, hasFixedBits(op, dag_.precision(), math_));
}

void Rewriter::reportRule(std::size_t number, Op op, const Operands& operands) const {
  const Rule& rule = allRules()[number];
  log_->begin({rule.pattern_text, rule.replacement_text, wordOf(rule.rule_class), op, operands, 0, 0});
}

void Rewriter::reportEnd(NodeId result) const { log_->end(result); }

}  // namespace srjit
