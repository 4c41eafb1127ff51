#include "compiler/interpreter/handler_table.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/lowering/code_weights.h"
#include "ir/ops.h"

namespace srjit {
namespace {

using Kind = Handler::Kind;

constexpr unsigned kLongCode = 14;  // more instructions per row are a long operator

// A body of at most this many instructions per row is unrolled for all rows of a thread. Measured on an H200: above it,
// the instructions of the loop and its rotation cost less than the registers of several rows.
constexpr unsigned kWrittenOutCode = 32;

constexpr std::array<OperandForm, 2> kUnary = {"0", "v"};
constexpr std::array<OperandForm, 9> kBinary = {"01", "10", "0v", "0c", "v0", "c0", "vv", "vc", "cv"};
constexpr std::array<OperandForm, 5> kCommutativeBinary = {"01", "0v", "0c", "vv", "vc"};
constexpr std::array<OperandForm, 16> kTernary = {"012", "v01", "c01", "0v1", "0c1", "01v", "01c", "vv0",
                                                  "v0v", "0vv", "vc0", "v0c", "0vc", "cv0", "c0v", "0cv"};
constexpr std::array<OperandForm, 14> kCommutativeTernary = {"012", "120", "021", "0v1", "1v0", "0c1", "1c0",
                                                             "01v", "01c", "vv0", "vc0", "0vv", "0vc", "0cv"};

unsigned stackOperands(OperandForm operands) {
  return static_cast<unsigned>(std::ranges::count_if(operands, [](char source) { return source <= '2'; }));
}

// Operators have the same plans if they agree in arity, in commutativity and in being long.
struct OperatorClass {
  int arity;
  bool commutative, is_long;
};
constexpr std::size_t kClasses = 12;  // numbered by classOf

// ranks[i] is the position of operand i when operands are sorted by descending need; those of equal need keep their
// order.
struct OperandPlaces {
  std::array<OperandPlace, kMaxArity> places;
  std::array<std::uint8_t, kMaxArity> ranks;
  auto operator<=>(const OperandPlaces&) const = default;
};

using Order = std::array<std::uint8_t, kMaxArity>;

// Tries one choice of operands for the stack, in one order. False if no form fits.
bool planWith(const OperatorClass& of, const OperandPlaces& operands, unsigned pushed, bool swapped, const Order& order,
              OperandPlan& plan) {
  const auto at = [&](unsigned position) {
    return static_cast<std::uint8_t>(swapped && position < 2 ? 1 - position : position);
  };
  const auto arity = static_cast<unsigned>(of.arity);
  plan = {};
  plan.tokens = 1;
  std::string wanted(arity, ' ');
  const auto name = [&](std::uint8_t operand, OperandPlace place) {
    if (place == kInColumn && plan.column == OperandPlan::kNone) {
      plan.column = operand;
      return true;
    }
    if (plan.argument != OperandPlan::kNone) return false;
    plan.argument = operand;
    plan.argument_place = place;
    return true;
  };
  for (unsigned i = 0; i < arity; ++i) {
    const OperandPlace place = operands.places[at(i)];
    const bool push = ((pushed >> i) & 1) != 0;
    if (push && isOnStack(place)) return false;
    if (push || isOnStack(place)) {
      wanted[i] = 's';
      plan.tokens = static_cast<std::uint8_t>(plan.tokens + push);
    } else {
      wanted[i] = place == kInColumn ? 'v' : 'c';
      if (!name(at(i), place)) return false;
    }
  }
  for (unsigned k = 0; k < arity; ++k) {
    for (unsigned i = 0; i < arity; ++i) {
      if (wanted[i] != 's' || at(i) != order[k]) continue;
      wanted[i] = static_cast<char>('0' + plan.stack_count);
      plan.stack[plan.stack_count++] = at(i);
    }
  }
  const auto forms = HandlerTable::operandForms(of.arity, of.commutative);
  const auto found = std::ranges::find(forms, wanted);
  plan.operand_form = static_cast<std::uint8_t>(found - forms.begin());
  return found != forms.end();
}

// Tries the order of the ranks first, then the others; a class has a form either for the first order or for only one.
OperandPlan bestPlan(const OperatorClass& of, const OperandPlaces& operands) {
  const auto arity = static_cast<std::uint8_t>(of.arity);
  Order by_rank{};
  for (std::uint8_t i = 0; i < arity; ++i) by_rank[operands.ranks[i]] = i;
  OperandPlan plan;
  if (of.is_long) {
    plan.tokens = static_cast<std::uint8_t>(arity + 2);
    for (unsigned k = 0; k < arity; ++k) {
      if (isOnStack(operands.places[by_rank[k]])) plan.stack[plan.stack_count++] = by_rank[k];
    }
    return plan;
  }
  std::vector<Order> orders = {by_rank};
  Order other{0, 1, 2};
  do {
    orders.push_back(other);
  } while (std::next_permutation(other.begin(), other.begin() + of.arity));
  for (int pushes = 0; pushes <= of.arity; ++pushes) {
    for (const Order& order : orders) {
      for (unsigned pushed = 0; pushed < (1u << arity); ++pushed) {
        if (__builtin_popcount(pushed) != pushes) continue;
        if (planWith(of, operands, pushed, false, order, plan)) return plan;
        if (of.commutative && planWith(of, operands, pushed, true, order, plan)) return plan;
      }
    }
  }
  return plan;
}

std::size_t classOf(const OperatorClass& of) {
  return static_cast<std::size_t>(of.arity - 1) * 4 + (of.commutative ? 2U : 0U) + (of.is_long ? 1U : 0U);
}

OperandPlaces operandsAt(const std::array<OperandPlace, kMaxArity>& places, unsigned arity) {
  OperandPlaces operands{places, {}};
  for (unsigned i = 0; i < arity; ++i) {
    for (unsigned k = 0; k < i; ++k) ++operands.ranks[needOf(places[k]) >= needOf(places[i]) ? i : k];
  }
  return operands;
}

std::vector<OperandPlan> plansOf(const OperatorClass& of, unsigned depth) {
  const auto arity = static_cast<unsigned>(of.arity);
  const unsigned last = onStack(depth);
  std::vector<OperandPlan> plans;
  std::array<OperandPlace, kMaxArity> places{};
  const auto next = [&] {
    for (unsigned i = 0; i < arity; places[i++] = 0) {
      if (places[i]++ < last) return true;
    }
    return false;
  };
  // Plans differ by needs only in what they need.
  std::map<OperandPlaces, OperandPlan> known;
  do {
    OperandPlaces operands = operandsAt(places, arity);
    for (OperandPlace& place : operands.places) place = std::min(place, onStack(1));
    const auto [found, is_new] = known.try_emplace(operands);
    if (is_new) found->second = bestPlan(of, operands);
    OperandPlan& plan = plans.emplace_back(found->second);
    for (unsigned k = 0; k < plan.stack_count; ++k) {
      const unsigned need = std::min(k + needOf(places[plan.stack[k]]), depth + 1);
      plan.need = static_cast<std::uint8_t>(std::max<unsigned>(plan.need, need));
    }
  } while (next());
  return plans;
}

}  // namespace

bool hasLongCode(Op op, Precision precision, Math math) { return codeWeight(op, precision, math) > kLongCode; }

unsigned rowsPerTurn(Op op, const InterpreterSpec& spec) {
  return codeWeight(op, spec.precision, spec.math) <= kWrittenOutCode ? spec.rows_per_thread : 1;
}

std::span<const OperandForm> HandlerTable::operandForms(int arity, bool commutative) {
  if (arity == 1) return kUnary;
  if (arity == 2) return commutative ? std::span<const OperandForm>(kCommutativeBinary) : kBinary;
  return commutative ? std::span<const OperandForm>(kCommutativeTernary) : kTernary;
}

std::span<const OperandForm> HandlerTable::operandForms(Op op) {
  return operandForms(arityOf(op), infoOf(op).has(OpProps::kCommutative));
}

HandlerTable::HandlerTable(InterpreterSpec spec) : spec_(std::move(spec)) {
  std::ranges::sort(spec_.ops);
  spec_.ops.erase(std::ranges::unique(spec_.ops).begin(), spec_.ops.end());
  std::array<std::optional<std::size_t>, kClasses> first_plans;
  for (const Op op : spec_.ops) {
    HandlerNumbers::OpFacts& facts = facts_[static_cast<std::size_t>(op)];
    facts.has = true;
    facts.is_long = hasLongCode(op, spec_.precision, spec_.math);
    const bool commutative = infoOf(op).has(OpProps::kCommutative);
    const OperatorClass of{arityOf(op), commutative, facts.is_long};
    std::optional<std::size_t>& first_plan = first_plans[classOf(of)];
    if (!first_plan) {
      first_plan = plans_.size();
      std::ranges::copy(plansOf(of, spec_.depth), std::back_inserter(plans_));
    }
    facts.first_plan = static_cast<std::uint32_t>(*first_plan);
    const std::uint32_t places = onStack(spec_.depth) + 1U;
    if (of.arity > 1) facts.strides[0] = places;
    if (of.arity > 2) facts.strides[1] = places * places;
    if (facts.is_long) {
      argument_count_ = std::max(argument_count_, static_cast<unsigned>(arityOf(op)));
    } else {
      facts.first = static_cast<std::int32_t>(applies_.size());
      applies_.resize(applies_.size() + operandForms(op).size() * (spec_.depth + 1), -1);
    }
  }
  plain_.resize(numbers().placeOf(static_cast<Kind>(static_cast<int>(Kind::kNextWindow) + 1), 0, 0), -1);
  add({Kind::kHalt});
  add({Kind::kEnd, 1});
  addSums();
  const auto arguments = static_cast<std::uint8_t>(argument_count_);
  for (unsigned height = 0; height <= spec_.depth; ++height) {
    const auto at = static_cast<std::uint8_t>(height);
    if (height < spec_.depth) {
      add({Kind::kPushColumn, at});
      add({Kind::kPushParameter, at});
      if (argument_count_ > 0) add({Kind::kPushResult, at});
    }
    if (height == 1) add({Kind::kStoreSlot, at});
    for (std::uint8_t argument = 0; height > 0 && argument < arguments; ++argument) {
      add({Kind::kArgumentStack, at, argument});
    }
    for (const Op op : spec_.ops) {
      if (isLong(op)) continue;
      for (const OperandForm operands : operandForms(op)) {
        const unsigned popped = stackOperands(operands);
        if (height >= popped && height - popped < spec_.depth) add({Kind::kApply, at, 0, op, operands});
      }
    }
  }
  for (std::uint8_t argument = 0; argument < arguments; ++argument) {
    add({Kind::kArgumentColumn, 0, argument});
    add({Kind::kArgumentParameter, 0, argument});
  }
  for (const Op op : spec_.ops) {
    if (isLong(op)) add({Kind::kBody, 0, 0, op});
  }
  add({Kind::kNextWindow});
}

// The handler of one sum is kEnd's.
void HandlerTable::addSums() {
  for (std::uint8_t sum = 0; sum < kMostKeptSums; ++sum) {
    add({Kind::kKeepSum, 1, sum});
    add({Kind::kKeepProductSum, 0, sum});
    if (sum > 0) add({Kind::kStoreSums, 0, sum});
  }
}

void HandlerTable::add(const Handler& handler) {
  const auto number = static_cast<std::int16_t>(handlers_.size());
  handlers_.push_back(handler);
  HandlerNumbers::OpFacts& facts = facts_[static_cast<std::size_t>(handler.op)];
  if (handler.kind == Handler::Kind::kApply) {
    const auto all = operandForms(handler.op);
    const auto operand_form = static_cast<std::size_t>(std::ranges::find(all, handler.operands) - all.begin());
    applies_[static_cast<std::size_t>(facts.first) + operand_form * (spec_.depth + 1) + handler.height] = number;
  } else if (handler.kind == Handler::Kind::kBody) {
    facts.first = number;
  } else {
    plain_[numbers().placeOf(handler.kind, handler.height, handler.argument)] = number;
  }
}

int HandlerTable::find(const Handler& handler) const noexcept {
  if (handler.kind == Kind::kApply) return findApply(handler.op, handler.operands, handler.height);
  if (handler.kind == Kind::kBody) return isLong(handler.op) ? findBody(handler.op) : -1;
  return find(handler.kind, handler.height, handler.argument);
}

int HandlerTable::findApply(Op op, OperandForm operands, unsigned height) const noexcept {
  const auto all = operandForms(op);
  const auto found = std::ranges::find(all, operands);
  return found == all.end() ? -1 : numbers().findApply(op, static_cast<unsigned>(found - all.begin()), height);
}

std::string_view nameOf(OpFamily family) noexcept {
  return family == OpFamily::kArithmetic ? "arithmetic" : family == OpFamily::kCommon ? "common" : "all";
}

OpFamily familyOf(Op op) noexcept {
  const OpInfo& info = infoOf(op);
  if (info.has(OpProps::kArithmetic)) return OpFamily::kArithmetic;
  return info.has(OpProps::kCommon) ? OpFamily::kCommon : OpFamily::kAll;
}

OpFamily familyOf(std::span<const Op> ops) noexcept {
  OpFamily family = OpFamily::kArithmetic;
  for (const Op op : ops) family = std::max(family, familyOf(op));
  return family;
}

std::span<const Op> opsOf(OpFamily family) noexcept {
  static const std::array<std::vector<Op>, std::size(kOpFamilies)> members = [] {
    std::array<std::vector<Op>, std::size(kOpFamilies)> all;
    for (std::size_t i = 0; i < kOpCount; ++i) {
      const auto op = static_cast<Op>(i);
      for (const OpFamily of : kOpFamilies) {
        if (familyOf(op) <= of) all[static_cast<std::size_t>(of)].push_back(op);
      }
    }
    return all;
  }();
  return members[static_cast<std::size_t>(family)];
}

}  // namespace srjit
