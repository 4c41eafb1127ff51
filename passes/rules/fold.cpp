#include "passes/rules/fold.h"

#include <vector>

#include "ir/numbers/fast_forms.h"
#include "ir/rows.h"
#include "passes/pass.h"
#include "passes/working_dag.h"

namespace srjit {
namespace {

/// A domain whose values say whether a step that computed them is approximate.
struct Probe {
  bool is_approximate = false;
  explicit Probe(double) {}
};

template <class... Operands>
Probe joined(bool own, const Operands&... operands) {
  Probe result(0.0);
  result.is_approximate = (own || ... || operands.is_approximate);
  return result;
}

Probe operator+(Probe x, Probe y) { return joined(false, x, y); }
Probe operator-(Probe x, Probe y) { return joined(false, x, y); }
Probe operator*(Probe x, Probe y) { return joined(false, x, y); }
Probe operator/(Probe x, Probe y) { return joined(true, x, y); }
Probe operator-(Probe x) { return x; }
Probe lt(Probe x, Probe y) { return joined(false, x, y); }
Probe le(Probe x, Probe y) { return joined(false, x, y); }
Probe eq(Probe x, Probe y) { return joined(false, x, y); }
Probe select(Probe mask, Probe x, Probe y) { return joined(false, mask, x, y); }

// The bound of a correctly rounded function is one kUlp at r = 1.
template <class... Operands>
Probe called(Function function, const Operands&... operands) {
  return joined(fastErrorOf(function, 1, 1, 1) > kUlp, operands...);
}
#define SRJIT_FUNCTION(id, arity, ...) SRJIT_DEFINE_##arity(id)
#define SRJIT_DEFINE_1(id) \
  Probe id(Probe x) { return called(Function::k_##id, x); }
#define SRJIT_DEFINE_2(id) \
  Probe id(Probe x, Probe y) { return called(Function::k_##id, x, y); }
#define SRJIT_DEFINE_3(id) \
  Probe id(Probe x, Probe y, Probe z) { return called(Function::k_##id, x, y, z); }
#include "ir/functions.def"
#undef SRJIT_FUNCTION
#undef SRJIT_DEFINE_1
#undef SRJIT_DEFINE_2
#undef SRJIT_DEFINE_3

template <class Allowed>
void foldWhere(WorkingDag& work, const PassContext& context, const Allowed& allowed) {
  Dag& dag = work.dag();
  work.rebuild([](NodeId id) { return id; },
               [&](Op op, const Operands& operands) {
                 const std::span<const NodeId> used(operands.data(), static_cast<std::size_t>(arityOf(op)));
                 if (!allowed(op) || !areConstants(dag, used)) return dag.apply(op, operands);
                 const NodeId value = dag.constant(foldedValue(dag, op, used));
                 if (context.log != nullptr) {
                   context.log->fold(op, operands, value, hasFixedBits(op, dag.precision(), context.math));
                 }
                 return value;
               },
               context.log);
}

}  // namespace

bool hasApproximateStep(Op op) noexcept {
  static const std::vector<bool> found = [] {
    std::vector<bool> all;
    const Probe none(0.0);
    for (std::size_t i = 0; i < allOps().size(); ++i) {
      all.push_back(applyRow<Probe>(static_cast<Op>(i), none, none, none).is_approximate);
    }
    return all;
  }();
  return found[static_cast<std::size_t>(op)];
}

bool hasFixedBits(Op op, Precision precision, Math math) noexcept {
  return !isApproximate(math, precision) || !hasApproximateStep(op);
}

void foldConstants(WorkingDag& work, const PassContext& context) {
  const Precision precision = work.dag().precision();
  foldWhere(work, context, [&](Op op) { return hasFixedBits(op, precision, context.math); });
}

void foldFunctions(WorkingDag& work, const PassContext& context) {
  foldWhere(work, context, [](Op) { return true; });
}

}  // namespace srjit
