#include "compiler/interpreter/bytecode.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "ir/ops.h"
#include "passes/root_members.h"

namespace srjit {
namespace {

using Kind = Handler::Kind;

// When slots run out, shared values of fewer tokens than this are rematerialized at each use. Limits are tried in
// order; the first rematerializes none.
constexpr std::uint32_t kLeastShared[] = {0, 8, 64, 512, 4096};

// A program that would become longer is refused. Tokens are numbered with 32 bits.
constexpr std::uint32_t kMaxTokens = 1u << 30;

Error wrong(Errc code, std::string message) { return {code, std::move(message), {}}; }

}  // namespace

/// Working memory of one encoder. A statement is the computation of a slot, or of a root up to its end; statements are
/// numbered in the order in which they run.
struct Encoder::State {
  /// A node in the current program. What is not an operator in place has 0 tokens.
  struct Value {
    const OperandPlan* plan = nullptr;  ///< of operators
    std::uint32_t number = 0;        ///< of the column, slot or parameter where it is; slots come after staged columns
    std::uint32_t tokens = 0;        ///< tokens to compute it at its use; at most kMaxTokens
    std::uint32_t slot_tokens = 0;   ///< of a value in a slot: tokens to compute it there
    std::uint32_t order = 0;         ///< nodes that are evaluated earlier have smaller ones
    OperandPlace where = kInColumn;  ///< for its users
    bool in_slot = false;
  };
  /// When a node of a program with slots is used. Statements are numbered.
  struct Life {
    std::uint32_t statement = 0;  ///< that computes the node
    std::uint32_t last_use = 0;   ///< values in slots: the last statement that reads it
  };
  /// A node that roots use; stale if `generation` is not the current one.
  struct Use {
    std::uint32_t generation = 0;
    std::uint32_t uses = 0;  ///< by operators and roots of the program
  };
  /// The nodes that a root needs and no root before it: members[first .. last), each after its operands.
  struct Segment {
    NodeId root;
    std::uint32_t output;
    std::uint32_t first, last;
  };
  /// A value that is to be computed onto a stack of this height: the height in the upper half, the node in the lower.
  /// One word, since it is read back at once: two stores must complete before one load of both.
  using Pending = std::uint64_t;
  static constexpr Pending pendingAt(NodeId node, std::uint32_t height) { return Pending{height} << 32 | node; }

  // Pending values are for different heights of the stack. Three at once are written behind them.
  explicit State(const HandlerTable& handlers) : table(handlers), pending(handlers.spec().depth + kMaxArity) {}

  Status begin(const Dag& graph, const EncodeOptions& how, Bytecode& to);
  Status encode(std::span<const NodeId> roots, std::span<const std::uint32_t> outputs, std::uint32_t shared_from);
  Status encode(const ExpressionGraph& graph, std::span<const std::uint32_t> outputs, std::uint32_t shared_from);
  void clear(std::uint32_t shared_from);
  Status collect(NodeId root, std::uint32_t output);
  static void placeAt(Value& value, OperandPlace where, std::uint32_t number);
  Status placeLeaf(const Node& node, Value& value) const;
  Status emitSegments();
  Error refusal(const Node& node) const;
  void plan(const Node& node, Value& value, std::uint32_t uses);
  void planOnce(const Node& node, Value& value) const;
  void spillHungriest(const Node& node);
  void moveToSlot(Value& value);
  Status checkLength() const;
  void findLastUses();
  Status storeInSlots(const Segment& segment, std::uint32_t& statement);
  Status storeInSlot(NodeId id, std::uint32_t statement);
  void release(std::uint32_t statement);
  std::size_t endOfSums(std::size_t first) const;
  void emitSum(NodeId root, std::uint32_t sum);
  void emitStatement(NodeId root, bool in_place, DeviceToken last);
  DeviceToken* emitTree(NodeId root, DeviceToken* end);
  DeviceToken* emitShort(const Node& node, const OperandPlan& plan, std::uint32_t height, DeviceToken* end) const;
  DeviceToken* emitLong(const Node& node, const OperandPlan& plan, std::uint32_t height, DeviceToken* end) const;
  DeviceToken pushed(const Value& value, std::uint32_t height) const;

