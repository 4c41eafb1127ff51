#include "compiler/handler_table.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "ir/rows.h"

namespace srjit {
namespace {

// The domain that counts instructions: what a row costs on a GPU, roughly. It only has to tell short from long.
struct Weight {
  Weight(double) {}
  static Weight of(int instructions) {
    Weight weight(0.0);
    weight.instructions = instructions;
    return weight;
  }
  int instructions = 0;
};

// The mode being weighed; the domain's operators take no argument for it.
struct Mode {
  bool approximate = false;
  bool wide = false;  // f64
};
thread_local Mode mode;

constexpr int kLibraryCall = 60;
constexpr int kRoundedDivision = 20;
constexpr int kLongCode = 12;

Weight sum(std::initializer_list<Weight> operands, int own) {
  for (const Weight& operand : operands) own += operand.instructions;
  return Weight::of(own);
}

Weight operator+(Weight x, Weight y) { return sum({x, y}, 1); }
Weight operator-(Weight x, Weight y) { return sum({x, y}, 1); }
Weight operator*(Weight x, Weight y) { return sum({x, y}, 1); }
Weight operator/(Weight x, Weight y) { return sum({x, y}, mode.approximate ? 2 : kRoundedDivision); }
Weight operator-(Weight x) { return x; }
Weight lt(Weight x, Weight y) { return sum({x, y}, 1); }
Weight le(Weight x, Weight y) { return sum({x, y}, 1); }
Weight eq(Weight x, Weight y) { return sum({x, y}, 1); }
Weight select(Weight mask, Weight x, Weight y) { return sum({mask, x, y}, 1); }

int weightOf(Function function) {
  switch (function) {
    case Function::k_abs:
      return 0;
    case Function::k_copysign:
    case Function::k_floor:
    case Function::k_ceil:
    case Function::k_rint:
    case Function::k_fma:
      return 1;
    case Function::k_minimum:
    case Function::k_maximum:
      return mode.wide ? 8 : 1;  // f64 has no instruction that propagates NaN
    case Function::k_sqrt:
      return mode.approximate ? 1 : kRoundedDivision;
    case Function::k_exp2:
    case Function::k_log2:
    case Function::k_sin:
    case Function::k_cos:
    case Function::k_tanh:
      return mode.approximate ? 1 : kLibraryCall;
    case Function::k_exp:
    case Function::k_log:
    case Function::k_log10:
      return mode.approximate ? 2 : kLibraryCall;
    case Function::k_tan:
      return mode.approximate ? 4 : kLibraryCall;
    case Function::k_pow:
      return mode.approximate ? 14 : kLibraryCall;
    default:
      return kLibraryCall;
  }
}

#define SRJIT_FUNCTION(id, arity, ...) SRJIT_DEFINE_##arity(id)
#define SRJIT_DEFINE_1(id) \
  Weight id(Weight x) { return sum({x}, weightOf(Function::k_##id)); }
#define SRJIT_DEFINE_2(id) \
  Weight id(Weight x, Weight y) { return sum({x, y}, weightOf(Function::k_##id)); }
#define SRJIT_DEFINE_3(id) \
  Weight id(Weight x, Weight y, Weight z) { return sum({x, y, z}, weightOf(Function::k_##id)); }
#include "ir/functions.def"
#undef SRJIT_FUNCTION
#undef SRJIT_DEFINE_1
#undef SRJIT_DEFINE_2
#undef SRJIT_DEFINE_3

constexpr std::array<Form, 2> kUnary = {"0", "v"};
constexpr std::array<Form, 9> kBinary = {"01", "10", "0v", "0c", "v0", "c0", "vv", "vc", "cv"};
constexpr std::array<Form, 5> kCommutativeBinary = {"01", "0v", "0c", "vv", "vc"};
constexpr std::array<Form, 16> kTernary = {"012", "v01", "c01", "0v1", "0c1", "01v", "01c", "vv0",
                                           "v0v", "0vv", "vc0", "v0c", "0vc", "cv0", "c0v", "0cv"};
constexpr std::array<Form, 14> kCommutativeTernary = {"012", "120", "021", "0v1", "1v0", "0c1", "1c0",
                                                      "01v", "01c", "vv0", "vc0", "0vv", "0vc", "0cv"};

unsigned stackOperands(Form form) {
  return static_cast<unsigned>(std::ranges::count_if(form, [](char source) { return source <= '2'; }));
}

}  // namespace

bool hasLongCode(Op op, Precision precision, Math math) {
  mode = {math == Math::kFast && precision == Precision::kF32, precision == Precision::kF64};
  const Weight operand = Weight::of(0);
  return applyRow<Weight>(op, operand, operand, operand).instructions > kLongCode;
}

std::span<const Form> HandlerTable::forms(int arity, bool commutative) {
  if (arity == 1) return kUnary;
  if (arity == 2) return commutative ? std::span<const Form>(kCommutativeBinary) : kBinary;
  return commutative ? std::span<const Form>(kCommutativeTernary) : kTernary;
}

HandlerTable::HandlerTable(InterpreterSpec spec)
    : spec_(std::move(spec)), has_(allOps().size()), long_(allOps().size()) {
  using Kind = Handler::Kind;
  std::ranges::sort(spec_.ops);
  spec_.ops.erase(std::ranges::unique(spec_.ops).begin(), spec_.ops.end());
  for (const Op op : spec_.ops) {
    has_[static_cast<std::size_t>(op)] = true;
    long_[static_cast<std::size_t>(op)] = hasLongCode(op, spec_.precision, spec_.math);
    if (isLong(op)) argument_count_ = std::max(argument_count_, static_cast<unsigned>(arityOf(op)));
  }
  add({Kind::kHalt});
  add({Kind::kEnd, 1});
  for (unsigned height = 0; height <= spec_.depth; ++height) {
    const auto at = static_cast<std::uint8_t>(height);
    if (height < spec_.depth) {
      add({Kind::kPushColumn, at});
      add({Kind::kPushParameter, at});
      if (argument_count_ > 0) add({Kind::kPushResult, at});
    }
    if (height == 1) add({Kind::kStoreSlot, at});
    for (std::uint8_t argument = 0; height > 0 && argument < argument_count_; ++argument) {
      add({Kind::kArgumentStack, at, argument});
    }
    for (const Op op : spec_.ops) {
      if (isLong(op)) continue;
      for (const Form form : forms(arityOf(op), (infoOf(op).props & kCommutative) != 0)) {
        const unsigned popped = stackOperands(form);
        if (height >= popped && height - popped < spec_.depth) add({Kind::kApply, at, 0, op, form});
      }
    }
  }
  for (std::uint8_t argument = 0; argument < argument_count_; ++argument) {
    add({Kind::kArgumentColumn, 0, argument});
    add({Kind::kArgumentParameter, 0, argument});
  }
  for (const Op op : spec_.ops) {
    if (isLong(op)) add({Kind::kBody, 0, 0, op});
  }
}

void HandlerTable::add(const Handler& handler) {
  const int number = static_cast<int>(handlers_.size());
  handlers_.push_back(handler);
  if (handler.kind == Handler::Kind::kApply) {
    applies_.emplace(std::tuple(handler.op, handler.form, handler.height), number);
  } else {
    const unsigned which = handler.kind == Handler::Kind::kBody ? static_cast<unsigned>(handler.op) : handler.argument;
    plain_.emplace(std::tuple(handler.kind, handler.height, which), number);
  }
}

int HandlerTable::find(Handler::Kind kind, unsigned height, unsigned argument) const {
  const auto found = plain_.find({kind, height, argument});
  return found == plain_.end() ? -1 : found->second;
}

int HandlerTable::findApply(Op op, Form form, unsigned height) const {
  const auto found = applies_.find({op, form, height});
  return found == applies_.end() ? -1 : found->second;
}

int HandlerTable::findBody(Op op) const { return find(Handler::Kind::kBody, 0, static_cast<unsigned>(op)); }

}  // namespace srjit
