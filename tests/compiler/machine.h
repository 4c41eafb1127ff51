// Models of the machines that bytecode and host programs are for: one row, computed by the rows of the table. They
// throw where a program does what its machine must not.
#pragma once

#include <array>
#include <limits>
#include <stdexcept>
#include <vector>

#include "compiler/bytecode.h"
#include "compiler/host_program.h"
#include "ir/rows.h"

namespace srjit {

inline void requireOfMachine(bool holds, const char* rule) {
  if (!holds) throw std::logic_error(rule);
}

/// The machine that the GPU's interpreter kernel implements, with one row. Registers hold NaN where nothing was put.
class BytecodeMachine {
 public:
  BytecodeMachine(const HandlerTable& table, const EncodeOptions& options, std::vector<double> columns,
                  std::vector<double> parameters)
      : table_(table),
        options_(options),
        shared_(std::move(columns)),
        parameters_(std::move(parameters)),
        stack_(table.spec().depth, kNothing),
        arguments_(kMaxArity, kNothing) {
    shared_.resize(options.columns, kNothing);
  }

  std::vector<double> run(const Bytecode& code, std::size_t roots) {
    shared_.resize(options_.columns + code.slots, kNothing);
    outputs_.assign(roots, kNothing);
    for (const DeviceToken& token : code.tokens) step(token);
    requireOfMachine(height_ == 0, "the stack is empty at the end");
    return outputs_;
  }

 private:
  static constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

  double& place(std::uint32_t offset) {
    requireOfMachine(offset % columnBytes(table_.spec()) == 0, "offsets are of whole columns");
    return shared_.at(offset / columnBytes(table_.spec()));
  }
  double parameter(const DeviceToken& token) const {
    requireOfMachine((token.code & DeviceToken::kParameterFlag) != 0, "a parameter is marked as one");
    return parameters_.at(token.argument - options_.first_parameter);
  }

  void step(const DeviceToken& token) {
    const Handler& handler = table_.handlers()[token.code & DeviceToken::kHandlerMask];
    const std::uint32_t offset = (token.code & ~DeviceToken::kParameterFlag) >> DeviceToken::kColumnShift;
    const bool fixed_height = handler.kind != Handler::Kind::kBody && handler.kind != Handler::Kind::kArgumentColumn &&
                              handler.kind != Handler::Kind::kArgumentParameter;
    requireOfMachine(!fixed_height || handler.height == height_, "a handler finds its stack height");
    switch (handler.kind) {
      case Handler::Kind::kPushColumn:
        stack_.at(height_++) = place(offset);
        break;
      case Handler::Kind::kPushParameter:
        stack_.at(height_++) = parameter(token);
        break;
      case Handler::Kind::kApply:
        apply(handler, token, offset);
        break;
      case Handler::Kind::kArgumentStack:
        argument(handler.argument) = stack_.at(--height_);
        break;
      case Handler::Kind::kArgumentColumn:
        argument(handler.argument) = place(offset);
        break;
      case Handler::Kind::kArgumentParameter:
        argument(handler.argument) = parameter(token);
        break;
      case Handler::Kind::kBody:
        argument(0) = applyRow<double>(handler.op, argument(0), argument(1), argument(2));
        break;
      case Handler::Kind::kPushResult:
        stack_.at(height_++) = arguments_[0];
        break;
      case Handler::Kind::kStoreSlot:
        requireOfMachine(offset / columnBytes(table_.spec()) >= options_.columns, "columns are not written");
        place(offset) = stack_.at(--height_);
        break;
      case Handler::Kind::kEnd:
        outputs_.at(token.argument - options_.first_root) = stack_.at(--height_);
        break;
      case Handler::Kind::kHalt:
        requireOfMachine(false, "programs do not halt, blocks do");
    }
  }

  // The second argument register is the top of the stack.
  double& argument(unsigned i) { return i == 1 ? stack_.back() : arguments_.at(i); }

  void apply(const Handler& handler, const DeviceToken& token, std::uint32_t offset) {
    unsigned popped = 0;
    for (const char source : handler.form) popped += source <= '2' ? 1 : 0;
    const unsigned base = height_ - popped;
    std::array<double, kMaxArity> operands{};
    bool second = false;
    for (std::size_t i = 0; i < handler.form.size(); ++i) {
      const char source = handler.form[i];
      if (source == 'v') {
        operands[i] = place(second ? token.argument : offset);
        second = true;
      } else {
        operands[i] = source == 'c' ? parameter(token) : stack_.at(base + static_cast<unsigned>(source - '0'));
      }
    }
    stack_.at(base) = applyRow<double>(handler.op, operands[0], operands[1], operands[2]);
    height_ = base + 1;
  }

  const HandlerTable& table_;
  const EncodeOptions& options_;
  std::vector<double> shared_, parameters_, stack_, arguments_, outputs_;
  unsigned height_ = 0;
};

/// Runs a host program. `columns` and `parameters` (those of the graph) must be as long as it needs.
inline std::vector<double> runHostProgram(const HostProgram& program, const std::vector<double>& columns,
                                          std::vector<double> parameters) {
  constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
  parameters.insert(parameters.end(), program.constants.begin(), program.constants.end());
  std::vector<double> slots(program.slots, kNothing), outputs(program.outputs, kNothing);
  const auto read = [&](HostOperand operand) {
    switch (operand.base()) {
      case HostOperand::kColumn:
        return columns.empty() ? 0 : columns.at(operand.index());
      case HostOperand::kParameter:
        return parameters.at(operand.index());
      case HostOperand::kSlot:
        return slots.at(operand.index());
      case HostOperand::kOutput:
        return outputs.at(operand.index());
    }
    return kNothing;
  };
  for (const HostInstruction& i : program.instructions) {
    const HandlerKey key = handlerKey(i.handler);
    const int arity = key.op < 0 ? 1 : arityOf(static_cast<Op>(key.op));
    std::array<double, kMaxArity> x{};
    for (int k = 0; k < arity; ++k) {
      requireOfMachine((key.scalar_mask >> k & 1) == (i.operands[k].base() == HostOperand::kParameter ? 1 : 0),
                       "a handler gets the scalars that it is made for");
      x[static_cast<std::size_t>(k)] = read(i.operands[k]);
    }
    (i.destination.base() == HostOperand::kSlot ? slots : outputs).at(i.destination.index()) =
        key.op < 0 ? x[0] : applyRow<double>(static_cast<Op>(key.op), x[0], x[1], x[2]);
  }
  return outputs;
}

}  // namespace srjit
