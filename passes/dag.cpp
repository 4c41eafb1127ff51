#include "passes/dag.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "ir/mix.h"
#include "ir/numbers/postfix.h"
#include "ir/ops.h"
#include "passes/rules/node_sort.h"

namespace srjit {
namespace {

constexpr NodeId kEmpty = ~NodeId{0};

constexpr std::uint64_t kLiteralSeed = mix(1);
constexpr std::uint64_t kVariableSeed = mix(2);
constexpr std::uint64_t kParameterSeed = mix(3);
constexpr std::uint64_t kOpSeed = mix(4);

constexpr std::uint64_t kOpShapes[] = {
#define SRJIT_OP(id, name, ...) combine(kOpSeed, hashOf(name)),
#include "ir/ops.def"
#undef SRJIT_OP
};

// Shapes of leaves are small numbers and those of operators are large, so that commutative operators read x0, x1, p0, a
// literal, then terms.
constexpr std::uint64_t kParameterShape = std::uint64_t{1} << 32;
constexpr std::uint64_t kLiteralShape = std::uint64_t{2} << 32;
constexpr std::uint64_t kOperatorShape = std::uint64_t{1} << 63;

std::uint64_t bitsOf(double value) { return std::bit_cast<std::uint64_t>(value); }

// The hash by which a node is found in the hash table. Unlike the shape it depends on ids, so only this graph
// has it.
std::uint32_t upperWord(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }
std::uint32_t literalIdentity(double value) { return upperWord(combineFast(kLiteralSeed, bitsOf(value))); }
std::uint32_t variableIdentity(std::uint32_t column) { return upperWord(combineFast(kVariableSeed, column)); }
std::uint32_t parameterIdentity(const ParameterSource& source) {
  const std::uint64_t place = source.expression | std::uint64_t{source.index} << 32;
  return upperWord(combineFast(combineFast(kParameterSeed, place), bitsOf(source.literal)));
}
std::uint32_t operatorIdentity(Op op, NodeId a, NodeId b, NodeId c) {
  const std::uint64_t first = a | std::uint64_t{b} << 32;
  return upperWord(combineFast(kOpShapes[static_cast<std::size_t>(op)] ^ c, first));
}

void makeParameter(Node& node, std::size_t index) {
  node = {};
  node.kind = Token::Kind::kParameter;
  node.sort = kLeafSort;
  node.index = static_cast<std::uint32_t>(index);
}

/// The number of nodes that a hash table may have, and a size for a number of nodes.
std::size_t roomOf(std::size_t table_size) { return table_size / 3 * 2; }
std::size_t tableSizeFor(std::size_t nodes) { return std::bit_ceil(std::max<std::size_t>(64, 3 * nodes)); }

/// The value of a constant. Every NaN is one.
double constantOf(Precision precision, double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : roundTo(precision, value);
}

bool sameNode(const Node& a, const Node& b) {
  return a.kind == b.kind && a.op == b.op && a.index == b.index && bitsOf(a.value) == bitsOf(b.value) &&
         a.operands == b.operands;
}

bool sameSource(const ParameterSource& a, const ParameterSource& b) {
  return a.expression == b.expression && a.index == b.index && bitsOf(a.literal) == bitsOf(b.literal);
}

}  // namespace

constexpr std::array<bool, kMostOps> Dag::kCommutes = [] {
  using enum OpProps;
  constexpr bool kRows[] = {
#define SRJIT_OP(id, name, text, arity, props, ...) ((props) & kCommutative) == kCommutative,
#include "ir/ops.def"
#undef SRJIT_OP
  };
  std::array<bool, kMostOps> commutes{};
  std::ranges::copy(kRows, commutes.begin());
  return commutes;
}();

Dag Dag::fromExpressions(std::span<const Expression> batch, Precision precision) {
  Dag dag(precision);
  std::size_t tokens = 0;
  for (const Expression& expression : batch) tokens += expression.size();
  // In populations of searches about one token in three makes a new node.
  dag.reserve(tokens / 3);
  dag.roots_.reserve(batch.size());
  for (std::uint32_t e = 0; e < batch.size(); ++e) {
    const auto leaf = [&](const Token& token) {
      if (token.kind == Token::Kind::kConstant) return dag.constant(token.value);
      return token.kind == Token::Kind::kVariable ? dag.variable(token.index) : dag.parameter(e, token.index);
    };
    const auto apply = [&](Op op, std::span<const NodeId> of) {
      Operands operands{};
      std::ranges::copy(of, operands.begin());
      return dag.applyOrdered(op, operands);
    };
    dag.addRoot(foldPostfix<NodeId>(batch[e].tokens(), leaf, apply));
  }
  return dag;
}

// Nodes are made where they stay: a copy would wait until all fields of the original are written.
template <class Make, class Shape, class Same>
[[gnu::always_inline]] inline NodeId Dag::intern(std::uint32_t hash, const Make& make, const Shape& shape,
                                                 const Same& same) {
  if (nodes_.size() >= room_) makeTable(std::bit_ceil(std::max<std::size_t>(64, 4 * nodes_.size())));
  const std::size_t mask = table_.size() - 1;
  std::size_t at = hash & mask;
  for (Slot slot = table_[at]; slot.id != kEmpty; slot = table_[at]) {
    if (slot.hash == hash && same(nodes_[slot.id])) return slot.id;
    at = (at + 1) & mask;
  }
  const auto id = static_cast<NodeId>(nodes_.size());
  table_[at] = {hash, id};
  hashes_.push_back(shape());
  make(nodes_.emplace_back());
  return id;
}

NodeId Dag::constant(double value) {
  const double rounded = constantOf(precision_, value);
  const auto make = [&](Node& node) {
    node.value = rounded;
    node.sort = sortOfConstant(rounded);
  };
  return intern(
      literalIdentity(rounded), make, [] { return kLiteralShape; },
      [&](const Node& other) {
        return other.kind == Token::Kind::kConstant && bitsOf(other.value) == bitsOf(rounded);
      });
}

NodeId Dag::variable(std::uint32_t column) {
  variables_ = std::max(variables_, column + 1);
  const auto make = [&](Node& node) {
    node.kind = Token::Kind::kVariable;
    node.sort = kLeafSort;
    node.index = column;
  };
  return intern(
      variableIdentity(column), make, [&] { return std::uint64_t{column}; },
      [&](const Node& other) { return other.kind == Token::Kind::kVariable && other.index == column; });
}

NodeId Dag::parameter(std::uint32_t expression, std::uint32_t index) {
  return internParameter({expression, index, 0}, kParameterShape + index);
}

NodeId Dag::literalParameter(double value) {
  return internParameter({ParameterSource::kLiteral, 0, constantOf(precision_, value)}, kLiteralShape);
}

NodeId Dag::apply(Op op, std::span<const NodeId> operands) {
  assert(operands.size() == static_cast<std::size_t>(arityOf(op)));
  Operands all{};
  std::ranges::copy(operands, all.begin());
  return apply(op, all);
}

// Operands that are leaves, or repeated, need no register of their own.
template <int kArity>
std::uint8_t Dag::needOf(NodeId a, NodeId b, NodeId c) const noexcept {
  const auto need = [&](NodeId id, bool repeated) { return nodes_[id].need * unsigned{!repeated}; };
  const auto order = [](unsigned& x, unsigned& y) {
    const unsigned larger = std::max(x, y);
    y = std::min(x, y);
    x = larger;
  };
  const auto behind = [](unsigned own, unsigned held) { return own + held * unsigned{own != 0}; };
  unsigned first = need(a, false), second = 0, third = 0;
  if constexpr (kArity > 1) {
    second = need(b, b == a);
    order(first, second);
  }
  if constexpr (kArity > 2) {
    third = need(c, c == a || c == b);
    order(second, third);
    order(first, second);
  }
  return static_cast<std::uint8_t>(std::min(std::max({1U, first, behind(second, 1), behind(third, 2)}), 255U));
}

template <int kArity>
NodeId Dag::applyOrdered(Op op, NodeId a, NodeId b, NodeId c) {
  const auto make = [&](Node& node) {
    node.kind = Token::Kind::kOp;
    node.op = op;
    node.operand_count = kArity;
    node.need = needOf<kArity>(a, b, c);
    node.sort = sortOfOperator(op);
    node.operands = {a, b, c};
  };
  const auto shape = [&] {
    std::uint64_t hash = combineFast(kOpShapes[static_cast<std::size_t>(op)], hashes_[a]);
    if constexpr (kArity > 1) hash = combineFast(hash, hashes_[b]);
    if constexpr (kArity > 2) hash = combineFast(hash, hashes_[c]);
    return (hash ^ hash >> 32) | kOperatorShape;
  };
  return intern(operatorIdentity(op, a, b, c), make, shape, [&](const Node& other) {
    return other.isOperator() && other.op == op && other.operands[0] == a && other.operands[1] == b &&
           other.operands[2] == c;
  });
}
template NodeId Dag::applyOrdered<1>(Op op, NodeId a, NodeId b, NodeId c);
template NodeId Dag::applyOrdered<2>(Op op, NodeId a, NodeId b, NodeId c);
template NodeId Dag::applyOrdered<3>(Op op, NodeId a, NodeId b, NodeId c);

NodeId Dag::applyOrdered(Op op, const Operands& operands) {
  const auto [a, b, c] = operands;
  switch (arityOf(op)) {
    case 1:
      return applyOrdered<1>(op, a, b, c);
    case 2:
      return applyOrdered<2>(op, a, b, c);
    default:
      return applyOrdered<3>(op, a, b, c);
  }
}

NodeId Dag::copyLeaf(const Dag& from, NodeId leaf) {
  const Node& node = from.node(leaf);
  assert(node.kind != Token::Kind::kOp);
  if (node.kind == Token::Kind::kConstant) return constant(node.value);
  if (node.kind == Token::Kind::kVariable) return variable(node.index);
  return internParameter(from.parameters_[node.index], from.hashes_[leaf]);
}

void Dag::copyNodes(const Dag& from, std::span<const NodeId> nodes, std::vector<NodeId>& places) {
  places.resize(std::max(places.size(), from.size()));
  for (const NodeId id : nodes) {
    const Node& node = from.node(id);
    if (node.kind != Token::Kind::kOp) {
      places[id] = copyLeaf(from, id);
      continue;
    }
    Operands operands{};
    for (std::size_t k = 0; k < node.inputs().size(); ++k) operands[k] = places[node.operands[k]];
    places[id] = applyOrdered(node.op, operands);
  }
}

NodeId Dag::internParameter(const ParameterSource& source, std::uint64_t shape) {
  const auto make = [&](Node& node) {
    parameters_.push_back(source);
    makeParameter(node, parameters_.size() - 1);
  };
  return intern(
      parameterIdentity(source), make, [&] { return shape; },
      [&](const Node& other) {
        return other.kind == Token::Kind::kParameter && sameSource(parameters_[other.index], source);
      });
}

void Dag::reserve(std::size_t nodes) {
  nodes_.reserve(nodes);
  hashes_.reserve(nodes);
  if (const std::size_t size = tableSizeFor(nodes); size > table_.size()) makeTable(size);
}

std::uint32_t Dag::identityOf(const Node& node) const noexcept {
  switch (node.kind) {
    case Token::Kind::kConstant:
      return literalIdentity(node.value);
    case Token::Kind::kVariable:
      return variableIdentity(node.index);
    case Token::Kind::kParameter:
      return parameterIdentity(parameters_[node.index]);
    case Token::Kind::kOp:
      break;
  }
  const auto [a, b, c] = node.operands;
  return operatorIdentity(node.op, a, b, c);
}

void Dag::makeTable(std::size_t size) {
  std::vector<Slot> table(size, Slot{kEmpty, kEmpty});
  const std::size_t mask = size - 1;
  const auto enter = [&](Slot slot) {
    std::size_t at = slot.hash & mask;
    while (table[at].id != kEmpty) at = (at + 1) & mask;
    table[at] = slot;
  };
  if (table_.empty()) {
    for (NodeId id = 0; id < nodes_.size(); ++id) enter({identityOf(nodes_[id]), id});
  }
  for (const Slot& slot : table_) {
    if (slot.id != kEmpty) enter(slot);
  }
  table_ = std::move(table);
  room_ = roomOf(size);
}

std::vector<std::uint32_t> Dag::useCounts() const {
  std::vector<std::uint32_t> uses(nodes_.size());
  for (const Node& node : nodes_) {
    for (const NodeId operand : node.inputs()) ++uses[operand];
  }
  for (const NodeId root : roots_) ++uses[root];
  return uses;
}

Result<Expression> Dag::toExpression(std::size_t root, std::size_t max_tokens) const {
  Result<Expression> expression = subtree(roots_[root], max_tokens);
  if (expression) return expression;
  return Error{Errc::kInvalid, fmt::format("expression {} needs {}", root, expression.error().message), {}};
}

Result<Expression> Dag::subtree(NodeId root, std::size_t max_tokens) const {
  const auto tokenOf = [&](const Node& node) {
    switch (node.kind) {
      case Token::Kind::kConstant:
        return Token::constant(node.value);
      case Token::Kind::kVariable:
        return Token::variable(node.index);
      case Token::Kind::kParameter:
        break;
      case Token::Kind::kOp:
        return Token::operation(node.op);
    }
    const ParameterSource& source = parameters_[node.index];
    return source.isLiteral() ? Token::constant(source.literal) : Token::parameter(source.index);
  };
  std::vector<Token> tokens;  // from the last one on
  std::vector<NodeId> pending{root};
  while (!pending.empty()) {
    const Node& node = nodes_[pending.back()];
    pending.pop_back();
    if (tokens.size() == max_tokens) return Error{Errc::kInvalid, fmt::format("more than {} tokens", max_tokens), {}};
    tokens.push_back(tokenOf(node));
    pending.insert(pending.end(), node.inputs().begin(), node.inputs().end());
  }
  std::ranges::reverse(tokens);
  return Expression::create(std::move(tokens));
}

void Dag::appendStructure(std::vector<std::byte>& bytes) const {
  constexpr std::size_t kLargestNode = 1 + sizeof(std::uint64_t) + sizeof(NodeId) * kMaxArity;
  const std::size_t begin = bytes.size();
  bytes.resize(begin + 17 + kLargestNode * nodes_.size() + sizeof(NodeId) * roots_.size());
  std::byte* out = bytes.data() + begin;
  const auto append = [&out](auto number) {
    std::memcpy(out, &number, sizeof number);
    out += sizeof number;
  };
  append(static_cast<std::uint8_t>(precision_));
  append(std::uint64_t{nodes_.size()});
  append(std::uint64_t{roots_.size()});
  for (const Node& node : nodes_) {
    append(static_cast<std::uint8_t>(node.kind));
    switch (node.kind) {
      case Token::Kind::kConstant:
        append(bitsOf(node.value));
        break;
      case Token::Kind::kVariable:
      case Token::Kind::kParameter:
        append(node.index);
        break;
      case Token::Kind::kOp:
        append(nameHashOf(node.op));
        for (const NodeId operand : node.inputs()) append(operand);
        break;
    }
  }
  for (const NodeId root : roots_) append(root);
  bytes.resize(static_cast<std::size_t>(out - bytes.data()));
}

void Dag::clear(std::size_t nodes) {
  nodes_.clear();
  hashes_.clear();
  roots_.clear();
  parameters_.clear();
  variables_ = 0;
  table_.resize(tableSizeFor(nodes));
  std::memset(table_.data(), 0xff, table_.size() * sizeof(Slot));
  room_ = roomOf(table_.size());
}

Dag Dag::renumbered(std::span<const NodeId> order) const {
  Dag to(precision_);
  std::vector<NodeId> places;
  renumber(order, Literals::kConstants, to, places);
  return to;
}

void Dag::renumber(std::span<const NodeId> order, Literals literals, Dag& to, std::vector<NodeId>& places) const {
  to.nodes_.resize(order.size());
  to.hashes_.resize(order.size());
  to.parameters_.clear();
  to.table_.clear();
  to.room_ = 0;
  to.variables_ = 0;
  places.resize(std::max(places.size(), nodes_.size()));
  for (NodeId number = 0; number < order.size(); ++number) {
    places[order[number]] = number;
    to.hashes_[number] = hashes_[order[number]];
    Node& node = to.nodes_[number];
    node = nodes_[order[number]];
    switch (node.kind) {
      case Token::Kind::kConstant:
        if (literals == Literals::kConstants) break;
        to.parameters_.push_back({ParameterSource::kLiteral, 0, node.value});
        makeParameter(node, to.parameters_.size() - 1);
        break;
      case Token::Kind::kVariable:
        to.variables_ = std::max(to.variables_, node.index + 1);
        break;
      case Token::Kind::kParameter:
        to.parameters_.push_back(parameters_[node.index]);
        node.index = static_cast<std::uint32_t>(to.parameters_.size() - 1);
        break;
      case Token::Kind::kOp:
        for (std::size_t i = 0; i < static_cast<std::size_t>(node.arity()); ++i) {
          node.operands[i] = places[node.operands[i]];
        }
        break;
    }
  }
  to.roots_.clear();
  for (const NodeId root : roots_) to.roots_.push_back(places[root]);
}

void Dag::hoistConstants() {
  for (Node& node : nodes_) {
    if (node.kind != Token::Kind::kConstant) continue;
    parameters_.push_back({ParameterSource::kLiteral, 0, node.value});
    makeParameter(node, parameters_.size() - 1);
  }
  table_.clear();
  room_ = 0;
}

bool operator==(const Dag& a, const Dag& b) {
  return a.precision_ == b.precision_ && std::ranges::equal(a.nodes_, b.nodes_, sameNode) && a.roots_ == b.roots_ &&
         std::ranges::equal(a.parameters_, b.parameters_, sameSource);
}

}  // namespace srjit
