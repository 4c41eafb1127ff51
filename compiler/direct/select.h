// From the roots of a graph to the operations of a group's loop. Internal to the direct tier.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "compiler/direct/code.h"
#include "compiler/direct/emitter.h"
#include "compiler/direct/loss.h"
#include "compiler/direct/subroutines.h"
#include "compiler/direct/trace.h"
#include "compiler/direct/value.h"

namespace srjit::direct {

/// The entries of a group in a table, read in order, 16 bytes at a time and the next ones ahead of their use.
class EntryReader {
 public:
  /// Entries are appended to `table`; `base` is the pair that points to the group's first one. An entry takes `width`
  /// registers, 1 or 2.
  void begin(Code& code, ValueId base, unsigned width, std::vector<std::uint32_t>& table);
  /// The value of a new entry.
  ValueId next(std::uint32_t entry);
  /// The operation that loads the last entry.
  std::uint32_t lastLoad() const { return last_load_; }
  /// Pads the last 16 bytes with `filler`.
  void end(std::uint32_t filler);

 private:
  Code* code_ = nullptr;
  ValueId base_ = kRz;
  std::vector<std::uint32_t>* table_ = nullptr;
  std::size_t first_ = 0;
  unsigned width_ = 1;
  std::uint32_t load_at_ = 0;  ///< a Nop that can become the next load
  std::uint32_t last_load_ = 0;
  ValueId quad_ = kRz;
};

/// Selects instructions for one group after another.
class Selector {
 public:
  explicit Selector(const DirectOptions& options);

  /// Sets the graph of the following calls; it must outlive them. `trace`, if given, gets the node of each operation of
  /// the last select().
  void begin(const Dag& dag, OperationNodes* trace = nullptr);
  /// How many values are kept in registers for later uses.
  enum class Keep : std::uint8_t { kMany, kFew };
  /// Selects the loop of `roots`. `code` is cleared. Entries of the group are appended to
  /// the tables.
  /// `has_subroutines`: long operators are subroutines, if the options ask for them.
  Sections select(std::span<const std::uint32_t> roots, Keep kept, bool has_subroutines, Code& code,
                  std::vector<std::uint32_t>& numbers, std::vector<std::uint32_t>& outputs);

 private:
  /// The state of a node in a group; stale unless `group` is the current one.
  struct NodeState {
    std::uint32_t group = 0;
    std::uint32_t uses = 0;  ///< remaining uses
    std::uint32_t used = 0;  ///< time of the last use
    bool is_known = false;
    bool is_resident = false;
    Value value;
  };
  /// Nodes whose values are kept for later uses.
  struct Residents {
    std::vector<NodeId> nodes;
    std::size_t limit = 0;
  };
  /// An operator whose operands are being computed.
  struct Visit {
    NodeId id = 0;
    std::uint8_t next = 0, end = 0;  ///< bounds in `order` of the operands still to be computed
    std::array<std::uint8_t, kMaxArity> order{};
    std::array<Value, kMaxArity> operands{};
  };

  NodeState& stateOf(NodeId id) {
    NodeState& state = nodes_[id];
    if (state.group != group_) state = NodeState{.group = group_, .value = {}};
    return state;
  }
  void countUses(std::span<const std::uint32_t> roots);
  void setLimits(Keep kept);
  void emitHead();
  void emitLoopEnd();
  Value valueOf(NodeId root);
  bool isReady(NodeId id) { return dag_->node(id).kind != Token::Kind::kOp || stateOf(id).is_known; }
  Value use(NodeId id);
  void keep(Residents& residents, NodeId id);
  void drop(Residents& residents, NodeId id);
  Residents& residentsOf(NodeId id) { return dag_->node(id).kind == Token::Kind::kVariable ? columns_ : shared_; }
  void visit(NodeId id);
  Value column(std::uint32_t index);
  Value load(NodeId id);
  std::uint32_t traceStart() const { return trace_ != nullptr ? code_->size() : 0; }
  void traceSince(std::uint32_t first, NodeId id) {
    if (trace_ != nullptr) [[unlikely]] {
      trace_->add(first, code_->size(), id);
    }
  }
  void storePrediction(const Value& value, std::uint32_t root);

  const DirectOptions options_;
  const KernelArguments arguments_;
  const unsigned width_;  ///< registers per number
  const Dag* dag_ = nullptr;
  OperationNodes* trace_ = nullptr;
  std::vector<NodeState> nodes_;
  std::uint32_t group_ = 0;
  std::uint32_t clock_ = 0;
  Residents columns_, shared_;
  std::vector<NodeId> unvisited_, used_columns_;
  std::vector<Visit> path_;
  LossSelector loss_;
  Subroutines subroutines_;

  // Of the current group.
  bool calls_ = false;  ///< some of its operators are subroutines
  Code* code_ = nullptr;
  Builder* builder_ = nullptr;
  EntryReader numbers_, outputs_;
  ValueId row_address_ = kRz, column_stride_ = kRz;
  ValueId result_address_ = kRz, output_stride_ = kRz;  ///< of predictions
};

}  // namespace srjit::direct
