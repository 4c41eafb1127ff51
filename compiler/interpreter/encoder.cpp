#include "compiler/interpreter/encoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ir/ops.h"
#include "passes/members.h"

namespace srjit {
namespace {

using Kind = Handler::Kind;

// When slots run out, shared values of fewer tokens than this are rematerialized at each use. Limits are tried in
// order; the first rematerializes none.
constexpr std::uint32_t kLeastShared[] = {0, 8, 64, 512, 4096};

// A program that would become longer is refused. Tokens are numbered with 32 bits.
constexpr std::uint32_t kMaxTokens = 1u << 30;

}  // namespace

/// A node in the current program. A value other than an operator in place has 0 tokens.
struct Encoder::Value {
  const OperandPlan* plan = nullptr;  ///< of operators
  std::uint32_t number = 0;           ///< of the column, slot or parameter where it is; slots come after staged columns
  std::uint32_t tokens = 0;           ///< tokens to compute it at its use; at most kMaxTokens
  std::uint32_t slot_tokens = 0;      ///< of a value in a slot: tokens to compute it there
  std::uint32_t order = 0;            ///< nodes that are evaluated earlier have smaller ones
  OperandPlace where = kInColumn;     ///< for its users
  bool in_slot = false;
};

/// When a node of a program with slots is used. Statements are numbered.
struct Encoder::Life {
  std::uint32_t statement = 0;  ///< that computes the node
  std::uint32_t last_use = 0;   ///< values in slots: the last statement that reads it
};

/// A node that roots use; stale if `generation_` is not the current one.
struct Encoder::Use {
  std::uint32_t generation = 0;
  std::uint32_t uses = 0;  ///< by operators and roots of the program
};

/// The nodes that a root needs and no root before it: members_[first .. last), each after its operands.
struct Encoder::Segment {
  NodeId root;
  std::uint32_t output;
  std::uint32_t first, last;
};

Encoder::Encoder(const HandlerNumbers& table) : table_(table), pending_(table.depth + kMaxArity) {}
Encoder::~Encoder() = default;

EncodeFault Encoder::encode(const Dag& dag, std::span<const NodeId> roots, std::span<const std::uint32_t> outputs,
                            const EncodeOptions& options, Bytecode& code) {
  if (const EncodeFault begun = begin(dag, options, code); !begun.isNone()) return begun;
  return withSlots([&](std::uint32_t shared_from) { return tryRoots(roots, outputs, shared_from); });
}

EncodeFault Encoder::encode(const ExpressionGraph& graph, std::span<const std::uint32_t> outputs,
                            const EncodeOptions& options, Bytecode& code) {
  if (const EncodeFault begun = begin(graph.dag, options, code); !begun.isNone()) return begun;
  return withSlots([&](std::uint32_t shared_from) { return tryGraph(graph, outputs, shared_from); });
}

// Tries `encode` again and again, and rematerializes ever larger values.
template <class Try>
EncodeFault Encoder::withSlots(const Try& encode) {
  const std::size_t before = code_->tokens.size();
  EncodeFault fault;
  for (const std::uint32_t least_shared : kLeastShared) {
    fault = encode(least_shared);
    if (fault.isNone()) break;
    code_->tokens.resize(before);
    if (!fault.isWantOfRoom()) break;
  }
  return fault;
}

EncodeFault Encoder::begin(const Dag& graph, const EncodeOptions& how, Bytecode& to) {
  if (table_.handlers > DeviceToken::kHandlerMask + std::size_t{1})
    return {EncodeFault::Kind::kHandlers, table_.handlers};
  if (how.staged_columns > DeviceToken::kColumnMask + 1) return {EncodeFault::Kind::kColumns, how.staged_columns};
  dag_ = &graph;
  options_ = &how;
  code_ = &to;
  if (values_.size() < graph.size()) values_.resize(graph.size());
  return {};
}

void Encoder::clear(std::uint32_t shared_from) {
  least_shared_ = shared_from;
  segments_.clear();
  live_.clear();
  free_slots_.clear();
  slots_ = 0;
  any_in_slot_ = false;
}

EncodeFault Encoder::tryRoots(std::span<const NodeId> roots, std::span<const std::uint32_t> outputs,
                              std::uint32_t shared_from) {
  clear(shared_from);
  uses_.resize(std::max(uses_.size(), dag_->size()));
  if (++generation_ == 0) {
    for (Use& use : uses_) use.generation = 0;
    generation_ = 1;
  }
  member_list_.clear();
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (const EncodeFault collected = collect(roots[i], outputs[i]); !collected.isNone()) return collected;
  }
  members_ = member_list_;
  for (const NodeId id : members_) {
    if (dag_->node(id).isOperator()) plan(dag_->node(id), values_[id], uses_[id].uses);
  }
  return emitSegments();
}

