#include "compiler/bytecode.h"

#include <algorithm>
#include <array>
#include <iterator>

#include <fmt/format.h>

#include "compiler/device.h"

namespace srjit {
namespace {

using Kind = Handler::Kind;
constexpr std::uint32_t kNoSlot = ~0u;

/// How one operator node is computed: which operands are on the stack, in which order they are evaluated, and the form.
struct Plan {
  std::array<std::uint8_t, kMaxArity> stack{};  ///< operand positions in the order of evaluation
  std::uint8_t stack_count = 0;
  bool swapped = false;  ///< the first two operands have changed places to fit a mirrored form
  Form form;             ///< empty for a long operator
  unsigned need = 1;     ///< stack registers
};

class Encoder {
 public:
  Encoder(const Dag& dag, const HandlerTable& table, const EncodeOptions& options)
      : dag_(dag),
        table_(table),
        options_(options),
        plans_(dag.size()),
        slot_of_(dag.size(), kNoSlot),
        in_slot_(dag.size()) {}

  Result<Bytecode> run() {
    if (Status checked = check(); !checked) return std::move(checked).error();
    const std::vector<std::uint32_t> uses = dag_.useCounts();
    for (NodeId id = 0; id < dag_.size(); ++id) {
      if (uses[id] == 0 || dag_.node(id).kind != Token::Kind::kOp) continue;
      in_slot_[id] = uses[id] > 1;
      planWithinDepth(id);
    }
    findLastUses(uses);
    for (NodeId id = 0; id < dag_.size(); ++id) {
      if (uses[id] != 0 && in_slot_[id]) {
        if (Status stored = storeInSlot(id); !stored) return std::move(stored).error();
      }
      for (const std::uint32_t root : roots_at_[id]) {
        emitValue(id);
        emit(table_.find(Kind::kEnd, 1), 0, options_.first_root + root);
        height_ = 0;
      }
      release(id);
    }
    return std::move(code_);
  }

 private:
  Status check() const {
    if (table_.handlers().size() > DeviceToken::kHandlerMask + std::size_t{1}) {
      return Error{
          Errc::kUnsupported,
          fmt::format("{} handlers: a token can name {}", table_.handlers().size(), DeviceToken::kHandlerMask + 1),
          {}};
    }
    if (!isAddressable(options_.columns)) {
      return Error{Errc::kUnsupported,
                   fmt::format("{} columns of {} bytes: a token can address {} bytes of shared memory",
                               options_.columns, columnBytes(table_.spec()), DeviceToken::kAddressableBytes),
                   {}};
    }
    for (const Node& node : dag_.nodes()) {
      if (node.kind == Token::Kind::kOp && !table_.has(node.op)) {
        std::vector<std::string_view> names;
        for (const Op op : table_.spec().ops) names.push_back(infoOf(op).name);
        return Error{
            Errc::kInvalid,
            fmt::format("this interpreter cannot run '{}', only {}", infoOf(node.op).name, fmt::join(names, " ")),
            {}};
      }
      if (node.kind == Token::Kind::kVariable && node.index >= options_.columns) {
        return Error{
            Errc::kInvalid, fmt::format("variable x{}, but {} columns are staged", node.index, options_.columns), {}};
      }
      if (node.kind == Token::Kind::kConstant) {
        return Error{Errc::kInvalid, "a constant is left in the graph: run the 'hoist' pass before encoding", {}};
      }
    }
    return okStatus();
  }

  // 's' stack, 'v' column or slot, 'c' parameter.
  char sourceOf(NodeId id) const {
    const Node& node = dag_.node(id);
    if (node.kind == Token::Kind::kVariable || in_slot_[id]) return 'v';
    return node.kind == Token::Kind::kParameter ? 'c' : 's';
  }
  unsigned needOf(NodeId id) const { return sourceOf(id) == 's' ? plans_[id].need : 1; }

  // Sends the hungriest operand to a slot until the node fits the stack.
  void planWithinDepth(NodeId id) {
    while (true) {
      plans_[id] = plan(id);
      if (plans_[id].need <= table_.spec().depth) return;
      const auto inputs = dag_.node(id).inputs();
      NodeId worst = inputs[0];
      for (const NodeId input : inputs) {
        if (sourceOf(worst) != 's' || (sourceOf(input) == 's' && needOf(input) > needOf(worst))) worst = input;
      }
      in_slot_[worst] = true;
    }
  }

