// What the lanes of a group do with an expression: threads of the device, or of the host where a test models them. What
// a lane tells others is in shared memory, and constants among the numbers of the population, in global memory. A step
// of all lanes is done before the next one begins; within a step, no lane reads what another one writes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "compiler/interpreter/lanes/arguments.h"
#include "compiler/interpreter/tree_writing.h"
#include "passes/tree_reading.h"

namespace srjit {

/// An expression in shared memory, by the number of a token. Of a prefix expression tokens are numbered from the last
/// one on, so that operands come before their operator there, too, but the first one comes last.
class TreeNodes {
 public:
  /// Of treeWords().
  TreeNodes(const TreeArguments& arguments, std::uint32_t* words)
      : arguments_(arguments), nodes_(words), sizes_(words + arguments.most_tokens) {}

  void take(std::uint64_t begin, std::uint32_t tokens, std::uint32_t first_number) {
    begin_ = begin;
    tokens_ = tokens;
    first_number_ = first_number;
    is_prefix_ = arguments_.notation == Notation::kPrefix;
  }
  std::uint32_t tokens() const { return tokens_; }
  std::uint32_t root() const { return tokens_ - 1; }

  // Of a node, one word: the first token of the subtree; an operator, or the place of a number among those of the
  // expression; the place of the value, or the operands of an operator that is not read; what the node is; its slot.
  // Of an operator another word: the tokens of its subtree's program without operands in slots; then its place in the
  // program.
  enum : std::uint32_t {
    kSubjectShift = 8,
    kPlaceShift = 16,
    kPlaceMask = 0xf,
    kConstant = 1U << 20,
    kOperator = 1U << 21,
    kFused = 1U << 22,        ///< of the factors of a product, which is the operand that ends before it,
    kFusedBefore = 1U << 23,  ///< or the other one
    kInSlot = 1U << 24,
    kUnread = 1U << 25,
    kSlotShift = 26,
    kByte = 0xff,
    // Places: where the tokens end, the height of the stack before, and whether they are to be written.
    kHeightShift = 16,
    kEndMask = 0xffff,
    kPlaced = 1U << 31,
  };
  static_assert(kMostDeviceTokens <= kByte + 1 && kMostOps <= kByte + 1 && kLaneSlots <= 1U << (32 - kSlotShift) &&
                roomForPrograms(kMostDeviceTokens, 1) <= kEndMask);

  std::int32_t code(std::uint32_t i) const { return arguments_.codes[positionOf(i)]; }
  std::uint32_t begin(std::uint32_t i) const { return nodes_[i] & kByte; }
  bool isConstant(std::uint32_t i) const { return (nodes_[i] & kConstant) != 0; }
  bool isOperator(std::uint32_t i) const { return (nodes_[i] & kOperator) != 0; }
  bool isInSlot(std::uint32_t i) const { return (nodes_[i] & kInSlot) != 0; }
  bool isRead(std::uint32_t i) const { return (nodes_[i] & kUnread) == 0; }
  Op op(std::uint32_t i) const { return static_cast<Op>(subject(i)); }
  OperandPlace place(std::uint32_t i) const { return static_cast<OperandPlace>(nodes_[i] >> kPlaceShift & kPlaceMask); }
  /// Before its place is set.
  std::uint32_t size(std::uint32_t i) const { return sizes_[i]; }

  Operands operands(std::uint32_t i) const {
    const std::uint32_t last = i - 1;
    if ((nodes_[i] & (kFused | kFusedBefore)) != 0) {
      const std::uint32_t before = begin(last) - 1;
      const bool is_last = (nodes_[i] & kFused) != 0;
      const auto [a, b, none] = operands(is_last ? last : before, 2);
      return {a, b, is_last ? before : last};
    }
    return operands(i, arityOf(op(i)));
  }

