#include "tools/search/formulas/dimensions.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "ir/rows.h"
#include "ir/text/lexer.h"
#include "ir/text/words.h"

namespace srjit::search {
namespace {

constexpr double kSame = 1e-9;  // difference of exponents that is rounding
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
constexpr std::int32_t kFixed = -1, kAny = -2;

struct NamedUnit {
  std::string_view name, unit;
};
constexpr NamedUnit kDerivedUnits[] = {
#define SRJIT_DERIVED_UNIT(name, unit) {name, unit},
#include "tools/search/formulas/derived_units.def"
#undef SRJIT_DERIVED_UNIT
};

bool isZero(double exponent) { return std::fabs(exponent) < kSame; }

/// a + factor * b.
Unit sumOf(const Unit& a, const Unit& b, double factor) {
  Unit sum;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = a[i] + factor * b[i];
  return sum;
}

/// "2", "(1/2)", "0.37".
std::string exponentText(double exponent) {
  for (int denominator = 1; denominator <= 12; ++denominator) {
    const double numerator = std::rint(exponent * denominator);
    if (!isZero(exponent - numerator / denominator)) continue;
    return denominator == 1 ? fmt::format("{}", numerator) : fmt::format("({}/{})", numerator, denominator);
  }
  return fmt::format("{:.6g}", exponent);
}

struct UnitSolver;

/// The domain of units for the rows of ops.def: `unit` times the unit of a constant to a power.
struct UnitValue {
  UnitValue() = default;
  /// A number of a row. Zeros have any unit.
  explicit UnitValue(double value) : number(value), free(value == 0 ? kAny : kFixed) {}
  explicit UnitValue(const Unit& of) : unit(of) {}

  Unit unit = {};
  double number = kNoNumber;   ///< of a constant
  double power = 0;            ///< of the constant's unit
  std::int32_t free = kFixed;  ///< the number of that constant; or kFixed: there is none; or kAny: any unit
  bool is_broken = false;
  UnitSolver* solver = nullptr;  ///< where a constant is `free`

  struct Mask {
    bool is_broken;
  };

  friend UnitValue operator*(const UnitValue& x, const UnitValue& y) { return product(x, y, 1); }
  friend UnitValue operator/(const UnitValue& x, const UnitValue& y) {
    UnitValue quotient = product(x, y, -1);
    quotient.number = x.number / y.number;
    return quotient;
  }
  friend UnitValue operator+(const UnitValue& x, const UnitValue& y) { return same(x, y); }
  friend UnitValue operator-(const UnitValue& x, const UnitValue& y) { return same(x, y); }
  friend UnitValue operator-(UnitValue x) {
    x.number = -x.number;
    return x;
  }
  friend UnitValue fma(const UnitValue& x, const UnitValue& y, const UnitValue& z) { return same(x * y, z); }
  friend UnitValue abs(const UnitValue& x) { return x; }
  friend UnitValue copysign(const UnitValue& x, const UnitValue& y) { return product(x, y, 0); }
  friend UnitValue minimum(const UnitValue& x, const UnitValue& y) { return same(x, y); }
  friend UnitValue maximum(const UnitValue& x, const UnitValue& y) { return same(x, y); }
  friend UnitValue mod(const UnitValue& x, const UnitValue& y) { return same(x, y); }
  friend UnitValue atan2(const UnitValue& x, const UnitValue& y) { return product(same(x, y), x, -1); }
  friend UnitValue sqrt(const UnitValue& x) { return product(UnitValue(1), x, 0.5); }
  friend UnitValue cbrt(const UnitValue& x) { return product(UnitValue(1), x, 1.0 / 3); }
  friend UnitValue pow(const UnitValue& x, const UnitValue& y) {
    const UnitValue exponent = same(y, UnitValue(1));
    return product(exponent, std::isnan(y.number) ? same(x, UnitValue(1)) : x, std::isnan(y.number) ? 1 : y.number);
  }
  friend Mask lt(const UnitValue& x, const UnitValue& y) { return {same(x, y).is_broken}; }
  friend Mask le(const UnitValue& x, const UnitValue& y) { return lt(x, y); }
  friend Mask eq(const UnitValue& x, const UnitValue& y) { return lt(x, y); }
  friend UnitValue select(const Mask& mask, const UnitValue& x, const UnitValue& y) {
    UnitValue chosen = same(x, y);
    chosen.is_broken |= mask.is_broken;
    return chosen;
  }