  Plan plan(NodeId id) const {
    const Node& node = dag_.node(id);
    const auto arity = static_cast<unsigned>(node.arity());
    if (table_.isLong(node.op)) return planLong(node);
    const bool commutative = (infoOf(node.op).props & kCommutative) != 0;
    Plan best;
    best.need = ~0u;
    unsigned best_pushes = ~0u;
    for (unsigned pushed = 0; pushed < (1u << arity); ++pushed) {  // leaves that go through the stack all the same
      for (const bool swapped : {false, true}) {
        if (swapped && (!commutative || arity < 2)) continue;
        Plan candidate = candidateFor(node, pushed, swapped);
        if (candidate.need == ~0u) continue;
        const auto pushes = static_cast<unsigned>(__builtin_popcount(pushed));
        if (std::tuple(pushes, candidate.need) < std::tuple(best_pushes, best.need)) {
          best = candidate;
          best_pushes = pushes;
        }
      }
    }
    return best;
  }

  NodeId operand(const Node& node, bool swapped, unsigned position) const {
    return node.operands[swapped && position < 2 ? 1 - position : position];
  }

  // The best order of evaluation for which a form exists, or need ~0 if there is none.
  Plan candidateFor(const Node& node, unsigned pushed, bool swapped) const {
    const auto arity = static_cast<unsigned>(node.arity());
    Plan base;
    base.swapped = swapped;
    std::string sources(arity, ' ');
    for (unsigned i = 0; i < arity; ++i) {
      const char source = sourceOf(operand(node, swapped, i));
      const bool push = ((pushed >> i) & 1) != 0;
      if (push && source == 's') return unplanned();
      sources[i] = push ? 's' : source;
      if (sources[i] == 's') base.stack[base.stack_count++] = static_cast<std::uint8_t>(i);
    }
    Plan best = unplanned();
    do {
      std::string form = sources;
      unsigned need = 1;
      for (unsigned k = 0; k < base.stack_count; ++k) {
        form[base.stack[k]] = static_cast<char>('0' + k);
        need = std::max(need, k + needOf(operand(node, swapped, base.stack[k])));
      }
      if (need >= best.need) continue;
      const bool commutative = (infoOf(node.op).props & kCommutative) != 0;
      const auto forms = HandlerTable::forms(node.arity(), commutative);
      if (const auto found = std::ranges::find(forms, form); found != forms.end()) {
        best = base;
        best.form = *found;
        best.need = need;
      }
    } while (std::next_permutation(base.stack.begin(), base.stack.begin() + base.stack_count));
    return best;
  }
  static Plan unplanned() {
    Plan plan;
    plan.need = ~0u;
    return plan;
  }

  Plan planLong(const Node& node) const {
    Plan plan;
    for (unsigned i = 0; i < static_cast<unsigned>(node.arity()); ++i) {
      if (sourceOf(node.operands[i]) == 's') plan.stack[plan.stack_count++] = static_cast<std::uint8_t>(i);
    }
    std::stable_sort(plan.stack.begin(), plan.stack.begin() + plan.stack_count, [&](std::uint8_t a, std::uint8_t b) {
      return needOf(node.operands[a]) > needOf(node.operands[b]);
    });
    for (unsigned k = 0; k < plan.stack_count; ++k) {
      plan.need = std::max(plan.need, k + needOf(node.operands[plan.stack[k]]));
    }
    return plan;
  }