  double value(std::uint32_t i) const {
    const std::uint64_t number = std::uint64_t{first_number_} + subject(i);
    return arguments_.precision == Precision::kF32 ? double{reinterpret_cast<const float*>(arguments_.numbers)[number]}
                                                   : reinterpret_cast<const double*>(arguments_.numbers)[number];
  }
  double written(std::uint32_t i) const {
    const std::uint64_t position = positionOf(i);
    return roundTo(arguments_.precision, arguments_.values_type == Precision::kF32
                                             ? double{reinterpret_cast<const float*>(arguments_.values)[position]}
                                             : reinterpret_cast<const double*>(arguments_.values)[position]);
  }
  std::array<std::uint32_t, 2> order(std::uint32_t first, std::uint32_t last) const {
    return is_prefix_ ? std::array{last, first} : std::array{first, last};
  }

  // While the expression is read. A token as it is:
  void setToken(std::uint32_t i) {
    const std::int32_t code = this->code(i);
    nodes_[i] = i;
    if (code > 0) {
      const Op op = kOpsByCode[static_cast<std::size_t>(code)];
      nodes_[i] = kUnread | static_cast<std::uint32_t>(op) << kSubjectShift |
                  static_cast<std::uint32_t>(arityOf(op)) << kPlaceShift;
    } else if (code == kConstantCode || isParameterCode(code)) {
      putNumber(i, i, written(i), code == kConstantCode ? std::uint32_t{kConstant} : 0U);
    }
  }
  /// Whether the operands of an operator that is not read were read. Each ends before the next one begins.
  bool canRead(std::uint32_t i) const {
    std::uint32_t operand = i - 1;
    for (std::uint32_t more = nodes_[i] >> kPlaceShift & kPlaceMask; isRead(operand); operand = begin(operand) - 1) {
      if (--more == 0) return true;
    }
    return false;
  }
  void setBegin(std::uint32_t i, std::uint32_t begin) { nodes_[i] = begin; }
  void setConstant(std::uint32_t i, std::uint32_t from, double value) { putNumber(i, subject(from), value, kConstant); }
  void setOperator(std::uint32_t i, Op op, const Operands& operands, int arity) {
    const HandlerNumbers& table = arguments_.handlers;
    const OperandPlan* plan = &planOf(op, operands);
    while (plan->need > table.depth) {
      moveToSlot(op, operands, arity);
      plan = &planOf(op, operands);
    }
    std::uint32_t size = plan->tokens;
    for (unsigned k = 0; k < plan->stack_count; ++k) {
      const std::uint32_t operand = operands[plan->stack[k]];
      if (isOnStack(place(operand))) size += sizes_[operand];  // others are among the operator's tokens
    }
    sizes_[i] = size;
    nodes_[i] = begin(i) | static_cast<std::uint32_t>(op) << kSubjectShift |
                std::uint32_t{onStack(plan->need)} << kPlaceShift | kOperator;
  }
  void setFused(std::uint32_t i, Op op, std::uint32_t product, std::uint32_t other) {
    const Operands factors = operands(product);
    nodes_[product] &= ~kOperator;  // it is not written
    setOperator(i, op, {factors[0], factors[1], other}, 3);
    nodes_[i] |= product == i - 1 ? kFused : kFusedBefore;
  }

  // While the program is written:
  void setSlot(std::uint32_t i, std::uint32_t slot) { nodes_[i] |= slot << kSlotShift; }
  void setPlace(std::uint32_t i, std::uint32_t end, std::uint32_t height) {
    sizes_[i] = kPlaced | height << kHeightShift | end;
  }
  bool isPlaced(std::uint32_t i) const { return (sizes_[i] & kPlaced) != 0; }
  std::uint32_t end(std::uint32_t i) const { return sizes_[i] & kEndMask; }
  std::uint32_t height(std::uint32_t i) const { return (sizes_[i] & ~kPlaced) >> kHeightShift; }
  void noteOperator(Op) {}
  std::uint32_t parameterOf(std::uint32_t i) const { return first_number_ + subject(i); }
  std::uint32_t slotColumn(std::uint32_t i) const { return arguments_.columns + (nodes_[i] >> kSlotShift); }
  std::uint32_t columnOf(std::uint32_t i) const { return isInSlot(i) ? slotColumn(i) : indexOfCode(code(i)); }