  static UnitValue product(UnitValue x, UnitValue y, double power);
  static UnitValue same(UnitValue x, UnitValue y);
  void settle();
  void solve(const Unit& unit, std::int32_t by = kFixed, double power = 0) const;
};

/// The units of constants, as far as they are known: each by a unit and a constant that comes before it in time.
struct UnitSolver {
  std::vector<UnitValue> solutions;
  std::vector<bool> is_solved;
  std::vector<UnitValue> stack;
};

/// Puts in what is known of the constant.
void UnitValue::settle() {
  while (free >= 0 && solver->is_solved[static_cast<std::size_t>(free)]) {
    const UnitValue& by = solver->solutions[static_cast<std::size_t>(free)];
    unit = sumOf(unit, by.unit, power);
    power *= by.power;
    free = by.free;
  }
}

void UnitValue::solve(const Unit& unit_of, std::int32_t by, double power_of) const {
  UnitValue& solution = solver->solutions[static_cast<std::size_t>(free)];
  solution = UnitValue(unit_of);
  solution.free = by;
  solution.power = power_of;
  solver->is_solved[static_cast<std::size_t>(free)] = true;
}

/// x * y^power.
UnitValue UnitValue::product(UnitValue x, UnitValue y, double power) {
  x.settle();
  y.settle();
  x.is_broken |= y.is_broken;
  x.number = kNoNumber;
  if (power == 0) return x;
  if (x.free == kAny || y.free == kAny) {
    x.free = kAny;
    return x;
  }
  x.unit = sumOf(x.unit, y.unit, power);
  if (y.free == kFixed) return x;
  if (x.free == kFixed) {
    x.free = y.free;
    x.power = power * y.power;
    x.solver = y.solver;
  } else if (x.free == y.free) {
    x.power += power * y.power;
    if (isZero(x.power)) x.free = kFixed;
  } else {
    y.solve({});
  }
  return x;
}

/// What both are if they have the same unit.
UnitValue UnitValue::same(UnitValue x, UnitValue y) {
  x.settle();
  y.settle();
  const bool is_broken = x.is_broken || y.is_broken;
  if (x.free == kAny || (x.free == kFixed && y.free >= 0)) std::swap(x, y);
  x.is_broken = is_broken;
  x.number = kNoNumber;
  if (y.free == kAny) return x;
  const Unit rest = sumOf(y.unit, x.unit, -1);  // that the constant of x has to make up for
  const double power = x.free == kFixed ? 0 : x.free == y.free ? x.power - y.power : x.power;
  if (isZero(power)) {
    x.is_broken |= !std::ranges::all_of(rest, isZero);
  } else if (x.free == y.free || y.free == kFixed) {
    x.solve(sumOf({}, rest, 1 / power));
  } else {
    x.solve(sumOf({}, rest, 1 / power), y.free, y.power / power);
  }
  return x;
}

// All other functions are of numbers. Hidden friends of UnitValue are better matches than these templates.
#define SRJIT_ARITY_1(id)              \
  template <std::same_as<UnitValue> T> \
  [[maybe_unused]] T id(const T& x) {  \
    return T::same(x, T(1));           \
  }
#define SRJIT_ARITY_2(id)
#define SRJIT_ARITY_3(id)
#define SRJIT_FUNCTION(id, arity, ...) SRJIT_ARITY_##arity(id)
#include "ir/functions.def"
#undef SRJIT_FUNCTION
#undef SRJIT_ARITY_1
#undef SRJIT_ARITY_2
#undef SRJIT_ARITY_3

/// The unit of a tree before that of the target is known.
UnitValue valueOf(const TreeView& tree, std::span<const std::int32_t> wrapper, std::span<const Unit> columns,
                  UnitConstants constants, UnitSolver& solver) {
  solver.solutions.clear();
  solver.is_solved.clear();
  std::vector<UnitValue>& stack = solver.stack;
  stack.clear();
  const auto take = [&](const Token& token) {
    const auto arity = static_cast<std::size_t>(token.arity());
    if (arity > 0) {
      const UnitValue* const x = stack.data() + stack.size() - arity;
      const UnitValue value = applyRow<UnitValue>(token.op, x[0], x[arity > 1 ? 1 : 0], x[arity > 2 ? 2 : 0]);
      stack.resize(stack.size() - arity);
      return stack.push_back(value);
    }
    UnitValue value;
    if (token.kind == Token::Kind::kVariable && token.index < columns.size()) {
      value.unit = columns[token.index];
    } else if (token.kind == Token::Kind::kVariable) {
      value.free = kAny;
    } else {
      value.number = token.kind == Token::Kind::kConstant ? token.value : kNoNumber;
      if (constants == UnitConstants::kFree) {
        value.free = static_cast<std::int32_t>(solver.solutions.size());
        value.power = 1;
        value.solver = &solver;
      }
      solver.solutions.emplace_back();
      solver.is_solved.push_back(false);
    }
    stack.push_back(value);
  };
  for (std::size_t i = 0; i < tree.size(); ++i) take(tree[i]);
  for (const std::int32_t code : wrapper) take(code == kConstantCode ? Token::constant(1) : tokenOf(code));
  return stack.back();
}

UnitSolver& solverOfThread() {
  thread_local UnitSolver solver;
  return solver;
}

}  // namespace

std::optional<std::uint32_t> findColumn(std::string_view name, const ColumnNames& columns, std::size_t count) {
  Token token;
  const bool is_column = text::readWord(name, columns, token) == text::WordKind::kOperand &&
                         token.kind == Token::Kind::kVariable && token.index < count;
  return is_column ? std::optional(token.index) : std::nullopt;
}

Result<Dimensions> Dimensions::parse(std::string_view text, const ColumnNames& columns, std::size_t count,
                                     std::string_view target) {
  Dimensions all;
  all.columns_.resize(count);
  std::vector<bool> is_named(count);
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::size_t colon = word.rfind(':');
    const auto fail = [&](const std::string& message) {
      return text::errorAt(text, begin, std::max<std::size_t>(std::min(word.size(), colon), 1), message,
                           Errc::kInvalid);
    };
    if (colon == std::string_view::npos) return fail("a unit is written NAME:UNIT, such as mass:kg");
    const std::string_view name = word.substr(0, colon);
    const std::optional<std::uint32_t> column = findColumn(name, columns, count);
    if (!column && name != target) {
      return fail(fmt::format("{} is neither the target nor a column{}", text::inQuotes(name),
                              columns.empty() ? "" : "; the columns are " + text::listNames(columns.names())));
    }
    if (column ? is_named[*column] : all.target_.has_value()) {
      return fail(fmt::format("{} has a unit already", text::inQuotes(name)));
    }
    Result<Unit> unit = all.read(word.substr(colon + 1));
    if (!unit) {
      Error error = unit.error();
      if (error.where) error.where->column += begin + colon + 1;
      return error;
    }
    if (column) {
      is_named[*column] = true;
      all.columns_[*column] = *unit;
    } else {
      all.target_ = *unit;
    }
    begin = end + 1;
  }
  return all;
}

