#include "passes/fold.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "ir/numbers/fast_forms.h"
#include "ir/rows.h"
#include "passes/pass.h"
#include "passes/working_dag.h"

namespace srjit {
namespace {

/// Facts of the functions by themselves. The bound of a correctly rounded function is one kUlp at r = 1.
RowFacts factsOf(Function function) {
  return {infoOf(function).code == FunctionCode::kLibrary, fastErrorOf(function, 1, 1, 1) > kUlp};
}

/// A domain whose values are the facts of the steps that computed them.
struct Probe {
  RowFacts facts;
  explicit Probe(double) {}
  explicit Probe(RowFacts f) : facts(f) {}
};

template <class... Operands>
Probe joined(RowFacts own, const Operands&... operands) {
  return Probe(
      RowFacts{(own.library || ... || operands.facts.library), (own.approximate || ... || operands.facts.approximate)});
}

Probe operator+(Probe x, Probe y) { return joined({}, x, y); }
Probe operator-(Probe x, Probe y) { return joined({}, x, y); }
Probe operator*(Probe x, Probe y) { return joined({}, x, y); }
Probe operator/(Probe x, Probe y) { return joined({false, true}, x, y); }
Probe operator-(Probe x) { return x; }
Probe lt(Probe x, Probe y) { return joined({}, x, y); }
Probe le(Probe x, Probe y) { return joined({}, x, y); }
Probe eq(Probe x, Probe y) { return joined({}, x, y); }
Probe select(Probe mask, Probe x, Probe y) { return joined({}, mask, x, y); }

/// A domain of numbers rounded to T, whose library functions are computed in double.
template <class T>
struct Rounded {
  T number;
  explicit Rounded(double value) : number(static_cast<T>(value)) {}

  friend Rounded operator+(Rounded x, Rounded y) { return of(x.number + y.number); }
  friend Rounded operator-(Rounded x, Rounded y) { return of(x.number - y.number); }
  friend Rounded operator*(Rounded x, Rounded y) { return of(x.number * y.number); }
  friend Rounded operator/(Rounded x, Rounded y) { return of(x.number / y.number); }
  friend Rounded operator-(Rounded x) { return of(-x.number); }
  friend bool lt(Rounded x, Rounded y) { return x.number < y.number; }
  friend bool le(Rounded x, Rounded y) { return x.number <= y.number; }
  friend bool eq(Rounded x, Rounded y) { return x.number == y.number; }
  friend Rounded select(bool mask, Rounded x, Rounded y) { return mask ? x : y; }

  static Rounded of(T number) {
    Rounded result(0);
    result.number = number;
    return result;
  }
};

/// `function` over numbers of type T; a function of a library in double, since its last bits differ among targets.
template <bool library, class T, class Function, class... Operands>
Rounded<T> called(const Function& function, Rounded<T> x, Operands... others) {
  if constexpr (library) {
    return Rounded<T>(function(static_cast<double>(x.number), static_cast<double>(others.number)...));
  } else {
    return Rounded<T>::of(function(x.number, others.number...));
  }
}

// The functions of both domains. They must not be variadic templates: overload resolution would prefer the generic
// minimum and maximum of ir/real.h.
#define SRJIT_OPERANDS_1(Type) Type x
#define SRJIT_OPERANDS_2(Type) Type x, Type y
#define SRJIT_OPERANDS_3(Type) Type x, Type y, Type z
#define SRJIT_NAMES_1 x
#define SRJIT_NAMES_2 x, y
#define SRJIT_NAMES_3 x, y, z
#define SRJIT_FUNCTION(id, arity, code, libdevice, libmvec, ulp_f32, ulp_f64, ulp_host, fast_error)          \
  Probe id(SRJIT_OPERANDS_##arity(Probe)) { return joined(factsOf(Function::k_##id), SRJIT_NAMES_##arity); } \
  template <class T>                                                                                         \
  Rounded<T> id(SRJIT_OPERANDS_##arity(Rounded<T>)) {                                                        \
    return called<(FunctionCode::code == FunctionCode::kLibrary)>(                                           \
        [](auto... numbers) { return real::id(numbers...); }, SRJIT_NAMES_##arity);                          \
  }
#include "ir/functions.def"
#undef SRJIT_FUNCTION
#undef SRJIT_NAMES_3
#undef SRJIT_NAMES_2
#undef SRJIT_NAMES_1
#undef SRJIT_OPERANDS_3
#undef SRJIT_OPERANDS_2
#undef SRJIT_OPERANDS_1

template <class T>
double valueIn(Op op, const std::array<double, kMaxArity>& x) {
  using Number = Rounded<T>;
  return static_cast<double>(applyRow<Number>(op, Number(x[0]), Number(x[1]), Number(x[2])).number);
}

template <class Allowed>
void foldWhere(WorkingDag& work, const Allowed& allowed) {
  Dag& dag = work.dag();
  work.rebuild([&](NodeId id) { return work.keep(id); },
               [&](Op op, std::span<const NodeId> operands, NodeId same) {
                 if (areConstants(dag, operands) && allowed(op)) {
                   return work.keep(dag.constant(foldedValue(dag, op, operands)));
                 }
                 return work.keep(same != WorkingDag::kNone ? same : dag.apply(op, operands));
               });
}

}  // namespace

RowFacts factsOf(Op op) noexcept {
  static const std::vector<RowFacts> facts = [] {
    std::vector<RowFacts> all;
    const Probe none(0);
    for (std::size_t i = 0; i < allOps().size(); ++i) {
      all.push_back(applyRow<Probe>(static_cast<Op>(i), none, none, none).facts);
    }
    return all;
  }();
  return facts[static_cast<std::size_t>(op)];
}

bool hasFixedBits(Op op, Precision precision, Math math) noexcept {
  const RowFacts facts = factsOf(op);
  return !facts.library && !(facts.approximate && isApproximate(math, precision));
}

double valueOf(Op op, std::span<const double> operands, Precision precision) {
  std::array<double, kMaxArity> padded{};
  std::ranges::copy(operands, padded.begin());
  return withZeroOf(precision, [&]<class T>(T) { return valueIn<T>(op, padded); });
}

double foldedValue(const Dag& dag, Op op, std::span<const NodeId> operands) {
  std::array<double, kMaxArity> values{};
  for (std::size_t i = 0; i < operands.size(); ++i) values[i] = dag.node(operands[i]).value;
  return valueOf(op, std::span(values).first(operands.size()), dag.precision());
}

void foldConstants(WorkingDag& work, const PassContext& context) {
  const Precision precision = work.dag().precision();
  foldWhere(work, [&](Op op) { return hasFixedBits(op, precision, context.math); });
}

void foldFunctions(WorkingDag& work, const PassContext&) {
  foldWhere(work, [](Op) { return true; });
}

}  // namespace srjit
