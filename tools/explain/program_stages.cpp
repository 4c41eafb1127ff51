#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "compiler/host/program.h"
#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/handler_table.h"
#include "ir/ops.h"
#include "tools/explain/stages.h"

namespace srjit::explain {
namespace {

constexpr NodeId kNothing = ~NodeId{0};

/// Finds nodes of a graph without constants by what they compute.
class NodeFinder {
 public:
  explicit NodeFinder(const Dag& dag) : dag_(dag) {
    for (NodeId id = 0; id < dag.size(); ++id) {
      const Node& node = dag.node(id);
      const auto which = node.isOperator() ? static_cast<std::uint32_t>(node.op) : node.index;
      ids_[{node.kind, which, node.isOperator() ? node.operands : Operands{}}] = id;
    }
  }

  NodeId variable(std::uint32_t column) const { return at(Token::Kind::kVariable, column); }
  NodeId parameter(std::uint32_t index) const { return at(Token::Kind::kParameter, index); }
  /// Operands of commutative operators may stand in either order.
  NodeId apply(Op op, Operands operands) const {
    for (std::size_t k = static_cast<std::size_t>(arityOf(op)); k < kMaxArity; ++k) operands[k] = 0;
    const NodeId found = at(Token::Kind::kOp, static_cast<std::uint32_t>(op), operands);
    if (found != kNothing || !infoOf(op).has(OpProps::kCommutative)) return found;
    std::swap(operands[0], operands[1]);
    return at(Token::Kind::kOp, static_cast<std::uint32_t>(op), operands);
  }
  bool isLeaf(NodeId id) const { return id != kNothing && !dag_.node(id).isOperator(); }

 private:
  NodeId at(Token::Kind kind, std::uint32_t which, const Operands& operands = {}) const {
    const auto found = ids_.find({kind, which, operands});
    return found == ids_.end() ? kNothing : found->second;
  }

  const Dag& dag_;
  /// By kind; operator or index; and operands.
  std::map<std::tuple<Token::Kind, std::uint32_t, Operands>, NodeId> ids_;
};

/// The machine of the GPU's interpreter over nodes.
class TokenReader {
 public:
  TokenReader(const FinalGraph& graph, const HandlerTable& table, const EncodeOptions& options, std::uint32_t slots)
      : graph_(graph), finder_(graph.dag), table_(table), columns_(options.staged_columns), slots_(slots, kNothing) {}

  /// The node that the token computes or moves, and the leaves that it reads.
  Ids read(const DeviceToken& token) {
    const Handler& handler = table_.handlers()[token.code & DeviceToken::kHandlerMask];
    const std::uint32_t column = token.code >> DeviceToken::kColumnShift & DeviceToken::kColumnMask;
    touched_.clear();
    switch (handler.kind) {
      case Handler::Kind::kPushColumn:
        push(inColumn(column));
        break;
      case Handler::Kind::kPushParameter:
        push(finder_.parameter(token.argument));
        break;
      case Handler::Kind::kApply:
        apply(handler, token, column);
        break;
      case Handler::Kind::kArgumentStack:
        arguments_[handler.argument] = pop();
        break;
      case Handler::Kind::kArgumentColumn:
        arguments_[handler.argument] = touch(inColumn(column));
        break;
      case Handler::Kind::kArgumentParameter:
        arguments_[handler.argument] = touch(finder_.parameter(token.argument));
        break;
      case Handler::Kind::kBody:
        arguments_[0] = touch(finder_.apply(handler.op, arguments_));
        break;
      case Handler::Kind::kPushResult:
        push(arguments_[0]);
        break;
      case Handler::Kind::kStoreSlot:
        if (column >= columns_ && column - columns_ < slots_.size()) slots_[column - columns_] = pop();
        break;
      case Handler::Kind::kEnd:
      case Handler::Kind::kKeepSum:
        pop();
        break;
      case Handler::Kind::kKeepProductSum:
        touch(inColumn(column));
        touch(inColumn(token.argument));
        break;
      case Handler::Kind::kStoreSums:
      case Handler::Kind::kHalt:
      case Handler::Kind::kNextWindow:
        break;
    }
    return idsOf();
  }