  static DeviceToken token(int handler, std::uint32_t column = 0, std::uint32_t argument = 0,
                           DeviceToken::ArgumentKind kind = DeviceToken::kNumber) {
    return {static_cast<std::uint32_t>(handler) | column << DeviceToken::kColumnShift |
                static_cast<std::uint32_t>(kind) << DeviceToken::kArgumentShift,
            argument};
  }

  const HandlerTable& table;
  std::vector<Value> values;  ///< by node, as `uses` and `lives`
  std::vector<Use> uses;
  std::vector<Life> lives;
  std::uint32_t generation = 0;
  std::vector<NodeId> member_list;
  std::span<const NodeId> members;
  std::vector<Segment> segments;
  std::vector<NodeId> live;  ///< nodes whose slots are in use
  std::vector<std::uint32_t> free_slots;
  std::uint32_t slots = 0;
  bool any_in_slot = false;  ///< without slots, statements and last uses do not matter
  std::vector<Pending> pending;
  std::uint32_t least_shared = 0;  ///< a value used more than once goes to a slot from this many tokens on
  // Of the current call
  const Dag* dag = nullptr;
  const EncodeOptions* options = nullptr;
  Bytecode* code = nullptr;
};

Status Encoder::State::begin(const Dag& graph, const EncodeOptions& how, Bytecode& to) {
  const std::size_t handlers = table.handlers().size();
  if (handlers > DeviceToken::kHandlerMask + std::size_t{1}) {
    return wrong(Errc::kUnsupported,
                 fmt::format("{} handlers: a token can name {}", handlers, DeviceToken::kHandlerMask + 1));
  }
  if (how.staged_columns > DeviceToken::kColumnMask + 1) {
    return wrong(Errc::kUnsupported, fmt::format("{} staged columns: a token can name {}", how.staged_columns,
                                                 DeviceToken::kColumnMask + 1));
  }
  dag = &graph;
  options = &how;
  code = &to;
  if (values.size() < graph.size()) values.resize(graph.size());
  return okStatus();
}

void Encoder::State::clear(std::uint32_t shared_from) {
  least_shared = shared_from;
  segments.clear();
  live.clear();
  free_slots.clear();
  slots = 0;
  any_in_slot = false;
}

Status Encoder::State::encode(std::span<const NodeId> roots, std::span<const std::uint32_t> outputs,
                              std::uint32_t shared_from) {
  clear(shared_from);
  uses.resize(std::max(uses.size(), dag->size()));
  if (++generation == 0) {
    for (Use& use : uses) use.generation = 0;
    generation = 1;
  }
  member_list.clear();
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (Status collected = collect(roots[i], outputs[i]); !collected) return collected;
  }
  members = member_list;
  for (const NodeId id : members) {
    if (dag->node(id).isOperator()) plan(dag->node(id), values[id], uses[id].uses);
  }
  return emitSegments();
}

Status Encoder::State::encode(const ExpressionGraph& graph, std::span<const std::uint32_t> outputs,
                              std::uint32_t shared_from) {
  clear(shared_from);
  code->parameters.clear();
  members = graph.members;
  for (std::uint32_t m = 0; m < members.size(); ++m) {
    const NodeId id = members[m];
    const Node& node = dag->node(id);
    Value& value = values[id];
    value.order = m;
    if (node.isOperator()) {
      if (!table.has(node.op)) return refusal(node);
      plan(node, value, graph.uses[id]);
    } else if (node.kind == Token::Kind::kVariable) {
      if (options->columns.empty() && node.index < options->staged_columns) {
        placeAt(value, kInColumn, node.index);
      } else if (Status placed = placeLeaf(node, value); !placed) {
        return placed;
      }
    } else {
      placeAt(value, kInParameter, options->first_parameter + static_cast<std::uint32_t>(code->parameters.size()));
      code->parameters.push_back(id);
    }
  }
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < graph.roots.size(); ++i) {
    const NodeId root = graph.roots[i];
    const std::uint32_t last = std::max(first, values[root].order + 1);
    segments.push_back({root, outputs[i], first, last});
    first = last;
  }
  return emitSegments();
}