  // A statement is a slot's computation or a root; it uses the slots that its tree reads. Statement numbers are node
  // ids.
  void findLastUses(const std::vector<std::uint32_t>& uses) {
    roots_at_.resize(dag_.size());
    last_use_.resize(dag_.size());
    std::vector<NodeId> statement(dag_.size());  // the statement that computes the node, or reads it if it is a slot
    for (std::size_t root = 0; root < dag_.roots().size(); ++root) {
      roots_at_[dag_.roots()[root]].push_back(static_cast<std::uint32_t>(root));
    }
    for (NodeId id = static_cast<NodeId>(dag_.size()); id-- > 0;) {
      if (uses[id] == 0) continue;
      if (in_slot_[id] || !roots_at_[id].empty()) statement[id] = id;
      last_use_[id] = std::max(last_use_[id], id);
      for (const NodeId input : dag_.node(id).inputs()) {
        statement[input] = statement[id];
        last_use_[input] = std::max(last_use_[input], statement[id]);
      }
    }
    released_at_.resize(dag_.size());
    for (NodeId id = 0; id < dag_.size(); ++id) {
      if (uses[id] != 0 && in_slot_[id]) released_at_[last_use_[id]].push_back(id);
    }
  }

  Status storeInSlot(NodeId id) {
    emitNode(id);
    std::uint32_t slot = code_.slots;
    if (free_slots_.empty()) {
      if (slot >= options_.max_slots || !isAddressable(std::uint64_t{options_.columns} + slot + 1)) {
        return Error{Errc::kUnsupported,
                     fmt::format("the program needs more than {} slots for shared and deep values", slot),
                     {}};
      }
      ++code_.slots;
    } else {
      slot = free_slots_.back();
      free_slots_.pop_back();
    }
    slot_of_[id] = slot;
    emit(table_.find(Kind::kStoreSlot, 1), columnOffset(options_.columns + slot), 0);
    height_ = 0;
    return okStatus();
  }

  void release(NodeId statement) {
    for (const NodeId id : released_at_[statement]) free_slots_.push_back(slot_of_[id]);
  }

  // Whether that many columns and slots lie within what a token can address.
  bool isAddressable(std::uint64_t columns) const {
    return columns * columnBytes(table_.spec()) <= DeviceToken::kAddressableBytes;
  }
  std::uint32_t columnOffset(std::uint32_t column) const { return column * columnBytes(table_.spec()); }
  std::uint32_t columnOf(NodeId id) const {
    return columnOffset(in_slot_[id] ? options_.columns + slot_of_[id] : dag_.node(id).index);
  }
  std::uint32_t parameterOf(NodeId id) const { return options_.first_parameter + dag_.node(id).index; }

  void emit(int handler, std::uint32_t column, std::uint32_t argument, bool parameter = false) {
    code_.tokens.push_back({static_cast<std::uint32_t>(handler) | (column << DeviceToken::kColumnShift) |
                                (parameter ? DeviceToken::kParameterFlag : 0),
                            argument});
  }

  // Pushes the value of a root or operand, wherever it is.
  void emitValue(NodeId id) {
    switch (sourceOf(id)) {
      case 'v':
        emit(table_.find(Kind::kPushColumn, height_++), columnOf(id), 0);
        break;
      case 'c':
        emit(table_.find(Kind::kPushParameter, height_++), 0, parameterOf(id), true);
        break;
      default:
        emitNode(id);
    }
  }

  // Emits the tree of an operator node down to leaves and slots; leaves its value on the stack. Not recursive.
  void emitNode(NodeId root) {
    struct Frame {
      NodeId node;
      unsigned next;  // the next stack operand
    };
    std::vector<Frame> frames{{root, 0}};
    while (!frames.empty()) {
      Frame& frame = frames.back();
      const Node& node = dag_.node(frame.node);
      const Plan& plan = plans_[frame.node];
      if (frame.next < plan.stack_count) {
        const NodeId input = operand(node, plan.swapped, plan.stack[frame.next++]);
        if (sourceOf(input) == 's') {
          frames.push_back({input, 0});
        } else {
          emitValue(input);
        }
        continue;
      }
      if (table_.isLong(node.op)) {
        emitLong(node, plan);
      } else {
        emitShort(node, plan);
      }
      frames.pop_back();
    }
  }

  void emitShort(const Node& node, const Plan& plan) {
    std::array<std::uint32_t, 2> columns{};
    std::size_t column_count = 0;
    std::uint32_t argument = 0;
    bool parameter = false;
    for (unsigned i = 0; i < plan.form.size(); ++i) {
      const NodeId input = operand(node, plan.swapped, i);
      if (plan.form[i] == 'v') columns[column_count++] = columnOf(input);
      if (plan.form[i] == 'c') {
        argument = parameterOf(input);
        parameter = true;
      }
    }
    if (column_count == 2) argument = columns[1];
    emit(table_.findApply(node.op, plan.form, height_), columns[0], argument, parameter);
    height_ = height_ - plan.stack_count + 1;
  }