EncodeFault Encoder::tryGraph(const ExpressionGraph& graph, std::span<const std::uint32_t> outputs,
                              std::uint32_t shared_from) {
  clear(shared_from);
  code_->parameters.clear();
  members_ = graph.members;
  for (std::uint32_t m = 0; m < members_.size(); ++m) {
    const NodeId id = members_[m];
    const Node& node = dag_->node(id);
    Value& value = values_[id];
    value.order = m;
    if (node.isOperator()) {
      if (!table_.has(node.op)) return {EncodeFault::Kind::kOperator, static_cast<std::uint32_t>(node.op)};
      plan(node, value, graph.uses[id]);
    } else if (node.kind == Token::Kind::kVariable) {
      if (options_->columns.empty() && node.index < options_->staged_columns) {
        placeAt(value, kInColumn, node.index);
      } else if (const EncodeFault placed = placeLeaf(node, value); !placed.isNone()) {
        return placed;
      }
    } else {
      placeAt(value, kInParameter, options_->first_parameter + static_cast<std::uint32_t>(code_->parameters.size()));
      code_->parameters.push_back(id);
    }
  }
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < graph.roots.size(); ++i) {
    const NodeId root = graph.roots[i];
    const std::uint32_t last = std::max(first, values_[root].order + 1);
    segments_.push_back({root, outputs[i], first, last});
    first = last;
  }
  return emitSegments();
}

// Emits the planned members of all segments.
EncodeFault Encoder::emitSegments() {
  if (const EncodeFault bounded = checkLength(); !bounded.isNone()) return bounded;
  if (any_in_slot_) findLastUses();
  std::uint32_t statement = 0;
  std::size_t first = 0, end = 0;  // of the segments that are added together
  for (std::size_t s = 0; s < segments_.size(); ++s) {
    const Segment& segment = segments_[s];
    if (s == end) {
      first = s;
      end = endOfSums(s);
    }
    if (any_in_slot_) {
      if (const EncodeFault stored = storeInSlots(segment, statement); !stored.isNone()) return stored;
    }
    if (end - first == 1) {
      const bool in_place = isOnStack(values_[segment.root].where);
      emitStatement(segment.root, in_place, DeviceToken::of(table_.find(Kind::kEnd, 1), 0, segment.output));
    } else {
      const auto sum = static_cast<std::uint32_t>(s - first);
      emitSum(segment.root, sum);
      if (s + 1 == end)
        code_->tokens.push_back(DeviceToken::of(table_.find(Kind::kStoreSums, 0, sum), 0, segments_[first].output));
    }
    release(statement++);
  }
  code_->slots = std::max(code_->slots, slots_);
  return {};
}

// Computes the values of a segment that go to slots; `statement` is its first, then its last.
EncodeFault Encoder::storeInSlots(const Segment& segment, std::uint32_t& statement) {
  for (std::uint32_t m = segment.first; m < segment.last; ++m, ++statement) {
    if (!values_[members_[m]].in_slot) continue;
    if (const EncodeFault stored = storeInSlot(members_[m], statement); !stored.isNone()) return stored;
  }
  return {};
}

