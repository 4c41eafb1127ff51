#include "compiler/interpreter/bytecode.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "ir/ops.h"

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
  /// A node in the current program; stale if `generation` is not the current one.
  struct NodeState {
    const OperandPlan* plan = nullptr;  ///< of operators
    std::uint32_t generation = 0;
    std::uint32_t place = 0;      ///< nodes that are evaluated earlier have smaller ones
    std::uint32_t uses = 0;       ///< by operators and roots of the program
    std::uint32_t statement = 0;  ///< the statement that computes the node
    std::uint32_t last_use = 0;   ///< values in slots: the last statement that reads it
    std::uint32_t number = 0;     ///< of the column, slot or parameter where it is; slots come after staged columns
    std::uint32_t tokens = 0;     ///< tokens to compute the node at its use; at most kMaxTokens
    std::uint8_t need = 1;        ///< stack registers
    Source source = Source::kStack;
    bool in_slot = false;
  };
  /// The nodes that a root needs and no root before it: members[first .. last), each after its operands.
  struct Segment {
    NodeId root;
    std::uint32_t output;
    std::uint32_t first, last;
  };
  struct Frame {
    NodeId node;
    unsigned next;  ///< the next stack operand
  };

  explicit State(const HandlerTable& handlers) : table(handlers) {}

  Status begin(const Dag& graph, const EncodeOptions& how, Bytecode& to);
  Status encode(std::span<const NodeId> roots, std::span<const std::uint32_t> outputs, std::uint32_t shared_from);
  Status encode(const ExpressionGraph& graph, std::uint32_t output, std::uint32_t shared_from);
  void clear(std::uint32_t shared_from);
  Status collect(NodeId root, std::uint32_t output);
  Status placeLeaf(const Node& node, NodeState& state) const;
  void sortMembers(std::size_t first);
  Status emitSegments();
  Error refusal(const Node& node) const;
  void plan(NodeId id);
  template <std::size_t kArity>
  void planOperands(const Node& node, NodeState& state);
  template <std::size_t kArity>
  unsigned planOnce(const Node& node, NodeState& state) const;
  void spillHungriest(const Node& node);
  Status checkLength() const;
  void findLastUses();
  Status storeInSlots(const Segment& segment, std::uint32_t& statement);
  Status storeInSlot(NodeId id, std::uint32_t statement);
  void release(std::uint32_t statement);
  void emitValue(NodeId id);
  void emitNode(NodeId root);
  void emitShort(const Node& node, const OperandPlan& plan);
  void emitLong(const Node& node, const OperandPlan& plan);

  void emit(int handler, std::uint32_t column = 0, std::uint32_t argument = 0,
            DeviceToken::ArgumentKind kind = DeviceToken::kNumber) {
    code->tokens.push_back({static_cast<std::uint32_t>(handler) | column << DeviceToken::kColumnShift |
                                static_cast<std::uint32_t>(kind) << DeviceToken::kArgumentShift,
                            argument});
  }

  const HandlerTable& table;
  std::vector<NodeState> nodes;
  std::uint32_t generation = 0;
  std::vector<NodeId> member_list;
  std::span<const NodeId> members;
  std::vector<Segment> segments;
  std::vector<NodeId> live;  ///< nodes whose slots are in use
  std::vector<std::uint32_t> free_slots;
  std::uint32_t slots = 0;
  bool any_in_slot = false;  ///< without slots, statements and last uses do not matter
  std::vector<Frame> frames;
  unsigned height = 0;
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
  if (nodes.size() < graph.size()) nodes.resize(graph.size());
  return okStatus();
}

void Encoder::State::clear(std::uint32_t shared_from) {
  least_shared = shared_from;
  segments.clear();
  live.clear();
  free_slots.clear();
  slots = 0;
  height = 0;
  any_in_slot = false;
}

Status Encoder::State::encode(std::span<const NodeId> roots, std::span<const std::uint32_t> outputs,
                              std::uint32_t shared_from) {
  clear(shared_from);
  if (++generation == 0) {
    for (NodeState& state : nodes) state.generation = 0;
    generation = 1;
  }
  member_list.clear();
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (Status collected = collect(roots[i], outputs[i]); !collected) return collected;
  }
  members = member_list;
  for (const NodeId id : members) {
    if (dag->node(id).isOperator()) plan(id);
  }
  return emitSegments();
}