// Emits the planned members of all segments.
Status Encoder::State::emitSegments() {
  if (Status bounded = checkLength(); !bounded) return bounded;
  if (any_in_slot) findLastUses();
  std::uint32_t statement = 0;
  std::size_t first = 0, end = 0;  // of the segments that are added together
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    if (s == end) {
      first = s;
      end = endOfSums(s);
    }
    if (any_in_slot) {
      if (Status stored = storeInSlots(segment, statement); !stored) return stored;
    }
    if (end - first == 1) {
      const bool in_place = isOnStack(values[segment.root].where);
      emitStatement(segment.root, in_place, token(table.find(Kind::kEnd, 1), 0, segment.output));
    } else {
      const auto sum = static_cast<std::uint32_t>(s - first);
      emitSum(segment.root, sum);
      if (s + 1 == end) code->tokens.push_back(token(table.find(Kind::kStoreSums, 0, sum), 0, segments[first].output));
    }
    release(statement++);
  }
  code->slots = std::max(code->slots, slots);
  return okStatus();
}

// Computes the values of a segment that go to slots; `statement` is its first, then its last.
Status Encoder::State::storeInSlots(const Segment& segment, std::uint32_t& statement) {
  for (std::uint32_t m = segment.first; m < segment.last; ++m, ++statement) {
    if (!values[members[m]].in_slot) continue;
    if (Status stored = storeInSlot(members[m], statement); !stored) return stored;
  }
  return okStatus();
}

// Lists the nodes that the root needs, and counts uses.
Status Encoder::State::collect(NodeId root, std::uint32_t output) {
  const auto use = [&](NodeId id) {
    if (uses[id].generation == generation) {
      ++uses[id].uses;
      return;
    }
    uses[id] = {generation, 1};
    values[id].order = id;
    member_list.push_back(id);
  };
  const std::size_t first = member_list.size();
  use(root);
  for (std::size_t m = first; m < member_list.size(); ++m) {
    const NodeId id = member_list[m];
    const Node& node = dag->node(id);
    if (!node.isOperator()) {
      if (Status placed = placeLeaf(node, values[id]); !placed) return placed;
    } else if (!table.has(node.op)) {
      return refusal(node);
    }
    for (const NodeId input : node.inputs()) use(input);
  }
  sortMet(std::span(member_list).subspan(first));
  segments.push_back({root, output, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(member_list.size())});
  return okStatus();
}

void Encoder::State::placeAt(Value& value, OperandPlace where, std::uint32_t number) {
  value.number = number;
  value.tokens = 0;
  value.where = where;
  value.in_slot = false;
}

// Finds the number of a leaf.
Status Encoder::State::placeLeaf(const Node& node, Value& value) const {
  if (node.kind == Token::Kind::kConstant) return refusal(node);
  if (node.kind == Token::Kind::kParameter) {
    placeAt(value, kInParameter, options->parameters.empty() ? node.index : options->parameters[node.index]);
    return okStatus();
  }
  if (options->columns.empty()) {
    placeAt(value, kInColumn, node.index);
    return node.index < options->staged_columns ? okStatus() : Status(refusal(node));
  }
  const bool is_known = node.index < options->columns.size();
  placeAt(value, kInColumn, is_known ? options->columns[node.index] : EncodeOptions::kNotStaged);
  return value.number != EncodeOptions::kNotStaged ? okStatus() : Status(refusal(node));
}

