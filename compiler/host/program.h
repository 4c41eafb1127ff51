// A graph as a program for the host's interpreter: a register machine whose registers are blocks of rows.
//
// Columns are read in place and parameters are scalar operands, so leaves cost no instruction. An intermediate value
// lives in a slot; slots are allocated by linear scan over the graph's order (M. Poletto, V. Sarkar, "Linear Scan
// Register Allocation", ACM TOPLAS 21(5), 1999) and may be overwritten by the instruction that uses them last. Roots
// are computed directly into outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/host/jit.h"
#include "ir/error.h"
#include "passes/dag.h"
#include "passes/tree.h"

namespace srjit {

/// Location of an operand: item `index()` of one of four arrays, each with a base address and a stride that the caller
/// knows. Resolving it is one multiplication and one addition.
class HostOperand {
 public:
  enum Base : std::uint32_t {
    kColumn,     ///< a block of rows of a column
    kParameter,  ///< one value of the parameter table
    kSlot,       ///< a block of rows of scratch memory
    kOutput,     ///< a block of rows of a root
  };
  static constexpr std::uint32_t kMaxIndex = (1u << 30) - 1;

  HostOperand() = default;
  HostOperand(Base base, std::uint32_t index) : bits_(base << 30 | index) {}
  Base base() const noexcept { return static_cast<Base>(bits_ >> 30); }
  std::uint32_t index() const noexcept { return bits_ & kMaxIndex; }
  friend bool operator==(HostOperand, HostOperand) = default;

 private:
  std::uint32_t bits_ = 0;
};

/// Every possible handler has a number below handlerNumbers(), the index into a caller's table of handlers.
inline constexpr std::size_t kHandlerMasks = std::size_t{1} << kMaxArity;
std::uint32_t handlerNumber(HandlerKey key) noexcept;
HandlerKey handlerKey(std::uint32_t number) noexcept;
std::uint32_t handlerNumbers() noexcept;

/// destination = handler(operands). Operands past the arity are HostOperand().
struct HostInstruction {
  std::uint32_t handler;  ///< a handlerNumber()
  HostOperand destination;
  HostOperand operands[kMaxArity];
};

struct HostProgram {
  std::vector<HostInstruction> instructions;
  std::uint32_t slots = 0;        ///< blocks of scratch memory needed
  std::uint32_t outputs = 0;      ///< one for every root
  std::vector<double> constants;  ///< the parameter table is Dag::parameters() followed by these
};

/// The program of all roots of `dag`. Nodes are computed in ascending order, so schedule the graph first; nodes that no
/// root needs are left out. Linear in the nodes; not recursive. Errors: kInvalid for more columns, roots, or nodes and
/// parameters together, than HostOperand::kMaxIndex.
/// The node of each instruction is appended to `computed`.
Result<HostProgram> encodeForHost(const Dag& dag, std::vector<NodeId>* computed = nullptr);

/// Encodes trees, one after another in the same memory. Operators are computed in the order of their tokens, so slots
/// are a stack. Not thread-safe.
class HostTreeEncoder {
 public:
  /// Appends the program of the tree, whose value is output 0. `parameters` become the nodes of its constants and
  /// parameters, in the order of the parameter table; one that occurs twice has two entries. Gives the slots that it
  /// needs.
  std::uint32_t encode(const Tree& tree, std::vector<HostInstruction>& instructions, std::vector<NodeId>& parameters);

 private:
  std::vector<std::uint32_t> slots_;  ///< by node, of operators
};

/// A line per instruction, e.g. `slot0 = mul x0 parameter1`: x<column>, parameter<index in Dag::parameters()> with its
/// value in brackets if it is a literal, a constant as the shortest number that reads back, slot<number> of scratch
/// memory, root<number>. `move` copies. `program` must be encodeForHost(dag)'s.
std::string printProgram(const HostProgram& program, const Dag& dag);

}  // namespace srjit
