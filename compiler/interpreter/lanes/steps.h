// The lanes of a group, and what they do with an expression: threads of the device, or of the host where a test models
// them. A lane writes its results to the group's shared memory, and constants to the numbers of the population, in
// global memory. All lanes end a step before one begins the next; within a step, no lane reads a word that another lane
// writes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "compiler/interpreter/lanes/arguments.h"
#include "compiler/interpreter/lanes/nodes.h"
#include "compiler/interpreter/tree_writing.h"
#include "passes/tree_reading.h"

namespace srjit {

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
    // Values on the stack; of a prefix expression those that are still wanted.
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

  // Steps that read expression `e`. `tokens` is its number of judge(); 0 where there is no expression. Its numbers
  // begin at `first_number`.

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
    if (isLeader()) slotsInUse()[kLaneSlots] = nodes_.tokens() > 0 ? endOfProgram() : 0;
  }
  /// Of the program; 0 if slots are missing, or there is no expression.
  std::uint32_t length() const { return slotsInUse()[kLaneSlots]; }

  // Steps that write the program. Operators that are allowed, and the multiply-adds that are made of them, have
  // handlers in every family, and setOperator() has moved operands to slots until there are registers enough.

  [[gnu::always_inline]] void beginProgram(DeviceToken* to) {
    program_ = to;
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

  /// Behind the words of nodes: kLaneSlots of them, then the length of the program.
  std::uint32_t* slotsInUse() const { return shared_.words + 2 * arguments_.most_tokens; }

  std::uint32_t endOfProgram() {
    // Slots are free again when the statement that reads them is done, so those in use are a stack.
    std::uint32_t* const in_use = slotsInUse();
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