Error Encoder::State::refusal(const Node& node) const {
  if (node.kind == Token::Kind::kConstant) {
    return wrong(Errc::kInvalid, "a constant is left in the graph: run the 'hoist' pass before encoding");
  }
  if (node.kind == Token::Kind::kVariable && options->columns.empty()) {
    return wrong(Errc::kInvalid,
                 fmt::format("variable x{}, but {} columns are staged", node.index, options->staged_columns));
  }
  if (node.kind == Token::Kind::kVariable) {
    return wrong(Errc::kInvalid, fmt::format("variable x{} is not among the columns that are staged", node.index));
  }
  std::vector<std::string_view> names;
  for (const Op known : table.spec().ops) names.push_back(infoOf(known).name);
  return wrong(Errc::kInvalid,
               fmt::format("this interpreter cannot run '{}', only {}", infoOf(node.op).name, fmt::join(names, " ")));
}

// Plans an operator over planned operands.
void Encoder::State::plan(const Node& node, Value& value, std::uint32_t uses_of_it) {
  planOnce(node, value);
  while (value.plan->need > table.spec().depth) {
    spillHungriest(node);
    planOnce(node, value);
  }
  if (uses_of_it > 1 && value.tokens >= least_shared) moveToSlot(value);
}

// Absent operands are node 0, a leaf, which has no tokens.
void Encoder::State::planOnce(const Node& node, Value& value) const {
  const Value &a = values[node.operands[0]], &b = values[node.operands[1]], &c = values[node.operands[2]];
  value.plan = &table.planOf(node.op, a.where, b.where, c.where);
  value.tokens = std::min(value.plan->tokens + a.tokens + b.tokens + c.tokens, kMaxTokens);
  value.where = onStack(value.plan->need);
  value.in_slot = false;
}

// Sends the operand that needs most registers to a slot. Of equal needs, the first in the order of evaluation, so that
// slots within the other operand are free meanwhile.
void Encoder::State::spillHungriest(const Node& node) {
  std::optional<NodeId> hungriest;
  for (const NodeId input : node.inputs()) {
    if (!isOnStack(values[input].where)) continue;
    const unsigned need = needOf(values[input].where), least = hungriest ? needOf(values[*hungriest].where) : 0;
    const bool is_earlier = hungriest && values[input].order < values[*hungriest].order;
    if (need > least || (need == least && is_earlier)) hungriest = input;
  }
  moveToSlot(values[*hungriest]);
}

void Encoder::State::moveToSlot(Value& value) {
  any_in_slot = true;
  value.in_slot = true;
  value.where = kInColumn;
  value.slot_tokens = std::exchange(value.tokens, 0);
}

Status Encoder::State::checkLength() const {
  std::uint64_t tokens = 0;
  for (std::size_t m = 0; any_in_slot && m < members.size(); ++m) {
    if (values[members[m]].in_slot) tokens += values[members[m]].slot_tokens + std::uint64_t{1};
  }
  for (const Segment& segment : segments) tokens += values[segment.root].tokens;
  if (tokens < kMaxTokens) return okStatus();
  return wrong(Errc::kUnsupported, "the program needs more slots for shared values than there are");
}

// Every member counts as a statement, and the end of every segment, so that numbering needs no search.
void Encoder::State::findLastUses() {
  lives.resize(std::max(lives.size(), dag->size()));
  for (const NodeId id : members) lives[id] = {};
  const auto useIn = [&](NodeId id, std::uint32_t statement) {
    Life& life = lives[id];
    life.last_use = std::max(life.last_use, statement);
    if (!values[id].in_slot) life.statement = std::max(life.statement, statement);
  };
  for (std::size_t s = segments.size(); s-- > 0;) {
    const Segment& segment = segments[s];
    useIn(segment.root, segment.last + static_cast<std::uint32_t>(s));
    for (std::uint32_t m = segment.last; m-- > segment.first;) {
      Life& life = lives[members[m]];
      if (values[members[m]].in_slot) life.statement = m + static_cast<std::uint32_t>(s);
      const std::uint32_t statement = life.statement;
      for (const NodeId input : dag->node(members[m]).inputs()) useIn(input, statement);
    }
  }
}

