#include "compiler/host/program.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "ir/ops.h"
#include "ir/text/words.h"

namespace srjit {
namespace {

constexpr NodeId kNever = 0;  // node 0 is a leaf, so it uses nothing

class HostEncoder {
 public:
  HostEncoder(const Dag& dag, std::vector<NodeId>* computed)
      : dag_(dag), computed_(computed), last_use_(dag.size(), kNever), place_(dag.size()), live_(dag.size()) {}

  HostProgram encode() {
    program_.outputs = static_cast<std::uint32_t>(dag_.roots().size());
    findLifetimes();
    std::vector<bool> written(dag_.roots().size());
    std::vector<std::uint32_t> output_of(dag_.size(), kNoOutput);
    for (std::uint32_t i = 0; i < dag_.roots().size(); ++i) {
      std::uint32_t& output = output_of[dag_.roots()[i]];
      if (output != kNoOutput || dag_.node(dag_.roots()[i]).kind != Token::Kind::kOp) continue;
      output = i;
      written[i] = true;
    }
    for (NodeId id = 0; id < dag_.size(); ++id) {
      if (!live_[id]) continue;
      if (dag_.node(id).kind == Token::Kind::kOp) {
        emit(id, output_of[id]);
      } else {
        place_[id] = placeLeaf(dag_.node(id));
      }
    }
    for (std::uint32_t i = 0; i < dag_.roots().size(); ++i) {
      if (!written[i]) emitMove(i, dag_.roots()[i]);
    }
    return std::move(program_);
  }

 private:
  static constexpr std::uint32_t kNoOutput = ~0u;

  void findLifetimes() {
    for (const NodeId root : dag_.roots()) live_[root] = true;
    for (NodeId id = static_cast<NodeId>(dag_.size()); id-- > 0;) {
      if (!live_[id]) continue;
      for (const NodeId input : dag_.node(id).inputs()) {
        live_[input] = true;
        last_use_[input] = std::max(last_use_[input], id);
      }
    }
  }

  HostOperand placeLeaf(const Node& node) {
    if (node.kind == Token::Kind::kVariable) return {HostOperand::kColumn, node.index};
    if (node.kind == Token::Kind::kParameter) return {HostOperand::kParameter, node.index};
    program_.constants.push_back(node.value);
    return {HostOperand::kParameter,
            static_cast<std::uint32_t>(dag_.parameters().size() + program_.constants.size() - 1)};
  }

  void emit(NodeId id, std::uint32_t output) {
    const Node& node = dag_.node(id);
    HostInstruction instruction{};
    HandlerKey key{static_cast<std::int16_t>(node.op), 0};
    for (int i = 0; i < node.arity(); ++i) {
      const HostOperand operand = place_[node.operands[i]];
      instruction.operands[i] = operand;
      if (operand.base() == HostOperand::kParameter) key.scalar_mask |= static_cast<std::uint8_t>(1u << i);
    }
    instruction.handler = handlerNumber(key);
    freeOperands(id);
    place_[id] = output == kNoOutput ? takeSlot() : HostOperand(HostOperand::kOutput, output);
    instruction.destination = place_[id];
    push(instruction, id);
  }

  void push(const HostInstruction& instruction, NodeId computed) {
    program_.instructions.push_back(instruction);
    if (computed_ != nullptr) computed_->push_back(computed);
  }

  void emitMove(std::uint32_t output, NodeId root) {
    const HostOperand source = place_[root];
    const HandlerKey key{-1, static_cast<std::uint8_t>(source.base() == HostOperand::kParameter)};
    push({handlerNumber(key), {HostOperand::kOutput, output}, {source, {}, {}}}, root);
  }

  void freeOperands(NodeId id) {
    const auto inputs = dag_.node(id).inputs();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto before = inputs.first(i);
      const bool seen = std::ranges::find(before, inputs[i]) != before.end();
      const HostOperand place = place_[inputs[i]];
      if (!seen && place.base() == HostOperand::kSlot && last_use_[inputs[i]] == id) free_.push_back(place.index());
    }
  }

  // LIFO: the slot freed last is the most likely to be in the L1 cache.
  HostOperand takeSlot() {
    if (free_.empty()) return {HostOperand::kSlot, program_.slots++};
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return {HostOperand::kSlot, slot};
  }

