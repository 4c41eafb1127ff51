// From the roots of a graph to the operations of a group's loop. Internal to the direct tier.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "compiler/direct/code.h"
#include "compiler/direct/emitter.h"
#include "passes/dag.h"

namespace srjit::direct {

/// Pairs of an operation of a group and a node that it belongs to; an operation may have several nodes, or none.
using OperationNodes = std::vector<std::pair<std::uint32_t, NodeId>>;

/// Selects instructions for one group after another.
class Selector {
 public:
  explicit Selector(const DirectOptions& options);
  ~Selector();

  /// Sets the graph of the following calls; it must outlive them. `trace`, if given, gets the node of each operation of
  /// the last select().
  void begin(const Dag& dag, OperationNodes* trace = nullptr);
  /// How many values stay in registers for later uses.
  enum class Keep : std::uint8_t { kMany, kFew };
  /// Selects the loop of `roots`. `code` is cleared. Entries of the group are appended to the tables.
  /// `has_subroutines`: long operators are subroutines, if the options ask for them.
  Sections select(std::span<const std::uint32_t> roots, Keep kept, bool has_subroutines, Code& code,
                  std::vector<std::uint32_t>& numbers, std::vector<std::uint32_t>& outputs);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace srjit::direct
