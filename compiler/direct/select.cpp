#include "compiler/direct/select.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "compiler/direct/loss.h"
#include "compiler/direct/registers.h"
#include "compiler/direct/subroutines.h"
#include "compiler/direct/value.h"

namespace srjit::direct {
namespace {

using sass::Compare;

constexpr unsigned kQuad = 4;

bool isOperator(const Node& node) { return node.kind == Token::Kind::kOp; }

/// The entries of a group in a table, read in order, 16 bytes at a time and the next ones ahead of their use.
class EntryReader {
 public:
  /// Entries are appended to `table`; `base` is the pair that points to the group's first one. An entry takes `width`
  /// registers, 1 or 2.
  void begin(Code& code, ValueId base, unsigned width, std::vector<std::uint32_t>& table) {
    code_ = &code;
    base_ = base;
    width_ = width;
    table_ = &table;
    first_ = table.size();
    load_at_ = code.append({});
  }

  /// The value of a new entry.
  ValueId next(std::uint32_t entry) {
    const std::size_t position = (table_->size() - first_) * width_;
    table_->push_back(entry);
    if (position % kQuad == 0) {
      quad_ = code_->newValues(kQuad);
      code_->place(load_at_, {.opcode = Opcode::kLdg128,
                              .destination = quad_,
                              .sources = {base_, kRz, kRz},
                              .immediate = static_cast<std::uint32_t>(position * sizeof(std::uint32_t))});
      last_load_ = load_at_;
      load_at_ = code_->append({});
    }
    const ValueId value = quad_ + static_cast<ValueId>(position % kQuad);
    if (width_ == 2) code_->bindToLower(value + 1);
    return value;
  }

  /// The operation that loads the last entry.
  std::uint32_t lastLoad() const { return last_load_; }

  /// Pads the last 16 bytes with `filler`.
  void end(std::uint32_t filler) {
    while (table_->size() % kQuad != 0) table_->push_back(filler);
  }

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

}  // namespace

struct Selector::State {
  explicit State(const DirectOptions& options)
      : options_(options),
        arguments_(options.architecture),
        width_(widthOf(options.precision)),
        loss_(options.loss, width_, arguments_),
        subroutines_(options) {}

  void begin(const Dag& dag, OperationNodes* trace) {
    dag_ = &dag;
    trace_ = trace;
    if (nodes_.size() < dag.size()) nodes_.resize(dag.size());
  }

  Sections select(std::span<const std::uint32_t> roots, Keep kept, bool has_subroutines, Code& code,
                  std::vector<std::uint32_t>& numbers, std::vector<std::uint32_t>& outputs) {
    ++group_;
    code.clear();
    if (trace_ != nullptr) trace_->clear();
    Builder builder(code, options_.math, options_.precision);
    code_ = &code;
    builder_ = &builder;
    calls_ = false;
    countUses(roots);
    calls_ = calls_ && has_subroutines;
    subroutines_.begin();
    setLimits(kept);
    emitHead();
    Sections sections{.middle = code.size(), .tail = 0};
    if (used_columns_.size() <= columns_.limit) {
      for (const NodeId id : used_columns_) {
        stateOf(id).value = load(id);
        stateOf(id).is_known = true;
        keep(columns_, id);
      }
    }
    numbers_.begin(code, fixed::kNumbers, width_, numbers);
    if (!options_.loss) outputs_.begin(code, fixed::kOutputs, 1, outputs);
    for (const std::uint32_t root : roots) {
      const Value value = valueOf(dag_->roots()[root]);
      const std::uint32_t first = traceStart();
      if (options_.loss) {
        loss_.add(builder, value);
        const unsigned items = directItems(options_.loss);
        for (unsigned i = 0; i < items; ++i) outputs.push_back(root * items + i);
      } else {
        storePrediction(value, root);
      }
      traceSince(first, dag_->roots()[root]);
    }
    numbers_.end(0);
    while (outputs.size() % kQuad != 0) outputs.push_back(DirectPart::kNoRoot);
    sections.tail = code.size();
    sections.has_branches = calls_ || builder.hasBranches();
    if (options_.loss) loss_.emitTail(code);
    emitLoopEnd();
    if (calls_) {
      sections.subroutines = code.size();
      subroutines_.emit(code);
    }
    return sections;
  }

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

  void countUses(std::span<const std::uint32_t> roots) {
    used_columns_.clear();
    for (const std::uint32_t root : roots) {
      unvisited_.push_back(dag_->roots()[root]);
      while (!unvisited_.empty()) {
        const NodeId id = unvisited_.back();
        unvisited_.pop_back();
        if (++stateOf(id).uses > 1) continue;
        const Node& node = dag_->node(id);
        if (node.kind == Token::Kind::kVariable) used_columns_.push_back(id);
        if (isOperator(node) && subroutines_.has(node.op)) calls_ = true;
        for (const NodeId operand : node.inputs()) unvisited_.push_back(operand);
      }
    }
  }

