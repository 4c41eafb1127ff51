// Expressions, numbers and evaluation for the tests of passes.
#pragma once

#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ir/expression.h"
#include "ir/rows.h"
#include "ir/text.h"
#include "passes/dag.h"
#include "passes/pass.h"
#include "passes/rules/tables.h"
#include "passes/working_dag.h"
#include "tests/generators/data.h"
#include "tests/generators/population.h"

namespace srjit {

/// p0 + p1*x0^1 + ... as infix text.
inline std::string polynomial(int degree) {
  std::string text = "p0";
  for (int power = 1; power <= degree; ++power) text += fmt::format(" + p{0}*x0^{0}", power);
  return text;
}

inline Dag graphOf(std::span<const std::string_view> texts, Precision precision = Precision::kF64) {
  return Dag::fromExpressions(infixes(texts), precision);
}

inline Dag graphOf(std::initializer_list<std::string_view> texts, Precision precision = Precision::kF64) {
  return graphOf(std::span(texts.begin(), texts.size()), precision);
}

inline Dag graphOf(const Expression& expression, Precision precision) {
  return Dag::fromExpressions({&expression, 1}, precision);
}

inline std::string textOf(const Expression& expression) { return print(expression, Language::kInfix); }
/// Root `root` as infix text.
inline std::string textOf(const Dag& dag, std::size_t root = 0) { return textOf(dag.toExpression(root).value()); }

/// Runs the named passes.
inline Dag ran(const Dag& dag, std::string_view passes, Math math = Math::kPrecise) {
  return Pipeline::parse(passes, math).value().run(dag, {math});
}

/// The graph with the operands of commutative operators in their canonical order.
inline Dag ordered(const Dag& dag) {
  WorkingDag work(dag);
  work.rebuild([&](Op op, const Operands& operands) { return work.dag().apply(op, operands); });
  return work.result();
}

/// The graph in normal form by the rules of `mode`.
inline Dag simplified(const Dag& dag, Math mode) {
  WorkingDag work(dag);
  simplify(work, mode);
  return work.result();
}

/// The name of a pass that applies the rules of `mode` in pipelines of any mode.
inline std::string passOfRules(Math mode) {
  const std::string name = fmt::format("{}-rules", nameOf(mode));
  const auto apply = [mode](const Dag& dag, const PassContext&) { return simplified(dag, mode); };
  (void)registerPass({name, apply, Exactness::kBounded, "simplifies"});  // fails if it was registered before
  return name;
}

inline std::vector<std::byte> structureOf(const Dag& dag) {
  std::vector<std::byte> bytes;
  dag.appendStructure(bytes);
  return bytes;
}

inline constexpr double kWaitingPassSeconds = 0.002;
/// A pass that takes at least kWaitingPassSeconds and changes nothing.
inline Pass waitingPass(std::string name) {
  const auto wait = [](const Dag& dag, const PassContext&) {
    const auto begun = std::chrono::steady_clock::now();
    const std::chrono::duration<double> pause(kWaitingPassSeconds);
    while (std::chrono::steady_clock::now() - begun < pause) std::this_thread::yield();
    return dag;
  };
  return {std::move(name), wait, Exactness::kExact, "does nothing for a while"};
}

/// Root 0 of `text` after the named passes, as infix text.
inline std::string after(std::string_view passes, std::string_view text, Math math = Math::kPrecise,
                         Precision precision = Precision::kF32) {
  return textOf(ran(graphOf({text}, precision), passes, math));
}

/// `text` in the canonical order, as infix text.
inline std::string ordered(std::string_view text, Precision precision = Precision::kF32) {
  return textOf(ordered(graphOf({text}, precision)));
}

/// Values of all roots, every row computed in T. Parameter j of every expression is parameters[j].
template <class T>
std::vector<T> evaluate(const Dag& dag, std::span<const T> variables, std::span<const T> parameters) {
  std::vector<T> values(dag.size());
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    switch (node.kind) {
      case Token::Kind::kConstant:
        values[id] = static_cast<T>(node.value);
        break;
      case Token::Kind::kVariable:
        values[id] = variables[node.index];
        break;
      case Token::Kind::kParameter: {
        const ParameterSource& source = dag.parameters()[node.index];
        values[id] = source.isLiteral() ? static_cast<T>(source.literal) : parameters[source.index];
        break;
      }
      case Token::Kind::kOp: {
        const auto& x = node.operands;
        values[id] = applyRow<T>(node.op, values[x[0]], values[x[1]], values[x[2]]);
        break;
      }
    }
  }
  std::vector<T> roots;
  for (const NodeId root : dag.roots()) roots.push_back(values[root]);
  return roots;
}

/// Expressions of 1 to `max_nodes` nodes of all operators. Arithmetic operators are more frequent, so that the patterns
/// of rules occur.
inline ExpressionGenerator expressionsOfAllOperators(std::uint64_t seed, int max_nodes = 30) {
  GeneratorOptions options{.seed = seed,
                           .min_nodes = 1,
                           .max_nodes = max_nodes,
                           .variables = 3,
                           .parameters = 2,
                           .ops = allOperators(),
                           .constant_probability = 0.3,
                           .parameter_probability = 0.2,
                           .special_probability = 0.2};
  for (int i = 0; i < 10; ++i) {
    options.ops.insert(options.ops.end(), {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kNeg, Op::kSquare});
  }
  return ExpressionGenerator(options);
}

}  // namespace srjit