  const Dag& dag_;
  std::vector<NodeId>* computed_;
  HostProgram program_;
  std::vector<NodeId> last_use_;
  std::vector<HostOperand> place_;
  std::vector<bool> live_;
  std::vector<std::uint32_t> free_;
};

std::string textOf(HostOperand operand, const HostProgram& program, const Dag& dag) {
  const std::uint32_t index = operand.index();
  switch (operand.base()) {
    case HostOperand::kColumn:
      return fmt::format("x{}", index);
    case HostOperand::kParameter: {
      const std::size_t parameters = dag.parameters().size();
      if (index < parameters) {
        const ParameterSource& source = dag.parameters()[index];
        return source.isLiteral()
                   ? fmt::format("parameter{}({})", index, text::numberText(source.literal, dag.precision()))
                   : fmt::format("parameter{}", index);
      }
      return text::numberText(program.constants[index - parameters], dag.precision());
    }
    case HostOperand::kSlot:
      return fmt::format("slot{}", index);
    case HostOperand::kOutput:
      return fmt::format("root{}", index);
  }
  __builtin_unreachable();
}

}  // namespace

std::uint32_t handlerNumber(HandlerKey key) noexcept {
  return static_cast<std::uint32_t>((key.op + 1) * static_cast<int>(kHandlerMasks) + key.scalar_mask);
}

HandlerKey handlerKey(std::uint32_t number) noexcept {
  return {static_cast<std::int16_t>(static_cast<int>(number / kHandlerMasks) - 1),
          static_cast<std::uint8_t>(number % kHandlerMasks)};
}

std::uint32_t handlerNumbers() noexcept { return static_cast<std::uint32_t>((allOps().size() + 1) * kHandlerMasks); }

Result<HostProgram> encodeForHost(const Dag& dag, std::vector<NodeId>* computed) {
  const std::pair<std::size_t, const char*> limited[] = {
      {dag.variableCount(), "columns"},
      {dag.roots().size(), "roots"},
      {dag.size() + dag.parameters().size(), "nodes and parameters"},
  };
  for (const auto& [count, what] : limited) {
    if (count <= HostOperand::kMaxIndex) continue;
    return Error{Errc::kInvalid,
                 fmt::format("a graph with {} {}, expected at most {}", count, what, HostOperand::kMaxIndex),
                 {}};
  }
  return HostEncoder(dag, computed).encode();
}

std::uint32_t HostTreeEncoder::encode(const Tree& tree, std::vector<HostInstruction>& instructions,
                                      std::vector<NodeId>& parameters) {
  constexpr std::int16_t kMove = -1;
  const std::uint32_t root = tree.root();
  slots_.resize(std::max(slots_.size(), tree.nodes.size()));
  parameters.clear();
  std::uint32_t* const slots = slots_.data();
  const TreeNode* const nodes = tree.nodes.data();
  std::uint32_t height = 0, most = 0;
  const auto append = [&](std::int16_t op, HostOperand::Base to, std::uint32_t number,
                          std::span<const NodeId> operands) {
    HostInstruction instruction{};
    HandlerKey key{op, 0};
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const TreeNode& node = nodes[operands[k]];
      if (node.isOperator()) {
        instruction.operands[k] = {HostOperand::kSlot, slots[operands[k]]};
        --height;
      } else if (node.place == TreeNode::kInColumn) {
        instruction.operands[k] = {HostOperand::kColumn, node.index()};
      } else {
        instruction.operands[k] = {HostOperand::kParameter, static_cast<std::uint32_t>(parameters.size())};
        parameters.push_back(operands[k]);
        key.scalar_mask |= static_cast<std::uint8_t>(1U << k);
      }
    }
    instruction.handler = handlerNumber(key);
    if (to == HostOperand::kSlot) {
      slots[number] = height++;
      most = std::max(most, height);
      instruction.destination = {HostOperand::kSlot, slots[number]};
    } else {
      instruction.destination = {HostOperand::kOutput, 0};
    }
    instructions.push_back(instruction);
  };
  for (NodeId id = 0; id <= root; ++id) {
    const TreeNode& node = nodes[id];
    if (!node.isOperator()) continue;
    append(static_cast<std::int16_t>(node.op), id == root ? HostOperand::kOutput : HostOperand::kSlot, id,
           std::span(node.operands).first(node.arity));
  }
  if (!nodes[root].isOperator()) append(kMove, HostOperand::kOutput, root, {&root, 1});
  return most;
}

std::string printProgram(const HostProgram& program, const Dag& dag) {
  std::string text;
  for (const HostInstruction& instruction : program.instructions) {
    const HandlerKey key = handlerKey(instruction.handler);
    const bool move = key.op < 0;
    text += textOf(instruction.destination, program, dag) + " = ";
    text += move ? std::string_view("move") : infoOf(static_cast<Op>(key.op)).name;
    const int count = move ? 1 : arityOf(static_cast<Op>(key.op));
    for (int i = 0; i < count; ++i) text += ' ' + textOf(instruction.operands[i], program, dag);
    text += '\n';
  }
  return text;
}

}  // namespace srjit