// Lists the nodes that the root needs, and counts uses.
EncodeFault Encoder::collect(NodeId root, std::uint32_t output) {
  const auto use = [&](NodeId id) {
    if (uses_[id].generation == generation_) {
      ++uses_[id].uses;
      return;
    }
    uses_[id] = {generation_, 1};
    values_[id].order = id;
    member_list_.push_back(id);
  };
  const std::size_t first = member_list_.size();
  use(root);
  for (std::size_t m = first; m < member_list_.size(); ++m) {
    const NodeId id = member_list_[m];
    const Node& node = dag_->node(id);
    if (!node.isOperator()) {
      if (const EncodeFault placed = placeLeaf(node, values_[id]); !placed.isNone()) return placed;
    } else if (!table_.has(node.op)) {
      return {EncodeFault::Kind::kOperator, static_cast<std::uint32_t>(node.op)};
    }
    for (const NodeId input : node.inputs()) use(input);
  }
  sortMet(std::span(member_list_).subspan(first));
  segments_.push_back(
      {root, output, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(member_list_.size())});
  return {};
}

void Encoder::placeAt(Value& value, OperandPlace where, std::uint32_t number) {
  value.number = number;
  value.tokens = 0;
  value.where = where;
  value.in_slot = false;
}

// Finds the number of a leaf.
EncodeFault Encoder::placeLeaf(const Node& node, Value& value) const {
  if (node.kind == Token::Kind::kConstant) return {EncodeFault::Kind::kConstant};
  if (node.kind == Token::Kind::kParameter) {
    placeAt(value, kInParameter, options_->parameters.empty() ? node.index : options_->parameters[node.index]);
    return {};
  }
  if (options_->columns.empty()) {
    placeAt(value, kInColumn, node.index);
    return node.index < options_->staged_columns ? EncodeFault{}
                                                 : EncodeFault{EncodeFault::Kind::kBeyondColumns, node.index};
  }
  const bool is_known = node.index < options_->columns.size();
  placeAt(value, kInColumn, is_known ? options_->columns[node.index] : EncodeOptions::kNotStaged);
  return value.number != EncodeOptions::kNotStaged ? EncodeFault{}
                                                   : EncodeFault{EncodeFault::Kind::kNotStaged, node.index};
}

// Plans an operator over planned operands.
void Encoder::plan(const Node& node, Value& value, std::uint32_t uses_of_it) {
  planOnce(node, value);
  while (value.plan->need > table_.depth) {
    spillHungriest(node);
    planOnce(node, value);
  }
  if (uses_of_it > 1 && value.tokens >= least_shared_) moveToSlot(value);
}

// Absent operands are node 0, a leaf, which has no tokens.
void Encoder::planOnce(const Node& node, Value& value) const {
  const Value &a = values_[node.operands[0]], &b = values_[node.operands[1]], &c = values_[node.operands[2]];
  value.plan = &table_.planOf(node.op, a.where, b.where, c.where);
  value.tokens = std::min(value.plan->tokens + a.tokens + b.tokens + c.tokens, kMaxTokens);
  value.where = onStack(value.plan->need);
  value.in_slot = false;
}

// Sends the operand that needs most registers to a slot. Of equal needs, the first in the order of evaluation, so that
// slots within the other operand are free meanwhile.
void Encoder::spillHungriest(const Node& node) {
  std::optional<NodeId> hungriest;
  for (const NodeId input : node.inputs()) {
    if (!isOnStack(values_[input].where)) continue;
    const unsigned need = needOf(values_[input].where), least = hungriest ? needOf(values_[*hungriest].where) : 0;
    const bool is_earlier = hungriest && values_[input].order < values_[*hungriest].order;
    if (need > least || (need == least && is_earlier)) hungriest = input;
  }
  moveToSlot(values_[*hungriest]);
}

void Encoder::moveToSlot(Value& value) {
  any_in_slot_ = true;
  value.in_slot = true;
  value.where = kInColumn;
  value.slot_tokens = std::exchange(value.tokens, 0);
}