Status Encoder::State::storeInSlot(NodeId id, std::uint32_t statement) {
  std::uint32_t slot = slots;
  if (!free_slots.empty()) {
    slot = free_slots.back();
    free_slots.pop_back();
  } else if (slot < options->max_slots && options->staged_columns + std::uint64_t{slot} <= DeviceToken::kColumnMask) {
    ++slots;
  } else {
    return wrong(Errc::kUnsupported,
                 fmt::format("the program needs more than {} slots for shared and deep values", slot));
  }
  values[id].number = options->staged_columns + slot;
  emitStatement(id, true, token(table.find(Kind::kStoreSlot, 1), values[id].number));
  release(statement);
  live.push_back(id);
  return okStatus();
}

void Encoder::State::release(std::uint32_t statement) {
  std::erase_if(live, [&](NodeId id) {
    if (lives[id].last_use != statement) return false;
    free_slots.push_back(values[id].number - options->staged_columns);
    return true;
  });
}

// The end of the segments from `first` on that are added together.
std::size_t Encoder::State::endOfSums(std::size_t first) const {
  std::size_t end = first + 1;
  while (options->joins_sums && end < std::min<std::size_t>(segments.size(), first + kMostKeptSums) &&
         segments[end].output == segments[end - 1].output + 1) {
    ++end;
  }
  return end;
}

// Most sums are of products of shared values, which need no place on the stack.
void Encoder::State::emitSum(NodeId root, std::uint32_t sum) {
  const Value& value = values[root];
  const Node& node = dag->node(root);
  const bool in_place = isOnStack(value.where);
  if (in_place && node.op == Op::kMul && value.plan->stack_count == 0 && value.plan->argument_place == kInColumn) {
    const auto number = [&](std::uint8_t operand) { return values[node.operands[operand]].number; };
    code->tokens.push_back(token(table.find(Kind::kKeepProductSum, 0, sum), number(value.plan->column),
                                 number(value.plan->argument), DeviceToken::kColumn));
    return;
  }
  emitStatement(root, in_place, token(table.find(Kind::kKeepSum, 1, sum)));
}

// Appends the tokens that push a value, computed in place or from where it is, and the one that takes it. Tokens of an
// operand that is computed at each use were counted in its first users, although a later user may have sent it to a
// slot: then fewer are needed.
void Encoder::State::emitStatement(NodeId root, bool in_place, DeviceToken last) {
  const Value& value = values[root];
  const std::size_t length = !in_place ? 1 : value.in_slot ? value.slot_tokens : value.tokens;
  const std::size_t before = code->tokens.size();
  code->tokens.resize(before + length + 1);
  DeviceToken* const end = code->tokens.data() + before + length;
  *end = last;
  if (!in_place) {
    end[-1] = pushed(value, 0);
    return;
  }
  const auto unused = emitTree(root, end) - (end - length);
  const auto first = code->tokens.begin() + static_cast<std::ptrdiff_t>(before);
  code->tokens.erase(first, first + unused);
}

DeviceToken Encoder::State::pushed(const Value& value, std::uint32_t height) const {
  if (value.where == kInColumn) return token(table.find(Kind::kPushColumn, height), value.number);
  return token(table.find(Kind::kPushParameter, height), 0, value.number, DeviceToken::kParameter);
}

// Writes the tree of an operator node down to leaves and slots, up to `end`: backwards, so that each operator is met
// once, before its operands. Gives where it begins. Not recursive.
DeviceToken* Encoder::State::emitTree(NodeId root, DeviceToken* end) {
  Pending* const bottom = pending.data();
  Pending* top = bottom;
  *top++ = pendingAt(root, 0);
  do {
    const Pending next = *--top;
    const auto id = static_cast<NodeId>(next);
    const auto height = static_cast<std::uint32_t>(next >> 32);
    const Value& value = values[id];
    if (!isOnStack(value.where) && id != root) {
      *--end = pushed(value, height);
      continue;
    }
    const Node& node = dag->node(id);
    const OperandPlan& plan = *value.plan;
    end = table.isLong(node.op) ? emitLong(node, plan, height, end) : emitShort(node, plan, height, end);
    const std::array<NodeId, kMaxArity + 1> operands = {node.operands[0], node.operands[1], node.operands[2], 0};
    for (unsigned k = 0; k < kMaxArity; ++k) top[k] = pendingAt(operands[plan.stack[k]], height + k);
    top += plan.stack_count;
  } while (top != bottom);
  return end;
}