 private:
  std::uint64_t positionOf(std::uint32_t i) const { return begin_ + (is_prefix_ ? tokens_ - 1 - i : i); }
  std::uint32_t subject(std::uint32_t i) const { return nodes_[i] >> kSubjectShift & kByte; }

  Operands operands(std::uint32_t i, int arity) const {
    const std::uint32_t last = i - 1;
    if (arity == 1) return {last, 0, 0};
    const std::uint32_t before = begin(last) - 1;
    if (arity == 2) {
      const auto [x, y] = order(before, last);
      return {x, y, 0};
    }
    const auto [x, z] = order(begin(before) - 1, last);
    return {x, before, z};
  }

  const OperandPlan& planOf(Op op, const Operands& of) const {
    return arguments_.handlers.planOf(op, place(of[0]), place(of[1]), place(of[2]));
  }

  void putNumber(std::uint32_t i, std::uint32_t number, double value, std::uint32_t flag) {
    const std::uint64_t to = std::uint64_t{first_number_} + number;
    if (arguments_.precision == Precision::kF32) {
      reinterpret_cast<float*>(arguments_.numbers)[to] = static_cast<float>(value);
    } else {
      reinterpret_cast<double*>(arguments_.numbers)[to] = value;
    }
    nodes_[i] = begin(i) | number << kSubjectShift | std::uint32_t{kInParameter} << kPlaceShift | flag;
  }

  // The longest operand without which there are registers enough; if there is none, the longest that needs most.
  void moveToSlot(Op op, const Operands& operands, int arity) {
    std::uint32_t most = 0, most_tokens = 0;
    unsigned most_need = 0;
    for (int k = 0; k < arity; ++k) {
      const std::uint32_t operand = operands[static_cast<std::size_t>(k)], word = nodes_[operand];
      if (!isOnStack(place(operand))) continue;
      nodes_[operand] = word & ~(kPlaceMask << kPlaceShift);
      const bool is_enough = planOf(op, operands).need <= arguments_.handlers.depth;
      nodes_[operand] = word;
      const unsigned need = is_enough ? kPlaceMask + 1U : needOf(place(operand));
      const std::uint32_t tokens = operand - begin(operand) + 1;
      if (need < most_need || (need == most_need && tokens <= most_tokens)) continue;
      most = operand;
      most_tokens = tokens;
      most_need = need;
    }
    nodes_[most] = (nodes_[most] & ~(kPlaceMask << kPlaceShift)) | std::uint32_t{kInColumn} << kPlaceShift | kInSlot;
  }

  const TreeArguments& arguments_;
  std::uint32_t *nodes_, *sizes_;
  std::uint64_t begin_ = 0;
  std::uint32_t tokens_ = 0, first_number_ = 0;
  bool is_prefix_ = false;
};

/// A lane, and what it knows of its expression between two steps.
class TreeLane {
 public:
  /// What the lanes of a group share.
  struct Shared {
    std::uint32_t* words;          ///< treeWords()
    std::uint32_t *sums, *faults;  ///< one for each lane
  };
  /// Lane `lane` of group `group` of a block.
  TreeLane(const TreeArguments& arguments, std::uint32_t group, std::uint32_t lane, const Shared& shared)
      : arguments_(arguments), group_(group), lane_(lane), shared_(shared), nodes_(arguments, shared.words) {}

  std::uint32_t group() const { return group_; }
  bool isLeader() const { return lane_ == 0; }

  // Steps of the check of expression `e`, if there is one. Nothing outside of the arrays is read.

