#include "passes/rules/simplify.h"

#include <vector>

#include "ir/text.h"
#include "passes/rules/rewriter.h"

namespace srjit {
namespace {

Expression termOf(std::string_view text) { return parse(text, Language::kInfix).value(); }

}  // namespace

std::span<const Rule> allRules() {
  static const std::vector<Rule> rules = {
#define SRJIT_RULE(rule_class, pattern, replacement, condition) \
  Rule{RuleClass::rule_class, pattern, replacement, termOf(pattern), termOf(replacement)},
#include "passes/rules/simplify.def"
#undef SRJIT_RULE
  };
  return rules;
}

void simplify(WorkingDag& work, RuleClass rule_class, Math math, RewriteLog* log) {
  Rewriter rewriter(work.dag(), rule_class, math, log);
  work.rebuild([](NodeId id) { return id; },
               [&](Op op, const Operands& operands) { return rewriter.build(op, operands); }, log);
}

Dag simplify(const Dag& dag, RuleClass rule_class, Math math) {
  WorkingDag work(dag);
  simplify(work, rule_class, math);
  return work.result();
}

void simplifyExact(WorkingDag& work, const PassContext& context) {
  simplify(work, RuleClass::kExact, context.math, context.log);
}

void simplifyPrecise(WorkingDag& work, const PassContext& context) {
  simplify(work, RuleClass::kPrecise, context.math, context.log);
}

void simplifyFast(WorkingDag& work, const PassContext& context) {
  simplify(work, ruleClassOf(Math::kFast, work.dag().precision()), context.math, context.log);
}

}  // namespace srjit