/// A unit is an expression over its words.
Result<Unit> Dimensions::read(std::string_view text) {
  std::vector<std::string> words;
  std::vector<Unit> units;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = text::isDigit(text[i]) ? text::scanNumber(text, i) : text::scanWord(text, i);
    const std::string word(text.substr(i, length));
    if (!text::isDigit(text[i]) && length > 0 && std::ranges::find(words, word) == words.end()) {
      const std::optional<Unit> unit = unitOf(word);
      if (!unit) {
        return text::errorAt(text, i, length, fmt::format("there are more than {} base units", kMostBaseUnits),
                             Errc::kInvalid);
      }
      words.push_back(word);
      units.push_back(*unit);
    }
    i += std::max<std::size_t>(length, 1);
  }
  const Result<Expression> parsed = srjit::parse(text, Language::kInfix, ColumnNames(std::move(words)));
  if (!parsed) return parsed.error();
  const std::span<const Token> tokens = parsed->tokens();
  const auto isOfUnits = [](const Token& token) {
    return token.kind != Token::Kind::kOp || token.op == Op::kMul || token.op == Op::kDiv || token.op == Op::kPow ||
           token.op == Op::kNeg;
  };
  Trees tree;
  tree.add(tokens);
  const UnitValue value = valueOf(tree[0], {}, units, UnitConstants::kDimensionless, solverOfThread());
  if (!std::ranges::all_of(tokens, isOfUnits) || value.is_broken || parsed->variableCount() > units.size()) {
    return text::errorAt(text, 0, text.size(), "a unit has words, * / ^ and numbers as exponents, such as kg*m/s^2",
                         Errc::kInvalid);
  }
  return value.unit;
}

