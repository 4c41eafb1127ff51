#include "compiler/interpreter/lanes/steps.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "compiler/interpreter/tree_writing.h"
#include "ir/numbers/loss_sums.h"
#include "passes/tree_reading.h"

namespace srjit {
namespace {

/// The nodes of an expression in the words of a lane. Of a prefix expression the tokens are numbered from the last one
/// on, so that operands come before their operator there, too, but the first one comes last.
class LaneNodes {
 public:
  LaneNodes(const TreeArguments& arguments, const CheckedTree& tree, std::uint32_t first_number, LaneWords words)
      : arguments_(arguments),
        tree_(tree),
        first_number_(first_number),
        words_(words),
        is_prefix_(arguments.notation == Notation::kPrefix) {}

  // A word: the first token of the subtree; an operator, or the place of a number among those of the expression;
  // the place of the value; what the node is.
  enum : std::uint32_t {
    kSubjectShift = 8,
    kPlaceShift = 16,
    kPlaceMask = 0xf,
    kConstant = 1U << 20,
    kOperator = 1U << 21,
    kFused = 1U << 22,        ///< of the factors of a product, which is the operand that ends before it,
    kFusedBefore = 1U << 23,  ///< or the other one
    kInSlot = 1U << 24,
    kByte = 0xff
  };
  static_assert(kMostDeviceTokens <= kByte + 1 && kMostOps <= kByte + 1);

  std::int32_t code(std::uint32_t i) const { return arguments_.codes[positionOf(i)]; }
  std::uint32_t begin(std::uint32_t i) const { return words_[i] & kByte; }
  bool isConstant(std::uint32_t i) const { return (words_[i] & kConstant) != 0; }
  bool isOperator(std::uint32_t i) const { return (words_[i] & kOperator) != 0; }
  Op op(std::uint32_t i) const { return static_cast<Op>(subject(i)); }
  OperandPlace place(std::uint32_t i) const { return static_cast<OperandPlace>(words_[i] >> kPlaceShift & kPlaceMask); }