  [[gnu::always_inline]] void checkTokens(std::uint32_t e) {
    if (e < arguments_.expressions) extent_ = extentOf(e);
    const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(extent_.tokens, arguments_.most_tokens));
    most_ = extent_.is_good && (!extent_.is_exact || most == extent_.tokens) ? most : 0;
    const std::uint32_t part = (most_ + arguments_.lanes - 1) / arguments_.lanes;
    first_ = std::min(lane_ * part, most_);
    last_ = std::min(first_ + part, most_);
    std::uint32_t sum = 0;
    for (std::uint32_t i = first_; i < last_; ++i) {
      std::uint32_t arity = 0;
      const DeviceFault fault = faultOf(arguments_.codes[extent_.begin + i], arity);
      shared_.words[i] = arity | static_cast<std::uint32_t>(fault) << kFaultShift;
      sum += 1 - arity;
    }
    shared_.sums[lane_] = sum;
  }
  [[gnu::always_inline]] void findFault() {
    const bool is_prefix = arguments_.notation == Notation::kPrefix;
    // How many there are, or, of a prefix expression, that are wanted.
    std::uint32_t values = is_prefix ? 1 : 0;
    for (std::uint32_t l = 0; l < lane_; ++l) values += is_prefix ? 0 - shared_.sums[l] : shared_.sums[l];
    std::uint32_t found = kNothing;
    for (std::uint32_t i = first_; i < last_ && found == kNothing; ++i) {
      const std::uint32_t word = shared_.words[i], arity = word & kLowByte;
      if (word > kLowByte) {
        found = i << kFaultShift | word >> kFaultShift;
      } else if (!is_prefix && static_cast<std::int32_t>(values) < static_cast<std::int32_t>(arity)) {
        found = i << kFaultShift | static_cast<std::uint32_t>(DeviceFault::kOperands);
      }
      values += is_prefix ? arity - 1 : 1 - arity;
      if (is_prefix && values == 0 && found == kNothing) found = i << kFaultShift;
    }
    shared_.faults[lane_] = found;
  }
  /// Its number of tokens; 0 with a fault.
  [[gnu::always_inline]] std::uint32_t judge(DeviceFault& fault) const {
    fault = DeviceFault::kLength;
    if (most_ == 0) return 0;
    std::uint32_t values = 0, found = kNothing;
    for (std::uint32_t l = 0; l < arguments_.lanes; ++l) {
      values += shared_.sums[l];
      found = std::min(found, shared_.faults[l]);
    }
    const bool is_prefix = arguments_.notation == Notation::kPrefix;
    if (found != kNothing) {
      const std::uint32_t tokens = (found >> kFaultShift) + 1;
      fault = static_cast<DeviceFault>(found & kLowByte);
      if (fault == DeviceFault::kNone && extent_.is_exact && tokens < most_) fault = DeviceFault::kRest;
      return fault == DeviceFault::kNone ? tokens : 0;
    }
    if (is_prefix) {
      fault = most_ < extent_.tokens ? DeviceFault::kLength : DeviceFault::kOperands;
    } else {
      fault = values == 1 ? DeviceFault::kNone : DeviceFault::kRest;
    }
    return fault == DeviceFault::kNone ? most_ : 0;
  }

  // Steps that read expression `e`, of as many tokens as were found; 0: none. `first_number` is where its numbers go.

  [[gnu::always_inline]] void readTokens(std::uint32_t e, std::uint32_t tokens, std::uint32_t first_number) {
    expression_ = e;
    nodes_.take(tokens > 0 ? extentOf(e).begin : 0, tokens, first_number);
    for (std::uint32_t i = lane_; i < tokens; i += arguments_.lanes) nodes_.setToken(i);
    next_ = lane_;
  }
  /// Whether an operator of this lane is still to be read.
  [[gnu::always_inline]] bool findOperator() {
    while (next_ < nodes_.tokens() && nodes_.isRead(next_)) next_ += arguments_.lanes;
    can_go_on_ = next_ < nodes_.tokens() && nodes_.canRead(next_);
    return next_ < nodes_.tokens();
  }
  [[gnu::always_inline]] void readOperator() {
    if (!can_go_on_) return;
    TreeReading<TreeNodes>(nodes_, arguments_.precision, arguments_.math != Math::kStrict)
        .readOperator(next_, nodes_.op(next_));
  }
  /// Where statements end, and length().
  [[gnu::always_inline]] void layOut() {
    if (isLeader()) shared_.words[2 * arguments_.most_tokens + kLaneSlots] = nodes_.tokens() > 0 ? endOfProgram() : 0;
  }
  /// Of the program; 0 if slots are missing, or there is no expression.
  std::uint32_t length() const { return shared_.words[2 * arguments_.most_tokens + kLaneSlots]; }

