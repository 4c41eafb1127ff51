// One worker of the kernels of the front end: a thread of the device, or of the host where a test models one.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/interpreter/front_end/arguments.h"
#include "passes/expression_optimizer.h"

namespace srjit {

/// Encodes one expression after another in the same memory.
class DeviceWorker {
 public:
  explicit DeviceWorker(const EncodeArguments& arguments);

  /// Writes the program of expression `e` and its size. Size 0: the expression is too long, the program has no room, or
  /// the interpreter has none for it.
  void encode(std::uint32_t e);

 private:
  /// Gives EncodedSize::patches.
  std::optional<std::uint8_t> write(std::uint32_t e);

  const EncodeArguments& arguments_;
  ExpressionOptimizer optimizer_;
  Encoder encoder_;
  EncodeOptions options_;
  Bytecode code_;
};

/// Writes the linked program of expression `e`.
void linkProgram(const LinkArguments& arguments, std::uint32_t e);

}  // namespace srjit