Status Encoder::State::encode(const ExpressionGraph& graph, std::uint32_t output, std::uint32_t shared_from) {
  clear(shared_from);
  code->parameters.clear();
  members = graph.members;
  for (std::uint32_t m = 0; m < members.size(); ++m) {
    const NodeId id = members[m];
    const Node& node = dag->node(id);
    NodeState& state = nodes[id];
    state.place = m;
    state.uses = graph.uses[id];
    state.statement = state.last_use = 0;
    state.need = 1;
    state.source = Source::kStack;
    state.in_slot = false;
    if (node.isOperator()) {
      if (!table.has(node.op)) return refusal(node);
      plan(id);
    } else if (node.kind == Token::Kind::kVariable) {
      if (Status placed = placeLeaf(node, state); !placed) return placed;
    } else {
      state.source = Source::kParameter;
      state.number = options->first_parameter + static_cast<std::uint32_t>(code->parameters.size());
      code->parameters.push_back(id);
    }
  }
  segments.push_back({graph.root, output, 0, static_cast<std::uint32_t>(members.size())});
  return emitSegments();
}

// Emits the planned members of all segments.
Status Encoder::State::emitSegments() {
  if (Status bounded = checkLength(); !bounded) return bounded;
  if (any_in_slot) findLastUses();
  std::uint32_t statement = 0;
  for (const Segment& segment : segments) {
    if (any_in_slot) {
      if (Status stored = storeInSlots(segment, statement); !stored) return stored;
    }
    emitValue(segment.root);
    emit(table.find(Kind::kEnd, 1), 0, segment.output);
    height = 0;
    release(statement++);
  }
  code->slots = std::max(code->slots, slots);
  return okStatus();
}

// Computes the values of a segment that go to slots; `statement` is its first, then its last.
Status Encoder::State::storeInSlots(const Segment& segment, std::uint32_t& statement) {
  for (std::uint32_t m = segment.first; m < segment.last; ++m, ++statement) {
    if (!nodes[members[m]].in_slot) continue;
    if (Status stored = storeInSlot(members[m], statement); !stored) return stored;
  }
  return okStatus();
}

// Lists the nodes that the root needs, and counts uses.
Status Encoder::State::collect(NodeId root, std::uint32_t output) {
  const auto use = [&](NodeId id) {
    NodeState& state = nodes[id];
    if (state.generation == generation) {
      ++state.uses;
      return;
    }
    state = {};
    state.generation = generation;
    state.place = id;
    state.uses = 1;
    member_list.push_back(id);
  };
  const std::size_t first = member_list.size();
  use(root);
  for (std::size_t m = first; m < member_list.size(); ++m) {
    const NodeId id = member_list[m];
    const Node& node = dag->node(id);
    if (!node.isOperator()) {
      if (Status placed = placeLeaf(node, nodes[id]); !placed) return placed;
    } else if (!table.has(node.op)) {
      return refusal(node);
    }
    for (const NodeId input : node.inputs()) use(input);
  }
  sortMembers(first);
  segments.push_back({root, output, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(member_list.size())});
  return okStatus();
}

// Finds the number of a leaf.
Status Encoder::State::placeLeaf(const Node& node, NodeState& state) const {
  if (node.kind == Token::Kind::kConstant) return refusal(node);
  if (node.kind == Token::Kind::kParameter) {
    state.source = Source::kParameter;
    state.number = options->parameters.empty() ? node.index : options->parameters[node.index];
    return okStatus();
  }
  state.source = Source::kColumn;
  if (options->columns.empty()) {
    state.number = node.index;
    return node.index < options->staged_columns ? okStatus() : Status(refusal(node));
  }
  const bool is_known = node.index < options->columns.size();
  state.number = is_known ? options->columns[node.index] : EncodeOptions::kNotStaged;
  return state.number != EncodeOptions::kNotStaged ? okStatus() : Status(refusal(node));
}

