#include "compiler/host/print_program.h"

#include <fmt/format.h>

#include "ir/ops.h"
#include "ir/text/words.h"

namespace srjit {
namespace {

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