  // Steps that write the program. Operators that are allowed, and the multiply-adds that are made of them, have
  // handlers in every family, and setOperator() has moved operands to slots until there are registers enough.

  [[gnu::always_inline]] void beginProgram(DeviceToken* to) {
    program_ = to;
    can_go_on_ = false;
    if (length() == 0) return nodes_.take(0, 0, 0);
    const std::uint32_t root = nodes_.root();
    // The last token of this lane. A lane past the root gets a number beyond all tokens.
    next_ = root - ((root - lane_) & (arguments_.lanes - 1));
    if (!isLeader()) return;
    const HandlerNumbers& table = arguments_.handlers;
    to[length() - 1] = DeviceToken::of(table.find(Handler::Kind::kEnd, 1), 0, expression_);
    if (!nodes_.isOperator(root)) TreeWriting<TreeNodes>(table, nodes_, to + length() - 1).push(root, 0);
  }
  /// Whether an operator of this lane is still to be written.
  [[gnu::always_inline]] bool findPlaced() {
    while (next_ < nodes_.tokens() && !nodes_.isOperator(next_)) next_ -= arguments_.lanes;
    can_go_on_ = next_ < nodes_.tokens() && nodes_.isPlaced(next_);
    return next_ < nodes_.tokens();
  }
  [[gnu::always_inline]] void writePlaced() {
    if (!can_go_on_) return;
    const HandlerNumbers& table = arguments_.handlers;
    DeviceToken* const end = program_ + nodes_.end(next_);
    const std::uint32_t height = nodes_.height(next_);
    if (nodes_.isInSlot(next_)) {
      *end = DeviceToken::of(table.find(Handler::Kind::kStoreSlot, 1), nodes_.slotColumn(next_));
    }
    TreeWriting<TreeNodes> writing(table, nodes_, end);
    const Operands operands = nodes_.operands(next_);
    const OperandPlan* const plan = writing.putOperator(next_, operands, height);
    for (unsigned k = plan->stack_count; k-- > 0;) {
      const std::uint32_t operand = operands[plan->stack[k]];
      if (isOnStack(nodes_.place(operand))) {
        const std::uint32_t size = nodes_.size(operand);
        nodes_.setPlace(operand, static_cast<std::uint32_t>(writing.first() - program_), height + k);
        writing.skip(size);
      } else {
        writing.push(operand, height + k);
      }
    }
    next_ -= arguments_.lanes;
  }

  /// Sets the sums of expression `e`, which has no program, to 0: the kernel that adds them reads those of all.
  void clearSums(std::uint32_t e) const {
    const std::uint32_t groups = arguments_.row_groups;
    for (std::uint32_t channel = 0; channel < arguments_.channels; ++channel) {
      const std::uint64_t first = (std::uint64_t{channel} * arguments_.expressions + e) * groups;
      for (std::uint32_t g = lane_; g < groups; g += arguments_.lanes) {
        if (arguments_.precision == Precision::kF32) {
          reinterpret_cast<float*>(arguments_.sums)[first + g] = 0;
        } else {
          reinterpret_cast<double*>(arguments_.sums)[first + g] = 0;
        }
      }
    }
  }

 private:
  static constexpr std::uint32_t kFaultShift = 8, kLowByte = 0xff, kNothing = ~0U;

  /// Where the tokens of an expression may be.
  struct Extent {
    std::uint64_t begin = 0, tokens = 0;
    bool is_exact = true;  ///< whether it has all of them
    bool is_good = true;
  };