// The traversal starts at the root, so members are nearly in descending order.
void Encoder::State::sortMembers(std::size_t first) {
  constexpr std::ptrdiff_t kFew = 64;
  const auto begin = member_list.begin() + static_cast<std::ptrdiff_t>(first);
  if (member_list.end() - begin > kFew) {
    std::sort(begin, member_list.end());
    return;
  }
  std::reverse(begin, member_list.end());
  for (auto next = begin; next != member_list.end(); ++next) {
    const NodeId id = *next;
    auto place = next;
    for (; place != begin && *(place - 1) > id; --place) *place = *(place - 1);
    *place = id;
  }
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
void Encoder::State::plan(NodeId id) {
  const Node& node = dag->node(id);
  NodeState& state = nodes[id];
  switch (node.operand_count) {
    case 1:
      return planOperands<1>(node, state);
    case 2:
      return planOperands<2>(node, state);
    default:
      return planOperands<3>(node, state);
  }
}

template <std::size_t kArity>
void Encoder::State::planOperands(const Node& node, NodeState& state) {
  unsigned need = planOnce<kArity>(node, state);
  while (need > table.spec().depth) {
    spillHungriest(node);
    need = planOnce<kArity>(node, state);
  }
  state.need = static_cast<std::uint8_t>(need);
  std::uint64_t tokens = table.isLong(node.op) ? 2 + kArity : 1;
  for (std::size_t i = 0; i < kArity; ++i) {
    const NodeState& input = nodes[node.operands[i]];
    tokens += input.source == Source::kStack ? input.tokens : 0;
  }
  state.tokens = static_cast<std::uint32_t>(std::min<std::uint64_t>(tokens, kMaxTokens));
  if (state.uses == 1 || state.tokens < least_shared) return;
  state.in_slot = any_in_slot = true;
  state.source = Source::kColumn;
  state.need = 1;
}

// Sends the operand that needs most registers to a slot. Of equal needs, the first in the order of evaluation, so that
// slots within the other operand are free meanwhile.
void Encoder::State::spillHungriest(const Node& node) {
  std::optional<NodeId> hungriest;
  for (const NodeId input : node.inputs()) {
    if (nodes[input].source != Source::kStack) continue;
    const unsigned least = hungriest ? nodes[*hungriest].need : 0;
    const bool is_earlier = hungriest && nodes[input].place < nodes[*hungriest].place;
    if (nodes[input].need > least || (nodes[input].need == least && is_earlier)) hungriest = input;
  }
  NodeState& worst = nodes[*hungriest];
  worst.in_slot = any_in_slot = true;
  worst.source = Source::kColumn;
  worst.need = 1;
}

template <std::size_t kArity>
unsigned Encoder::State::planOnce(const Node& node, NodeState& state) const {
  std::array<Source, kMaxArity> sources{};
  std::array<std::uint8_t, kMaxArity> ranks{};
  std::array<unsigned, kMaxArity> needs{};
  for (std::size_t i = 0; i < kArity; ++i) {
    const NodeState& input = nodes[node.operands[i]];
    sources[i] = input.source;
    needs[i] = input.need;
    for (std::size_t k = 0; k < i; ++k) {
      const bool is_later = needs[k] >= needs[i];
      ranks[i] = static_cast<std::uint8_t>(ranks[i] + is_later);
      ranks[k] = static_cast<std::uint8_t>(ranks[k] + !is_later);
    }
  }
  const OperandPlan& plan = table.planOf(node.op, sources, ranks);
  state.plan = &plan;
  unsigned need = 1;
  for (unsigned k = 0; k < kArity; ++k) {
    const unsigned own = k + needs[plan.stack[k]];
    need = std::max(need, k < plan.stack_count ? own : 0);
  }
  return need;
}

Status Encoder::State::checkLength() const {
  std::uint64_t tokens = 0;
  for (std::size_t m = 0; any_in_slot && m < members.size(); ++m) {
    if (nodes[members[m]].in_slot) tokens += nodes[members[m]].tokens + 1;
  }
  for (const Segment& segment : segments) {
    if (nodes[segment.root].source == Source::kStack) tokens += nodes[segment.root].tokens;
  }
  if (tokens < kMaxTokens) return okStatus();
  return wrong(Errc::kUnsupported, "the program needs more slots for shared values than there are");
}

// Every member counts as a statement, and the end of every segment, so that numbering needs no search.
void Encoder::State::findLastUses() {
  const auto useIn = [&](NodeId id, std::uint32_t statement) {
    NodeState& state = nodes[id];
    state.last_use = std::max(state.last_use, statement);
    if (!state.in_slot) state.statement = std::max(state.statement, statement);
  };
  for (std::size_t s = segments.size(); s-- > 0;) {
    const Segment& segment = segments[s];
    useIn(segment.root, segment.last + static_cast<std::uint32_t>(s));
    for (std::uint32_t m = segment.last; m-- > segment.first;) {
      NodeState& state = nodes[members[m]];
      if (state.in_slot) state.statement = m + static_cast<std::uint32_t>(s);
      const std::uint32_t statement = state.statement;
      for (const NodeId input : dag->node(members[m]).inputs()) useIn(input, statement);
    }
  }
}

Status Encoder::State::storeInSlot(NodeId id, std::uint32_t statement) {
  emitNode(id);
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
  nodes[id].number = options->staged_columns + slot;
  emit(table.find(Kind::kStoreSlot, 1), options->staged_columns + slot);
  height = 0;
  release(statement);
  live.push_back(id);
  return okStatus();
}

void Encoder::State::release(std::uint32_t statement) {
  std::erase_if(live, [&](NodeId id) {
    if (nodes[id].last_use != statement) return false;
    free_slots.push_back(nodes[id].number - options->staged_columns);
    return true;
  });
}

// Pushes the value of a root or operand from its source.
void Encoder::State::emitValue(NodeId id) {
  switch (nodes[id].source) {
    case Source::kColumn:
      emit(table.find(Kind::kPushColumn, height++), nodes[id].number);
      break;
    case Source::kParameter:
      emit(table.find(Kind::kPushParameter, height++), 0, nodes[id].number, DeviceToken::kParameter);
      break;
    case Source::kStack:
      emitNode(id);
      break;
  }
}

// Emits the tree of an operator node down to leaves and slots; leaves its value on the stack. Not recursive.
void Encoder::State::emitNode(NodeId root) {
  frames.push_back({root, 0});
  while (!frames.empty()) {
    Frame& frame = frames.back();
    const Node& node = dag->node(frame.node);
    const OperandPlan& plan = *nodes[frame.node].plan;
    if (frame.next < plan.stack_count) {
      const NodeId input = node.operands[plan.stack[frame.next++]];
      if (nodes[input].source == Source::kStack) {
        frames.push_back({input, 0});
      } else {
        emitValue(input);
      }
      continue;
    }
    if (table.isLong(node.op)) {
      emitLong(node, plan);
    } else {
      emitShort(node, plan);
    }
    frames.pop_back();
  }
}

void Encoder::State::emitShort(const Node& node, const OperandPlan& plan) {
  std::uint32_t column = 0, argument = 0;
  DeviceToken::ArgumentKind kind = DeviceToken::kNumber;
  if (plan.columns[0] != OperandPlan::kNone) column = nodes[node.operands[plan.columns[0]]].number;
  if (plan.columns[1] != OperandPlan::kNone) {
    argument = nodes[node.operands[plan.columns[1]]].number;
    kind = DeviceToken::kColumn;
  } else if (plan.parameter != OperandPlan::kNone) {
    argument = nodes[node.operands[plan.parameter]].number;
    kind = DeviceToken::kParameter;
  }
  emit(table.findApply(node.op, unsigned{plan.operand_form}, height), column, argument, kind);
  height = height - plan.stack_count + 1;
}

void Encoder::State::emitLong(const Node& node, const OperandPlan& plan) {
  for (unsigned k = plan.stack_count; k-- > 0;) emit(table.find(Kind::kArgumentStack, height--, plan.stack[k]));
  for (unsigned i = 0; i < static_cast<unsigned>(node.arity()); ++i) {
    const NodeId input = node.operands[i];
    if (nodes[input].source == Source::kColumn) emit(table.find(Kind::kArgumentColumn, 0, i), nodes[input].number);
    if (nodes[input].source == Source::kParameter) {
      emit(table.find(Kind::kArgumentParameter, 0, i), 0, nodes[input].number, DeviceToken::kParameter);
    }
  }
  emit(table.findBody(node.op));
  emit(table.find(Kind::kPushResult, height++));
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

Status Encoder::encode(const ExpressionGraph& graph, std::uint32_t output, const EncodeOptions& options,
                       Bytecode& code) {
  if (Status begun = state_->begin(graph.dag, options, code); !begun) return begun;
  return encodeWithSlots(code, [&](std::uint32_t shared) { return state_->encode(graph, output, shared); });
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