 private:
  NodeId touch(NodeId id) {
    touched_.push_back(id);
    return id;
  }
  void push(NodeId id) { stack_.push_back(touch(id)); }
  NodeId pop() {
    const NodeId id = stack_.empty() ? kNothing : stack_.back();
    if (!stack_.empty()) stack_.pop_back();
    return touch(id);
  }
  NodeId inColumn(std::uint32_t number) const {
    if (number < columns_) return finder_.variable(number);
    return number - columns_ < slots_.size() ? slots_[number - columns_] : kNothing;
  }

  void apply(const Handler& handler, const DeviceToken& token, std::uint32_t column) {
    const auto popped =
        static_cast<std::size_t>(std::ranges::count_if(handler.operands, [](char source) { return source <= '2'; }));
    const std::size_t base = stack_.size() - std::min(popped, stack_.size());
    Operands operands{};
    bool second = false;
    for (std::size_t i = 0; i < handler.operands.size(); ++i) {
      const char source = handler.operands[i];
      if (source == 'v') {
        operands[i] = inColumn(second ? token.argument : column);
        second = true;
      } else if (source == 'c') {
        operands[i] = finder_.parameter(token.argument);
      } else {
        const std::size_t at = base + static_cast<std::size_t>(source - '0');
        operands[i] = at < stack_.size() ? stack_[at] : kNothing;
      }
      if (finder_.isLeaf(operands[i])) touch(operands[i]);
    }
    stack_.resize(base);
    push(finder_.apply(handler.op, operands));
  }

  /// The operator first, then the leaves by id.
  Ids idsOf() const {
    Ids ids;
    std::set<Id> leaves;
    for (const NodeId id : touched_) {
      if (finder_.isLeaf(id)) leaves.insert(graph_.ids[id]);
      if (id != kNothing && !finder_.isLeaf(id)) ids.push_back(graph_.ids[id]);
    }
    ids.insert(ids.end(), leaves.begin(), leaves.end());
    return ids;
  }

  const FinalGraph& graph_;
  NodeFinder finder_;
  const HandlerTable& table_;
  std::uint32_t columns_;
  std::vector<NodeId> stack_, slots_, touched_;
  Operands arguments_{};
};

HandlerTable handlersFor(const Request& request, const Dag& dag) {
  std::set<Op> ops;
  for (const Node& node : dag.nodes()) {
    if (node.isOperator()) ops.insert(node.op);
  }
  InterpreterSpec spec;
  spec.precision = request.precision;
  spec.math = request.math;
  spec.ops.assign(ops.begin(), ops.end());
  return HandlerTable(std::move(spec));
}

}  // namespace

Result<Json> bytecodeStage(const Request& request, const FinalGraph& graph) {
  const HandlerTable table = handlersFor(request, graph.dag);
  EncodeOptions options;
  options.staged_columns = graph.dag.variableCount();
  options.max_slots = DeviceToken::kColumnMask;
  const Result<Bytecode> code = encode(graph.dag, table, options);
  if (!code) return code.error();
  Stage stage{"bytecode", "GPU interpreter", "program of the GPU's interpreter",
              "as sr-jit bytecode prints it: the height of the stack, then the token", ";"};
  TokenReader reader(graph, table, options, code->slots);
  const std::vector<std::string> lines = splitLines(printBytecode(*code, table, options));
  for (std::size_t i = 0; i < lines.size(); ++i) stage.lines.push_back({lines[i], reader.read(code->tokens[i])});
  stage.counts = {{"tokens", static_cast<double>(code->tokens.size())}, {"slots", static_cast<double>(code->slots)}};
  return stage.json();
}

Result<Json> hostProgramStage(const FinalGraph& graph) {
  std::vector<NodeId> computed;
  const Result<HostProgram> program = encodeForHost(graph.dag, &computed);
  if (!program) return program.error();
  Stage stage{"host-bytecode", "CPU interpreter", "program of the processor's interpreter",
              "as sr-jit bytecode --host prints it: each instruction runs over a block of rows", ";"};
  const std::vector<std::string> lines = splitLines(printProgram(*program, graph.dag));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    Ids ids = {graph.ids[computed[i]]};
    for (const NodeId operand : graph.dag.node(computed[i]).inputs()) {
      const Id& id = graph.ids[operand];
      if (!graph.dag.node(operand).isOperator() && std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
    }
    stage.lines.push_back({lines[i], std::move(ids)});
  }
  stage.counts = {{"instructions", static_cast<double>(program->instructions.size())},
                  {"slots", static_cast<double>(program->slots)}};
  return stage.json();
}

}  // namespace srjit::explain