  // Limits the values that stay live for later uses. The other registers are for the expression being computed, for
  // operations that the scheduler issues early, and for numbers.
  void setLimits(Keep kept) {
    constexpr unsigned kAtWork = 32, kLeast = 4;
    // The steps of long operators are what most registers at work are for.
    constexpr unsigned kAtWorkBesideCalls = 24;
    unsigned taken = 8 + (calls_ ? kAtWorkBesideCalls + kRegistersOfSubroutines : kAtWork);
    if (options_.loss) {
      if (options_.loss->weighted) taken += width_;
      if (countsRows(*options_.loss)) taken += 10;
      if (weighsRows(*options_.loss)) taken += 5 * width_;
      if (isOfMoments(options_.loss->term)) taken += directItems(options_.loss) * width_;
    } else {
      taken += 4 * (width_ - 1);
    }
    const unsigned free = options_.registers > taken ? options_.registers - taken : 0;
    const unsigned left = std::max(free, 2 * kLeast) / width_;
    columns_.nodes.clear();
    shared_.nodes.clear();
    if (kept == Keep::kFew) {
      columns_.limit = shared_.limit = 1;
      return;
    }
    columns_.limit = std::clamp<std::size_t>(used_columns_.size(), 1, left * 2 / 3);
    shared_.limit = left - columns_.limit;
  }

  // All arguments are loaded before the first is used, so that their latencies overlap.
  void emitHead() {
    Code& code = *code_;
    const ValueId rows = arguments_.load(code, offsetof(DirectArguments, rows));
    ValueId row_stride = kRz, columns = kRz, results = kRz;
    if (!used_columns_.empty()) {
      row_stride = arguments_.load(code, offsetof(DirectArguments, row_stride));
      columns = arguments_.loadPair(code, offsetof(DirectArguments, columns));
      column_stride_ = arguments_.load(code, offsetof(DirectArguments, column_stride));
    }
    if (options_.loss) {
      loss_.loadArguments(code);
    } else {
      results = arguments_.loadPair(code, offsetof(DirectArguments, results));
      output_stride_ = arguments_.load(code, offsetof(DirectArguments, output_stride));
    }
    code.append({.opcode = Opcode::kISetPURR,
                 .modifier = sass::modifierOf(Compare::kLess),
                 .predicate = fixed::kExists,
                 .sources = {fixed::kRow, rows, kRz}});
    const ValueId last = code.value(
        {.opcode = Opcode::kIAdd3RIR, .sources = {rows, kRz, kRz}, .immediate = static_cast<std::uint32_t>(-1)});
    const ValueId row =
        code.value({.opcode = Opcode::kSelRR, .condition = fixed::kExists, .sources = {fixed::kRow, last, kRz}});
    if (!used_columns_.empty()) row_address_ = addressOf(code, columns, row, row_stride);
    if (calls_) moveTo(code, fixed::kReturn + 1, kRz);
    if (options_.loss) {
      loss_.loadRow(*builder_, row);
    } else {
      result_address_ = addressTimes(code, results, row, 4 * width_);
    }
  }

  // The next step of the row group, or the first of the warp's next one.
  void emitLoopEnd() {
    constexpr std::uint32_t kStepRows = 32;
    Code& code = *code_;
    const std::uint32_t first = code.size();
    const ValueId rows = arguments_.load(code, offsetof(DirectArguments, rows));
    const ValueId jump = arguments_.load(code, offsetof(DirectArguments, row_jump));
    code.operation(first).synchronized = true;
    const PredicateId is_last = compareWith(code, Compare::kEqual, andWith(code, fixed::kRow, kStepMask), kLastStep);
    code.append({.opcode = Opcode::kIAdd3RIR,
                 .destination = fixed::kRow,
                 .sources = {fixed::kRow, kRz, kRz},
                 .immediate = kStepRows});
    code.append({.opcode = Opcode::kIAdd3RRR,
                 .guard = is_last,
                 .destination = fixed::kRow,
                 .sources = {fixed::kRow, jump, kRz}});
    // A row group of a loss always runs to its fourth step, since that step stores the sums.
    const std::uint32_t together = options_.loss ? static_cast<std::uint32_t>(kGroupRows) : kStepRows;
    const ValueId begin = andWith(code, fixed::kRow, ~(together - 1));
    const PredicateId goes_on = code.truth(
        {.opcode = Opcode::kISetPURR, .modifier = sass::modifierOf(Compare::kLess), .sources = {begin, rows, kRz}});
    code.append({.opcode = Opcode::kBra, .guard = goes_on, .synchronized = true, .immediate = 0});
    code.append({.opcode = Opcode::kExit});
  }

  Value valueOf(NodeId root) {
    if (!isReady(root)) visit(root);
    while (!path_.empty()) {
      Visit& top = path_.back();
      const Node& node = dag_->node(top.id);
      if (top.next < top.end) {
        const std::uint8_t operand = top.order[top.next];
        const NodeId input = node.operands[operand];
        if (isReady(input)) {
          top.operands[operand] = use(input);
          ++top.next;
        } else {
          visit(input);
        }
        continue;
      }
      NodeState& state = stateOf(top.id);
      const std::uint32_t first = traceStart();
      state.value = calls_ && subroutines_.has(node.op) ? subroutines_.call(*builder_, node.op, top.operands)
                                                        : builder_->apply(node.op, top.operands);
      traceSince(first, top.id);
      state.is_known = true;
      path_.pop_back();
    }
    return use(root);
  }

