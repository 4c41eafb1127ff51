// Writes programs of the GPU interpreter straight from trees (passes/tree.h): as Encoder does from graphs, but no value
// is shared, so nothing is kept in slots, and one walk from the root down writes all tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/interpreter/encoder.h"
#include "passes/tree.h"

namespace srjit {

/// What the programs of a chunk need, by number: an element is 1 where one of them does.
struct UsedByPrograms {
  std::span<std::uint8_t> operators, columns;
};

/// Encodes one tree after another in the same memory. Not thread-safe; the table must outlive it.
class TreeEncoder {
 public:
  explicit TreeEncoder(const HandlerNumbers& table) : table_(table), pending_(table.depth + kMaxArity) {}

  /// Appends the program that computes the tree as output `output` to code.tokens, and marks what it needs.
  /// code.parameters becomes the nodes of its constants and parameters, in the order of their numbers, which begin at
  /// options.first_parameter; one that occurs twice has two. Every variable has a number in options.columns, or that is
  /// empty; `used` has an element for every operator and number. False if an operator
  /// or a register is missing: Encoder then encodes the tree's graph, or says why there is no program. code.tokens are
  /// as before, but more may be marked in `used` than programs need.
  bool encode(const Tree& tree, std::uint32_t output, const EncodeOptions& options, const UsedByPrograms& used,
              Bytecode& code);

 private:
  struct Nodes;

  HandlerNumbers table_;
  std::vector<PendingValue> pending_;  ///< for different heights of the stack
  std::vector<DeviceToken> tokens_;    ///< of the program, written from the end
  std::vector<NodeId> parameters_;
};

}  // namespace srjit