  Operands operands(std::uint32_t i) const {
    const std::uint32_t last = i - 1;
    if ((words_[i] & (kFused | kFusedBefore)) != 0) {
      const std::uint32_t before = begin(last) - 1;
      const bool is_last = (words_[i] & kFused) != 0;
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

  /// A leaf that is no number; or one, with its place among those of the expression.
  void setVariable(std::uint32_t i) { words_[i] = i; }
  void setWritten(std::uint32_t i, std::uint32_t number, bool is_constant) {
    words_[i] = i;
    putNumber(i, number, written(i), is_constant ? std::uint32_t{kConstant} : 0U);
  }
  void setBegin(std::uint32_t i, std::uint32_t begin) { words_[i] = begin; }
  void setConstant(std::uint32_t i, std::uint32_t from, double value) { putNumber(i, subject(from), value, kConstant); }
  void setOperator(std::uint32_t i, Op op, const Operands& operands, int arity) {
    const HandlerNumbers& table = arguments_.handlers;
    const OperandPlan* plan = &planOf(op, operands);
    while (plan->need > table.depth) {
      moveToSlot(op, operands, arity);
      plan = &planOf(op, operands);
    }
    tokens_ += plan->tokens;
    words_[i] = begin(i) | static_cast<std::uint32_t>(op) << kSubjectShift |
                std::uint32_t{onStack(plan->need)} << kPlaceShift | kOperator;
  }
  void setFused(std::uint32_t i, Op op, std::uint32_t product, std::uint32_t other) {
    const Operands factors = operands(product);
    tokens_ -= planOf(Op::kMul, factors).tokens;
    setOperator(i, op, {factors[0], factors[1], other}, 3);
    words_[i] |= product == i - 1 ? kFused : kFusedBefore;
  }

  /// Of the program so far.
  std::uint32_t tokens() const noexcept { return tokens_; }

  // While the program is written:
  void noteOperator(Op) {}
  PendingValue& pending(std::uint32_t k) { return pending_[k]; }
  std::uint32_t parameterOf(std::uint32_t i) const { return first_number_ + subject(i); }
  std::uint32_t columnOf(std::uint32_t i) {
    if ((words_[i] & kInSlot) == 0) return indexOfCode(code(i));
    const auto slot = static_cast<std::uint32_t>(std::countr_one(used_slots_));
    if (slot >= kLaneSlots) {
      lacks_slots_ = true;
      return 0;
    }
    used_slots_ |= 1U << slot;
    words_[tree_.tokens + stored_++] = i | slot << kSubjectShift;
    return arguments_.columns + slot;
  }
  bool lacksSlots() const noexcept { return lacks_slots_; }
  /// The value of the last operand that was found in a slot and is not computed yet; kNone if all are. Its slot is
  /// free before.
  static constexpr std::uint32_t kNone = ~0U;
  std::uint32_t takeStored(std::uint32_t& slot) {
    if (stored_ == 0) return kNone;
    const std::uint32_t word = words_[tree_.tokens + --stored_];
    slot = word >> kSubjectShift;
    used_slots_ &= ~(1U << slot);
    words_[word & kByte] ^= kInSlot;
    return word & kByte;
  }

 private:
  std::uint64_t positionOf(std::uint32_t i) const { return tree_.begin + (is_prefix_ ? tree_.tokens - 1 - i : i); }
  std::uint32_t subject(std::uint32_t i) const { return words_[i] >> kSubjectShift & kByte; }

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
    words_[i] = begin(i) | number << kSubjectShift | std::uint32_t{kInParameter} << kPlaceShift | flag;
  }

  // The longest operand without which there are registers enough; if there is none, the longest that needs most.
  void moveToSlot(Op op, const Operands& operands, int arity) {
    std::uint32_t most = kNone, most_tokens = 0;
    unsigned most_need = 0;
    for (int k = 0; k < arity; ++k) {
      const std::uint32_t operand = operands[static_cast<std::size_t>(k)], word = words_[operand];
      if (!isOnStack(place(operand))) continue;
      words_[operand] = word & ~(kPlaceMask << kPlaceShift);
      const bool is_enough = planOf(op, operands).need <= arguments_.handlers.depth;
      words_[operand] = word;
      const unsigned need = is_enough ? kPlaceMask + 1U : needOf(place(operand));
      const std::uint32_t tokens = operand - begin(operand) + 1;
      if (need < most_need || (need == most_need && tokens <= most_tokens)) continue;
      most = operand;
      most_tokens = tokens;
      most_need = need;
    }
    words_[most] = (words_[most] & ~(kPlaceMask << kPlaceShift)) | std::uint32_t{kInColumn} << kPlaceShift | kInSlot;
    ++tokens_;
  }

  const TreeArguments& arguments_;
  const CheckedTree& tree_;
  std::uint32_t first_number_;
  LaneWords words_;
  bool is_prefix_;
  std::uint32_t tokens_ = 0;
  // While the program is written. Of what waits on the stack there are fewer than registers and operands.
  std::array<PendingValue, kInterpreterDepth + kMaxArity> pending_{};
  std::uint32_t used_slots_ = 0, stored_ = 0;
  bool lacks_slots_ = false;
};

/// Where the tokens of an expression may be.
struct Extent {
  std::uint64_t begin = 0, tokens = 0;
  bool is_exact = true;  ///< whether it has all of them
  bool is_good = true;
};

Extent extentOf(const TreeArguments& of, std::uint32_t e) {
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

bool isNumber(std::int32_t code) { return code == kConstantCode || isParameterCode(code); }

/// The fault of one token; of an operator its arity, else 0.
DeviceFault faultOf(const TreeArguments& of, std::int32_t code, std::uint32_t& arity) {
  arity = 0;
  if (code > 0) {
    const std::optional<Op> op = opOfCode(code);
    if (!op) return DeviceFault::kCode;
    arity = static_cast<std::uint32_t>(arityOf(*op));
    return of.is_allowed[static_cast<std::size_t>(*op)] != 0 ? DeviceFault::kNone : DeviceFault::kOperator;
  }
  if (isNumber(code)) return of.values != nullptr ? DeviceFault::kNone : DeviceFault::kCode;
  return indexOfCode(code) < of.columns ? DeviceFault::kNone : DeviceFault::kVariable;
}

}  // namespace

CheckedTree checkTree(const TreeArguments& arguments, std::uint32_t e) {
  const Extent extent = extentOf(arguments, e);
  CheckedTree tree{.begin = extent.begin};
  const auto fails = [&](DeviceFault fault) { return CheckedTree{.begin = extent.begin, .fault = fault}; };
  const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(extent.tokens, arguments.most_tokens));
  if (!extent.is_good || most == 0 || (extent.is_exact && most < extent.tokens)) return fails(DeviceFault::kLength);
  const bool is_prefix = arguments.notation == Notation::kPrefix;
  std::uint32_t values = is_prefix ? 1 : 0;  // that are wanted, or that there are
  for (std::uint32_t i = 0; i < most; ++i) {
    const std::int32_t code = arguments.codes[extent.begin + i];
    std::uint32_t arity = 0;
    if (const DeviceFault fault = faultOf(arguments, code, arity); fault != DeviceFault::kNone) return fails(fault);
    if (isNumber(code)) ++tree.numbers;
    if (!is_prefix && values < arity) return fails(DeviceFault::kOperands);
    values = is_prefix ? values + arity - 1 : values - arity + 1;
    if (!is_prefix || values > 0) continue;
    tree.tokens = i + 1;
    return extent.is_exact && tree.tokens < most ? fails(DeviceFault::kRest) : tree;
  }
  tree.tokens = most;
  if (is_prefix) return fails(most < extent.tokens ? DeviceFault::kLength : DeviceFault::kOperands);
  return values == 1 ? tree : fails(DeviceFault::kRest);
}

std::uint64_t firstTokenOf(const TreeArguments& arguments, std::uint32_t e) { return extentOf(arguments, e).begin; }

std::uint32_t readTree(const TreeArguments& arguments, const CheckedTree& tree, std::uint32_t first_number,
                       LaneWords words) {
  LaneNodes nodes(arguments, tree, first_number, words);
  TreeReading<LaneNodes> reading(nodes, arguments.precision, arguments.math != Math::kStrict);
  std::uint32_t numbers = 0;
  for (std::uint32_t i = 0; i < tree.tokens; ++i) {
    const std::int32_t code = nodes.code(i);
    if (code > 0) {
      reading.readOperator(i, kOpsByCode[static_cast<std::size_t>(code)]);
    } else if (isNumber(code)) {
      nodes.setWritten(i, numbers++, code == kConstantCode);
    } else {
      nodes.setVariable(i);
    }
  }
  // A root that is a leaf is pushed.
  return nodes.tokens() + (nodes.isOperator(tree.tokens - 1) ? 1 : 2);
}

bool writeTree(const TreeArguments& arguments, const CheckedTree& tree, std::uint32_t first_number, std::uint32_t e,
               LaneWords words, DeviceToken* to, std::uint32_t tokens) {
  LaneNodes nodes(arguments, tree, first_number, words);
  TreeWriting<LaneNodes> writing(arguments.handlers, nodes, to + tokens);
  const HandlerNumbers& table = arguments.handlers;
  writing.put(DeviceToken::of(table.find(Handler::Kind::kEnd, 1), 0, e));
  std::uint32_t number = tree.tokens - 1;
  while (number != LaneNodes::kNone && writing.write(number) && !nodes.lacksSlots()) {
    std::uint32_t slot = 0;
    number = nodes.takeStored(slot);
    if (number == LaneNodes::kNone) return true;
    writing.put(DeviceToken::of(table.find(Handler::Kind::kStoreSlot, 1), arguments.columns + slot));
  }
  std::fill_n(to, tokens - 1, DeviceToken::of(table.find(Handler::Kind::kPushColumn, 0)));
  return false;
}

void clearSums(const TreeArguments& arguments, std::uint32_t e) {
  for (std::uint32_t channel = 0; channel < arguments.channels; ++channel) {
    const std::uint64_t first = (std::uint64_t{channel} * arguments.expressions + e) * arguments.row_groups;
    for (std::uint32_t g = 0; g < arguments.row_groups; ++g) {
      if (arguments.precision == Precision::kF32) {
        reinterpret_cast<float*>(arguments.sums)[first + g] = 0;
      } else {
        reinterpret_cast<double*>(arguments.sums)[first + g] = 0;
      }
    }
  }
}

void writeLoss(const LossArguments& arguments, std::uint32_t e) {
  double loss = std::numeric_limits<double>::quiet_NaN();
  std::int64_t valid = -1;
  if (arguments.faults[e] == DeviceFault::kNone) {
    const std::uint64_t all = arguments.rows;
    const double terms = arguments.totals[e];
    double weights = arguments.all_weights;
    bool has_value = true;
    if (arguments.skips_invalid) {
      const double counted = arguments.totals[std::uint64_t{arguments.expressions} + e];
      valid = static_cast<std::int64_t>(countedRows(counted, all));
      const bool is_all = static_cast<std::uint64_t>(valid) == all;
      if (!is_all) {
        weights = arguments.is_weighted ? arguments.totals[2 * std::uint64_t{arguments.expressions} + e]
                                        : static_cast<double>(valid);
      }
      if (arguments.rejects_invalid && !is_all) loss = arguments.worst;
      has_value = arguments.rejects_invalid ? is_all : valid > 0;
    } else if (std::isfinite(terms)) {
      valid = static_cast<std::int64_t>(all);
    }
    if (has_value) {
      loss = withLossFormula(arguments.kind, arguments.target_variance,
                             [&](const auto& formula) { return double{formula(terms, terms / weights)}; });
    }
  }
  if (arguments.losses_type == Precision::kF32) {
    reinterpret_cast<float*>(arguments.losses)[e] = static_cast<float>(loss);
  } else {
    reinterpret_cast<double*>(arguments.losses)[e] = loss;
  }
  if (arguments.valid_rows != nullptr) arguments.valid_rows[e] = valid;
}

}  // namespace srjit