  bool isReady(NodeId id) { return dag_->node(id).kind != Token::Kind::kOp || stateOf(id).is_known; }

  Value use(NodeId id) {
    const Node& node = dag_->node(id);
    switch (node.kind) {
      case Token::Kind::kConstant:
        return builder_->literal(node.value);
      case Token::Kind::kParameter: {
        const Value value{numbers_.next(node.index), *builder_};
        if (trace_ != nullptr) trace_->emplace_back(numbers_.lastLoad(), id);
        return value;
      }
      default:
        break;
    }
    NodeState& state = stateOf(id);
    if (!state.is_known) {
      state.value = load(id);
      state.is_known = true;
    }
    const Value value = state.value;
    state.used = ++clock_;
    if (state.uses > 1) {
      --state.uses;
      if (!state.is_resident) keep(residentsOf(id), id);
    } else {
      state.uses = 0;
      if (state.is_resident) drop(residentsOf(id), id);
      state.is_known = false;
    }
    return value;
  }

  void keep(Residents& residents, NodeId id) {
    if (residents.nodes.size() >= residents.limit) {
      std::size_t oldest = 0;
      for (std::size_t i = 1; i < residents.nodes.size(); ++i) {
        if (nodes_[residents.nodes[i]].used < nodes_[residents.nodes[oldest]].used) oldest = i;
      }
      // The next use rematerializes it from its operands.
      const NodeId leaving = residents.nodes[oldest];
      nodes_[leaving].is_known = nodes_[leaving].is_resident = false;
      for (const NodeId operand : dag_->node(leaving).inputs()) ++stateOf(operand).uses;
      residents.nodes[oldest] = id;
    } else {
      residents.nodes.push_back(id);
    }
    nodes_[id].is_resident = true;
  }

  void drop(Residents& residents, NodeId id) {
    nodes_[id].is_known = nodes_[id].is_resident = false;
    *std::ranges::find(residents.nodes, id) = residents.nodes.back();
    residents.nodes.pop_back();
  }

  Residents& residentsOf(NodeId id) { return dag_->node(id).kind == Token::Kind::kVariable ? columns_ : shared_; }

  // Visits operators before leaves, since leaves need no registers until they are used, and operators in the order of
  // the graph.
  void visit(NodeId id) {
    Visit& visit = path_.emplace_back();
    visit.id = id;
    const auto inputs = dag_->node(id).inputs();
    std::array<NodeId, kMaxArity> ranks;
    for (std::uint8_t i = 0; i < static_cast<std::uint8_t>(inputs.size()); ++i) {
      const NodeId rank = isOperator(dag_->node(inputs[i])) ? inputs[i] : static_cast<NodeId>(dag_->size());
      std::uint8_t at = i;
      for (; at > 0 && rank < ranks[at - 1]; --at) {
        ranks[at] = ranks[at - 1];
        visit.order[at] = visit.order[at - 1];
      }
      ranks[at] = rank;
      visit.order[at] = i;
    }
    visit.end = static_cast<std::uint8_t>(inputs.size());
  }

  Value column(std::uint32_t index) {
    const ValueId address = index == 0 ? row_address_ : addressTimes(*code_, row_address_, column_stride_, index);
    return {loadAt(*code_, address, width_), *builder_};
  }

  Value load(NodeId id) {
    const std::uint32_t first = traceStart();
    const Value value = column(dag_->node(id).index);
    traceSince(first, id);
    return value;
  }

  std::uint32_t traceStart() const { return trace_ != nullptr ? code_->size() : 0; }
  void traceSince(std::uint32_t first, NodeId id) {
    if (trace_ != nullptr) [[unlikely]] {
      for (std::uint32_t at = first; at < code_->size(); ++at) trace_->emplace_back(at, id);
    }
  }

  void storePrediction(const Value& value, std::uint32_t root) {
    const ValueId output = outputs_.next(root);
    const ValueId address = addressOf(*code_, result_address_, output, output_stride_);
    code_->append({.opcode = width_ == 2 ? Opcode::kStg64 : Opcode::kStg,
                   .guard = fixed::kExists,
                   .sources = {address, builder_->plain(value), kRz}});
  }

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

Selector::Selector(const DirectOptions& options) : state_(std::make_unique<State>(options)) {}
Selector::~Selector() = default;

void Selector::begin(const Dag& dag, OperationNodes* trace) { state_->begin(dag, trace); }

Sections Selector::select(std::span<const std::uint32_t> roots, Keep kept, bool has_subroutines, Code& code,
                          std::vector<std::uint32_t>& numbers, std::vector<std::uint32_t>& outputs) {
  return state_->select(roots, kept, has_subroutines, code, numbers, outputs);
}

}  // namespace srjit::direct