  void emitLong(const Node& node, const Plan& plan) {
    for (unsigned k = plan.stack_count; k-- > 0;) {
      emit(table_.find(Kind::kArgumentStack, height_--, plan.stack[k]), 0, 0);
    }
    for (unsigned i = 0; i < static_cast<unsigned>(node.arity()); ++i) {
      const char source = sourceOf(node.operands[i]);
      if (source == 'v') emit(table_.find(Kind::kArgumentColumn, 0, i), columnOf(node.operands[i]), 0);
      if (source == 'c') emit(table_.find(Kind::kArgumentParameter, 0, i), 0, parameterOf(node.operands[i]), true);
    }
    emit(table_.findBody(node.op), 0, 0);
    emit(table_.find(Kind::kPushResult, height_++), 0, 0);
  }

  const Dag& dag_;
  const HandlerTable& table_;
  const EncodeOptions& options_;
  Bytecode code_;
  unsigned height_ = 0;
  std::vector<Plan> plans_;
  std::vector<std::uint32_t> slot_of_;
  std::vector<bool> in_slot_;
  std::vector<NodeId> last_use_;
  std::vector<std::vector<std::uint32_t>> roots_at_;
  std::vector<std::vector<NodeId>> released_at_;
  std::vector<std::uint32_t> free_slots_;
};

}  // namespace

unsigned columnBytes(const InterpreterSpec& spec) {
  return kBlockThreads * spec.rows_per_thread * static_cast<unsigned>(bytesOf(spec.precision));
}

Result<Bytecode> encode(const Dag& dag, const HandlerTable& table, const EncodeOptions& options) {
  return Encoder(dag, table, options).run();
}

std::string printBytecode(const Bytecode& code, const HandlerTable& table, const EncodeOptions& options) {
  const unsigned bytes = columnBytes(table.spec());
  const auto place = [&](std::uint32_t offset) {
    const std::uint32_t column = offset / bytes;
    return column < options.columns ? fmt::format("x{}", column) : fmt::format("slot{}", column - options.columns);
  };
  std::string text;
  for (const DeviceToken& token : code.tokens) {
    const Handler& handler = table.handlers()[token.code & DeviceToken::kHandlerMask];
    const std::string column = place((token.code & ~DeviceToken::kParameterFlag) >> DeviceToken::kColumnShift);
    const std::string parameter = fmt::format("parameter{}", token.argument);
    std::string line;
    switch (handler.kind) {
      case Kind::kPushColumn:
        line = "push " + column;
        break;
      case Kind::kPushParameter:
        line = "push " + parameter;
        break;
      case Kind::kApply: {
        line = std::string(infoOf(handler.op).name);
        bool second = false;
        for (const char source : handler.form) {
          line += ' ';
          if (source == 'v') {
            line += second ? place(token.argument) : column;
            second = true;
          } else if (source == 'c') {
            line += parameter;
          } else {
            line += fmt::format("s{}", source - '0');
          }
        }
        break;
      }
      case Kind::kArgumentStack:
        line = fmt::format("argument{} s0", handler.argument);
        break;
      case Kind::kArgumentColumn:
        line = fmt::format("argument{} {}", handler.argument, column);
        break;
      case Kind::kArgumentParameter:
        line = fmt::format("argument{} {}", handler.argument, parameter);
        break;
      case Kind::kBody:
        line = fmt::format("call {}", infoOf(handler.op).name);
        break;
      case Kind::kPushResult:
        line = "push result";
        break;
      case Kind::kStoreSlot:
        line = "store " + column;
        break;
      case Kind::kEnd:
        line = fmt::format("end root{}", token.argument);
        break;
      case Kind::kHalt:
        line = "halt";
        break;
    }
    fmt::format_to(std::back_inserter(text), "{:4}  {}\n", handler.height, line);
  }
  return text;
}

}  // namespace srjit