EncodeFault Encoder::checkLength() const {
  std::uint64_t tokens = 0;
  for (std::size_t m = 0; any_in_slot_ && m < members_.size(); ++m) {
    if (values_[members_[m]].in_slot) tokens += values_[members_[m]].slot_tokens + std::uint64_t{1};
  }
  for (const Segment& segment : segments_) tokens += values_[segment.root].tokens;
  if (tokens < kMaxTokens) return {};
  return {EncodeFault::Kind::kLength};
}

// Every member counts as a statement, and the end of every segment, so that numbering needs no search.
void Encoder::findLastUses() {
  lives_.resize(std::max(lives_.size(), dag_->size()));
  for (const NodeId id : members_) lives_[id] = {};
  const auto useIn = [&](NodeId id, std::uint32_t statement) {
    Life& life = lives_[id];
    life.last_use = std::max(life.last_use, statement);
    if (!values_[id].in_slot) life.statement = std::max(life.statement, statement);
  };
  for (std::size_t s = segments_.size(); s-- > 0;) {
    const Segment& segment = segments_[s];
    useIn(segment.root, segment.last + static_cast<std::uint32_t>(s));
    for (std::uint32_t m = segment.last; m-- > segment.first;) {
      Life& life = lives_[members_[m]];
      if (values_[members_[m]].in_slot) life.statement = m + static_cast<std::uint32_t>(s);
      const std::uint32_t statement = life.statement;
      for (const NodeId input : dag_->node(members_[m]).inputs()) useIn(input, statement);
    }
  }
}

EncodeFault Encoder::storeInSlot(NodeId id, std::uint32_t statement) {
  std::uint32_t slot = slots_;
  if (!free_slots_.empty()) {
    slot = free_slots_.back();
    free_slots_.pop_back();
  } else if (slot < options_->max_slots && options_->staged_columns + std::uint64_t{slot} <= DeviceToken::kColumnMask) {
    ++slots_;
  } else {
    return {EncodeFault::Kind::kSlots, slot};
  }
  values_[id].number = options_->staged_columns + slot;
  emitStatement(id, true, DeviceToken::of(table_.find(Kind::kStoreSlot, 1), values_[id].number));
  release(statement);
  live_.push_back(id);
  return {};
}

void Encoder::release(std::uint32_t statement) {
  std::erase_if(live_, [&](NodeId id) {
    if (lives_[id].last_use != statement) return false;
    free_slots_.push_back(values_[id].number - options_->staged_columns);
    return true;
  });
}

// The end of the segments from `first` on that are added together.
std::size_t Encoder::endOfSums(std::size_t first) const {
  std::size_t end = first + 1;
  while (options_->joins_sums && end < std::min<std::size_t>(segments_.size(), first + kMostKeptSums) &&
         segments_[end].output == segments_[end - 1].output + 1) {
    ++end;
  }
  return end;
}

// Most sums are of products of shared values, which need no place on the stack.
void Encoder::emitSum(NodeId root, std::uint32_t sum) {
  const Value& value = values_[root];
  const Node& node = dag_->node(root);
  const bool in_place = isOnStack(value.where);
  if (in_place && node.op == Op::kMul && value.plan->stack_count == 0 && value.plan->argument_place == kInColumn) {
    const auto number = [&](std::uint8_t operand) { return values_[node.operands[operand]].number; };
    code_->tokens.push_back(DeviceToken::of(table_.find(Kind::kKeepProductSum, 0, sum), number(value.plan->column),
                                            number(value.plan->argument), DeviceToken::kColumn));
    return;
  }
  emitStatement(root, in_place, DeviceToken::of(table_.find(Kind::kKeepSum, 1, sum)));
}