  /// Of an expression that there is.
  Extent extentOf(std::uint32_t e) const {
    const TreeArguments& of = arguments_;
    const std::uint64_t number = of.first + e;
    Extent extent{.begin = number * of.stride, .tokens = of.stride, .is_exact = of.notation == Notation::kPostfix};
    if (of.offsets != nullptr) {
      const std::int64_t begin = of.offsets[number], end = of.offsets[number + 1];
      extent = {.begin = static_cast<std::uint64_t>(begin),
                .tokens = static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(begin)};
      extent.is_good = begin >= 0 && end >= begin && static_cast<std::uint64_t>(end) <= of.tokens;
    }
    if (of.lengths != nullptr && extent.is_good) {
      const std::int32_t length = of.lengths[number];
      extent.is_good = length >= 0 && static_cast<std::uint64_t>(length) <= extent.tokens;
      extent.tokens = static_cast<std::uint64_t>(length);
      extent.is_exact = true;
    }
    return extent;
  }

  std::uint32_t endOfProgram() {
    // Slots are free again when the statement that reads them is done, so those in use are a stack.
    std::uint32_t* const in_use = shared_.words + 2 * arguments_.most_tokens;
    std::uint32_t end = 0, slots = 0;
    for (std::uint32_t i = 0; i < nodes_.root(); ++i) {
      if (!nodes_.isInSlot(i)) continue;
      while (slots > 0 && in_use[slots - 1] >= nodes_.begin(i)) --slots;
      if (slots == kLaneSlots) return 0;
      nodes_.setSlot(i, slots);
      in_use[slots++] = i;
      end += nodes_.size(i);
      nodes_.setPlace(i, end++, 0);
    }
    const std::uint32_t root = nodes_.root();
    end += nodes_.isOperator(root) ? nodes_.size(root) : 1;
    nodes_.setPlace(root, end, 0);
    return end + 1;
  }

  /// The fault of one token; of an operator its arity, else 0.
  DeviceFault faultOf(std::int32_t code, std::uint32_t& arity) const {
    arity = 0;
    if (code > 0) {
      const std::optional<Op> op = opOfCode(code);
      if (!op) return DeviceFault::kCode;
      arity = static_cast<std::uint32_t>(arityOf(*op));
      return arguments_.is_allowed[static_cast<std::size_t>(*op)] != 0 ? DeviceFault::kNone : DeviceFault::kOperator;
    }
    if (code == kConstantCode || isParameterCode(code)) {
      return arguments_.values != nullptr ? DeviceFault::kNone : DeviceFault::kCode;
    }
    return indexOfCode(code) < arguments_.columns ? DeviceFault::kNone : DeviceFault::kVariable;
  }

  const TreeArguments& arguments_;
  std::uint32_t group_, lane_;
  Shared shared_;
  TreeNodes nodes_;
  Extent extent_;
  std::uint32_t most_ = 0;  ///< tokens of the extent that are looked at; 0 with a fault
  std::uint32_t first_ = 0, last_ = 0;
  std::uint32_t expression_ = 0;
  DeviceToken* program_ = nullptr;
  std::uint32_t next_ = 0;
  bool can_go_on_ = false;
};

// Of all groups of a warp: each(f) of `Lanes` is a step of every lane, and any(f) one that finds something to do for
// one of them.

/// Before judge().
template <class Lanes>
[[gnu::always_inline]] inline void checkTrees(Lanes& lanes, std::uint32_t first) {
  lanes.each([&](TreeLane& lane) { lane.checkTokens(first + lane.group()); });
  lanes.each([](TreeLane& lane) { lane.findFault(); });
}

/// After readTokens().
template <class Lanes>
[[gnu::always_inline]] inline void readTrees(Lanes& lanes) {
  while (lanes.any([](TreeLane& lane) { return lane.findOperator(); })) {
    lanes.each([](TreeLane& lane) { lane.readOperator(); });
  }
  lanes.each([](TreeLane& lane) { lane.layOut(); });
}

/// After beginProgram().
template <class Lanes>
[[gnu::always_inline]] inline void writeTrees(Lanes& lanes) {
  while (lanes.any([](TreeLane& lane) { return lane.findPlaced(); })) {
    lanes.each([](TreeLane& lane) { lane.writePlaced(); });
  }
}

}  // namespace srjit
