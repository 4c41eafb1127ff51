// Models of the machines of bytecode and host programs, for one row, computed by the rows of ops.def. They throw if a
// program violates a rule of its machine.
#pragma once

#include <array>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "compiler/host/program.h"
#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/handler_table.h"
#include "ir/rows.h"

namespace srjit {

inline void requireOfMachine(bool holds, const char* rule) {
  if (!holds) throw std::logic_error(rule);
}

/// The machine that the GPU's interpreter kernel implements, with one row. Unwritten registers hold NaN.
template <class T>
class BytecodeMachine {
 public:
  /// `columns` are the staged columns, `parameters` those that tokens index.
  BytecodeMachine(const HandlerTable& table, std::vector<T> columns, std::vector<T> parameters)
      : table_(table),
        columns_(columns.size()),
        shared_(std::move(columns)),
        parameters_(std::move(parameters)),
        stack_(table.spec().depth, kNothing),
        arguments_(kMaxArity, kNothing) {}

  /// Runs programs one after another; results go to outputs[number].
  void run(std::span<const DeviceToken> tokens, std::size_t slots, std::span<T> outputs) {
    shared_.resize(columns_ + slots, kNothing);
    outputs_ = outputs;
    for (const DeviceToken& token : tokens) step(token);
    requireOfMachine(height_ == 0, "the stack is empty at the end");
  }

  std::vector<T> run(const Bytecode& code, std::size_t roots) {
    std::vector<T> outputs(roots, kNothing);
    run(code.tokens, code.slots, outputs);
    return outputs;
  }

 private:
  static constexpr T kNothing = std::numeric_limits<T>::quiet_NaN();

  static bool isMarked(const DeviceToken& token, std::uint32_t kind) {
    return token.code >> DeviceToken::kArgumentShift == kind;
  }
  T& secondColumn(const DeviceToken& token) {
    requireOfMachine(isMarked(token, DeviceToken::kColumn), "a second column is marked as one");
    return shared_.at(token.argument);
  }
  T parameter(const DeviceToken& token) const {
    requireOfMachine(isMarked(token, DeviceToken::kParameter), "a parameter is marked as one");
    return parameters_.at(token.argument);
  }

  void step(const DeviceToken& token) {
    const Handler& handler = table_.handlers()[token.code & DeviceToken::kHandlerMask];
    const std::uint32_t column = token.code >> DeviceToken::kColumnShift & DeviceToken::kColumnMask;
    const bool fixed_height = handler.kind != Handler::Kind::kBody && handler.kind != Handler::Kind::kArgumentColumn &&
                              handler.kind != Handler::Kind::kArgumentParameter;
    requireOfMachine(!fixed_height || handler.height == height_, "a handler finds its stack height");
    switch (handler.kind) {
      case Handler::Kind::kPushColumn:
        stack_.at(height_++) = shared_.at(column);
        break;
      case Handler::Kind::kPushParameter:
        stack_.at(height_++) = parameter(token);
        break;
      case Handler::Kind::kApply:
        apply(handler, token, column);
        break;
      case Handler::Kind::kArgumentStack:
        argument(handler.argument) = stack_.at(--height_);
        break;
      case Handler::Kind::kArgumentColumn:
        argument(handler.argument) = shared_.at(column);
        break;
      case Handler::Kind::kArgumentParameter:
        argument(handler.argument) = parameter(token);
        break;
      case Handler::Kind::kBody:
        argument(0) = applyRow<T>(handler.op, argument(0), argument(1), argument(2));
        break;
      case Handler::Kind::kPushResult:
        stack_.at(height_++) = arguments_[0];
        break;
      case Handler::Kind::kStoreSlot:
        requireOfMachine(column >= columns_, "columns are not written");
        shared_.at(column) = stack_.at(--height_);
        break;
      case Handler::Kind::kEnd:
        requireOfMachine(isMarked(token, DeviceToken::kNumber), "an output's number is marked as one");
        requireOfMachine(token.argument < outputs_.size(), "outputs exist");
        outputs_[token.argument] = stack_.at(--height_);
        break;
      case Handler::Kind::kKeepSum:
        kept_.at(handler.argument) = stack_.at(--height_);
        break;
      case Handler::Kind::kKeepProductSum:
        kept_.at(handler.argument) = shared_.at(column) * secondColumn(token);
        break;
      case Handler::Kind::kStoreSums:
        requireOfMachine(isMarked(token, DeviceToken::kNumber), "an output's number is marked as one");
        requireOfMachine(token.argument + std::size_t{handler.argument} < outputs_.size(), "outputs exist");
        for (std::size_t sum = 0; sum <= handler.argument; ++sum) {
          outputs_[token.argument + sum] = std::exchange(kept_.at(sum), kNothing);
        }
        break;
      case Handler::Kind::kHalt:
      case Handler::Kind::kNextWindow:
        requireOfMachine(false, "programs do not halt or move their window, the kernel does");
    }
  }

  // The second argument register is the top of the stack.
  T& argument(unsigned i) { return i == 1 ? stack_.back() : arguments_.at(i); }

  void apply(const Handler& handler, const DeviceToken& token, std::uint32_t column) {
    unsigned popped = 0;
    for (const char source : handler.operands) popped += source <= '2' ? 1 : 0;
    const unsigned base = height_ - popped;
    std::array<T, kMaxArity> operands{};
    bool second = false;
    for (std::size_t i = 0; i < handler.operands.size(); ++i) {
      const char source = handler.operands[i];
      if (source == 'v') {
        operands[i] = second ? secondColumn(token) : shared_.at(column);
        second = true;
      } else {
        operands[i] = source == 'c' ? parameter(token) : stack_.at(base + static_cast<unsigned>(source - '0'));
      }
    }
    stack_.at(base) = applyRow<T>(handler.op, operands[0], operands[1], operands[2]);
    height_ = base + 1;
  }

  const HandlerTable& table_;
  std::size_t columns_;
  std::vector<T> shared_, parameters_, stack_, arguments_;
  std::vector<T> kept_ = std::vector<T>(kMostKeptSums, kNothing);  ///< of one row, the value itself
  std::span<T> outputs_;
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