// Appends the tokens that push a value, computed in place or from where it is, and the one that takes it. Tokens of an
// operand that is computed at each use were counted in its first users, although a later user may have sent it to a
// slot: then fewer are needed.
void Encoder::emitStatement(NodeId root, bool in_place, DeviceToken last) {
  const Value& value = values_[root];
  const std::size_t length = !in_place ? 1 : value.in_slot ? value.slot_tokens : value.tokens;
  const std::size_t before = code_->tokens.size();
  code_->tokens.resize(before + length + 1);
  DeviceToken* const end = code_->tokens.data() + before + length;
  *end = last;
  if (!in_place) {
    end[-1] = pushed(value, 0);
    return;
  }
  const auto unused = emitTree(root, end) - (end - length);
  const auto first = code_->tokens.begin() + static_cast<std::ptrdiff_t>(before);
  code_->tokens.erase(first, first + unused);
}

DeviceToken Encoder::pushed(const Value& value, std::uint32_t height) const {
  if (value.where == kInColumn) return DeviceToken::of(table_.find(Kind::kPushColumn, height), value.number);
  return DeviceToken::of(table_.find(Kind::kPushParameter, height), 0, value.number, DeviceToken::kParameter);
}

// Writes the tree of an operator node down to leaves and slots, up to `end`: backwards, so that each operator is met
// once, before its operands. Gives where it begins. Not recursive.
DeviceToken* Encoder::emitTree(NodeId root, DeviceToken* end) {
  PendingValue* const bottom = pending_.data();
  PendingValue* top = bottom;
  *top++ = pendingAt(root, 0);
  do {
    const PendingValue next = *--top;
    const auto id = static_cast<NodeId>(next);
    const auto height = static_cast<std::uint32_t>(next >> 32);
    const Value& value = values_[id];
    if (!isOnStack(value.where) && id != root) {
      *--end = pushed(value, height);
      continue;
    }
    const Node& node = dag_->node(id);
    const OperandPlan& plan = *value.plan;
    end = table_.isLong(node.op) ? emitLong(node, plan, height, end) : emitShort(node, plan, height, end);
    const std::array<NodeId, kMaxArity + 1> operands = {node.operands[0], node.operands[1], node.operands[2], 0};
    for (unsigned k = 0; k < kMaxArity; ++k) top[k] = pendingAt(operands[plan.stack[k]], height + k);
    top += plan.stack_count;
  } while (top != bottom);
  return end;
}

DeviceToken* Encoder::emitShort(const Node& node, const OperandPlan& plan, std::uint32_t height,
                                DeviceToken* end) const {
  constexpr std::uint32_t kKinds[] = {DeviceToken::kColumn, DeviceToken::kParameter, DeviceToken::kNumber};
  const auto number = [&](std::size_t k) { return values_[node.operands[k]].number; };
  const std::array<std::uint32_t, kMaxArity + 1> numbers = {number(0), number(1), number(2), 0};
  *--end = DeviceToken::of(table_.findApply(node.op, unsigned{plan.operand_form}, height + plan.stack_count),
                           numbers[plan.column], numbers[plan.argument], kKinds[plan.argument_place]);
  return end;
}

DeviceToken* Encoder::emitLong(const Node& node, const OperandPlan& plan, std::uint32_t height,
                               DeviceToken* end) const {
  *--end = DeviceToken::of(table_.find(Kind::kPushResult, height));
  *--end = DeviceToken::of(table_.findBody(node.op));
  for (unsigned i = node.operand_count; i-- > 0;) {
    const Value& input = values_[node.operands[i]];
    if (input.where == kInColumn) *--end = DeviceToken::of(table_.find(Kind::kArgumentColumn, 0, i), input.number);
    if (input.where == kInParameter) {
      *--end = DeviceToken::of(table_.find(Kind::kArgumentParameter, 0, i), 0, input.number, DeviceToken::kParameter);
    }
  }
  for (unsigned k = 0; k < plan.stack_count; ++k) {
    *--end = DeviceToken::of(table_.find(Kind::kArgumentStack, height + k + 1, plan.stack[k]));
  }
  return end;
}

}  // namespace srjit