DeviceToken* Encoder::State::emitShort(const Node& node, const OperandPlan& plan, std::uint32_t height,
                                       DeviceToken* end) const {
  constexpr DeviceToken::ArgumentKind kKinds[] = {DeviceToken::kColumn, DeviceToken::kParameter, DeviceToken::kNumber};
  const auto number = [&](std::size_t k) { return values[node.operands[k]].number; };
  const std::array<std::uint32_t, kMaxArity + 1> numbers = {number(0), number(1), number(2), 0};
  *--end = token(table.findApply(node.op, unsigned{plan.operand_form}, height + plan.stack_count), numbers[plan.column],
                 numbers[plan.argument], kKinds[plan.argument_place]);
  return end;
}

DeviceToken* Encoder::State::emitLong(const Node& node, const OperandPlan& plan, std::uint32_t height,
                                      DeviceToken* end) const {
  *--end = token(table.find(Kind::kPushResult, height));
  *--end = token(table.findBody(node.op));
  for (unsigned i = node.operand_count; i-- > 0;) {
    const Value& input = values[node.operands[i]];
    if (input.where == kInColumn) *--end = token(table.find(Kind::kArgumentColumn, 0, i), input.number);
    if (input.where == kInParameter) {
      *--end = token(table.find(Kind::kArgumentParameter, 0, i), 0, input.number, DeviceToken::kParameter);
    }
  }
  for (unsigned k = 0; k < plan.stack_count; ++k) {
    *--end = token(table.find(Kind::kArgumentStack, height + k + 1, plan.stack[k]));
  }
  return end;
}

Encoder::Encoder(const HandlerTable& table) : state_(std::make_unique<State>(table)) {}
Encoder::~Encoder() = default;

namespace {

// Tries `encode` with ever larger values of which one is rematerialized.
template <class Encode>
Status encodeWithSlots(Bytecode& code, const Encode& encode) {
  const std::size_t before = code.tokens.size();
  Status encoded = okStatus();
  for (const std::uint32_t least_shared : kLeastShared) {
    encoded = encode(least_shared);
    if (encoded) break;
    code.tokens.resize(before);
    if (encoded.error().code != Errc::kUnsupported) break;
  }
  return encoded;
}

}  // namespace

Status Encoder::encode(const Dag& dag, std::span<const NodeId> roots, std::span<const std::uint32_t> outputs,
                       const EncodeOptions& options, Bytecode& code) {
  if (Status begun = state_->begin(dag, options, code); !begun) return begun;
  return encodeWithSlots(code, [&](std::uint32_t shared) { return state_->encode(roots, outputs, shared); });
}

Status Encoder::encode(const ExpressionGraph& graph, std::span<const std::uint32_t> outputs,
                       const EncodeOptions& options, Bytecode& code) {
  if (Status begun = state_->begin(graph.dag, options, code); !begun) return begun;
  return encodeWithSlots(code, [&](std::uint32_t shared) { return state_->encode(graph, outputs, shared); });
}

Result<Bytecode> encode(const Dag& dag, const HandlerTable& table, const EncodeOptions& options) {
  std::vector<std::uint32_t> outputs(dag.roots().size());
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i] = static_cast<std::uint32_t>(i);
  Bytecode code;
  if (Status encoded = Encoder(table).encode(dag, dag.roots(), outputs, options, code); !encoded) {
    return std::move(encoded).error();
  }
  return code;
}

}  // namespace srjit