/// None if there are too many base units.
std::optional<Unit> Dimensions::unitOf(const std::string& word) {
  const auto* const derived = std::ranges::find(kDerivedUnits, word, &NamedUnit::name);
  if (derived != std::end(kDerivedUnits)) {
    const Result<Unit> unit = read(derived->unit);
    return unit ? std::optional(*unit) : std::nullopt;
  }
  const auto base = std::ranges::find(bases_, word);
  const auto index = static_cast<std::size_t>(base - bases_.begin());
  if (index == kMostBaseUnits) return {};
  if (base == bases_.end()) bases_.push_back(word);
  Unit unit{};
  unit[index] = 1;
  return unit;
}

bool Dimensions::keep(const TreeView& tree, std::span<const std::int32_t> wrapper) const {
  const UnitValue value = valueOf(tree, wrapper, columns_, constants, solverOfThread());
  return !(target_ ? UnitValue::same(value, UnitValue(*target_)) : value).is_broken;
}

std::vector<std::optional<std::string>> Dimensions::ofConstants(const Expression& formula) const {
  Trees tree;
  tree.add(formula.tokens());
  UnitSolver& solver = solverOfThread();
  UnitValue value = valueOf(tree[0], {}, columns_, constants, solver);
  if (target_) value = UnitValue::same(value, UnitValue(*target_));
  value.settle();
  std::vector<std::optional<std::string>> units(solver.solutions.size());
  for (std::size_t i = 0; !value.is_broken && i < units.size(); ++i) {
    UnitValue one;
    one.solver = &solver;
    one.free = constants == UnitConstants::kFree ? static_cast<std::int32_t>(i) : kFixed;
    one.power = 1;
    one.settle();
    if (one.free == kFixed || one.free != value.free) units[i] = text(one.unit);
  }
  return units;
}

std::string Dimensions::text(const Unit& unit) const {
  std::string above, below;
  for (std::size_t i = 0; i < bases_.size(); ++i) {
    if (isZero(unit[i])) continue;
    std::string& part = unit[i] > 0 ? above : below;
    part += (part.empty() ? "" : "*") + bases_[i];
    if (!isZero(std::fabs(unit[i]) - 1)) part += "^" + exponentText(std::fabs(unit[i]));
  }
  if (below.empty()) return above.empty() ? "1" : above;
  if (below.find('*') != std::string::npos) below = "(" + below + ")";
  return (above.empty() ? "1" : above) + "/" + below;
}

std::string Dimensions::fingerprint() const {
  std::string all = fmt::format("{} {}", static_cast<int>(constants), static_cast<int>(rule));
  for (const Unit& unit : columns_) all += " " + text(unit);
  return all + " " + (target_ ? text(*target_) : "?");
}

}  // namespace srjit::search
