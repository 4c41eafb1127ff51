#include "tools/search/formulas/dimensions.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "ir/rows.h"
#include "ir/text/lexer.h"
#include "tools/search/trees/names.h"

namespace srjit::search {
namespace {

/// BIPM, "The International System of Units", 9th edition, 2019, table 4.
constexpr std::string_view kDerivedUnits =
    ",rad:1,Hz:1/s,N:kg*m/s^2,Pa:kg/(m*s^2),J:kg*m^2/s^2,W:kg*m^2/s^3,C:A*s,V:kg*m^2/(s^3*A),F:A^2*s^4/(kg*m^2),"
    "ohm:kg*m^2/(s^3*A^2),Wb:kg*m^2/(s^2*A),T:kg/(s^2*A),H:kg*m^2/(s^2*A^2),";
constexpr std::string_view kTarget = "target";  // the word, and the role of a column
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

bool isZero(double exponent) { return std::fabs(exponent) < 1e-9; }

void add(Unit& to, const Unit& unit, double factor) {
  to.resize(std::max(to.size(), unit.size()));
  for (std::size_t i = 0; i < unit.size(); ++i) to[i] += factor * unit[i];
}

/// What a tree demands of the units that are not known: linear equations between exponents. Unknown units are behind
/// the base units.
struct Equations {
  struct Row {
    std::size_t unknown;  ///< with the factor 1, and in no later row
    Unit unit;
  };
  std::vector<Row> rows;
  bool are_broken = false;

  void solve(Unit& unit) const {
    for (const Row& row : rows) {
      if (row.unknown < unit.size() && !isZero(unit[row.unknown])) add(unit, row.unit, -unit[row.unknown]);
    }
  }
  /// That a unit is 1.
  void demand(Unit unit) {
    solve(unit);
    for (std::size_t i = kMostBaseUnits; i < unit.size(); ++i) {
      if (isZero(unit[i])) continue;
      const double factor = unit[i];
      for (double& exponent : unit) exponent /= factor;
      return rows.push_back({i, std::move(unit)});
    }
    are_broken = are_broken || !std::ranges::all_of(unit, isZero);
  }
};

thread_local Equations equations;  // of the tree that the thread looks at

/// The domain of units for the rows of ops.def.
struct UnitValue {
  UnitValue() = default;
  /// A number of a row. Zeros have any unit.
  explicit UnitValue(double value) : number(value), has_any_unit(value == 0) {}

  Unit unit = {};
  double number = kNoNumber;  ///< of a constant
  bool has_any_unit = false;

  struct Mask {};

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
  friend UnitValue copysign(const UnitValue& x, const UnitValue&) { return x; }
  friend UnitValue minimum(const UnitValue& x, const UnitValue& y) { return same(x, y); }
  friend UnitValue maximum(const UnitValue& x, const UnitValue& y) { return same(x, y); }
  friend UnitValue mod(const UnitValue& x, const UnitValue& y) { return same(x, y); }
  friend UnitValue atan2(const UnitValue& x, const UnitValue& y) { return same(x / y, UnitValue(1)); }
  friend UnitValue sqrt(const UnitValue& x) { return product(UnitValue(1), x, 0.5); }
  friend UnitValue cbrt(const UnitValue& x) { return product(UnitValue(1), x, 1.0 / 3); }
  friend UnitValue pow(const UnitValue& x, const UnitValue& y) {
    const UnitValue exponent = same(y, UnitValue(1));
    return std::isnan(y.number) ? same(x, exponent) : product(UnitValue(1), x, y.number);
  }
  friend Mask lt(const UnitValue& x, const UnitValue& y) { return same(x, y), Mask(); }
  friend Mask le(const UnitValue& x, const UnitValue& y) { return lt(x, y); }
  friend Mask eq(const UnitValue& x, const UnitValue& y) { return lt(x, y); }
  friend UnitValue select(Mask, const UnitValue& x, const UnitValue& y) { return same(x, y); }

  /// x * y^power.
  static UnitValue product(UnitValue x, const UnitValue& y, double power) {
    add(x.unit, y.unit, power);
    x.number = kNoNumber;
    x.has_any_unit |= y.has_any_unit && power != 0;
    return x;
  }
  static UnitValue same(UnitValue x, const UnitValue& y) {
    if (y.has_any_unit) return x;
    if (x.has_any_unit) return y;
    UnitValue ratio = x / y;
    equations.demand(std::move(ratio.unit));
    x.number = kNoNumber;
    return x;
  }
};

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

Unit unknown(std::size_t number) {
  Unit unit(kMostBaseUnits + number + 1);
  unit.back() = 1;
  return unit;
}

/// The unit of a tree; makes `equations` anew. The unknowns are the units of the constants in their order, and of
/// variables that are no columns; `unknowns` becomes their number.
UnitValue valueOf(const TreeView& tree, std::span<const std::int32_t> wrapper, std::span<const Unit> columns,
                  UnitConstants constants, std::size_t& unknowns) {
  thread_local std::vector<UnitValue> stack;
  stack.clear();
  equations = {};
  unknowns = 0;
  const auto take = [&](const Token& token) {
    UnitValue value;
    const auto arity = static_cast<std::size_t>(token.arity());
    const bool is_column = token.kind == Token::Kind::kVariable && token.index < columns.size();
    if (arity > 0) {
      const UnitValue* const x = &stack[stack.size() - arity];
      value = applyRow<UnitValue>(token.op, x[0], x[arity > 1 ? 1 : 0], x[arity > 2 ? 2 : 0]);
      stack.resize(stack.size() - arity);
    } else if (is_column) {
      value.unit = columns[token.index];
    } else {
      if (token.kind == Token::Kind::kConstant) value.number = token.value;
      if (token.kind == Token::Kind::kVariable || constants == UnitConstants::kFree) value.unit = unknown(unknowns++);
    }
    stack.push_back(std::move(value));
  };
  for (std::size_t i = 0; i < tree.size(); ++i) take(tree[i]);
  for (const std::int32_t code : wrapper) take(code == kConstantCode ? Token::constant(1) : tokenOf(code));
  return stack.back();
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

std::string textOf(const Unit& unit, std::span<const std::string> bases) {
  std::string above, below;
  for (std::size_t i = 0; i < std::min(unit.size(), bases.size()); ++i) {
    if (isZero(unit[i])) continue;
    std::string& part = unit[i] > 0 ? above : below;
    part += (part.empty() ? "" : "*") + bases[i];
    if (!isZero(std::fabs(unit[i]) - 1)) part += "^" + exponentText(std::fabs(unit[i]));
  }
  if (below.find('*') != std::string::npos) below = "(" + below + ")";
  if (above.empty()) above = "1";
  return below.empty() ? above : above + "/" + below;
}

}  // namespace

Result<Dimensions> Dimensions::parse(std::string_view text, const ColumnNames& columns, std::size_t count) {
  Dimensions all;
  std::vector<std::optional<Unit>> units(count + 1);  // the last is that of the target
  for (const auto& [begin, size] : itemsOf(text, 0, text.size())) {
    const std::string_view word = text.substr(begin, size), name = word.substr(0, word.rfind(':'));
    const auto fail = [&](const std::string& message) {
      return text::errorAt(text, begin, std::max<std::size_t>(name.size(), 1), message, Errc::kInvalid);
    };
    if (name.size() == word.size()) return fail("a unit is written NAME:UNIT, such as mass:kg");
    const std::optional<std::uint32_t> column = findColumn(name, columns, count);
    if (!column && name != kTarget && columns.roleOf(name) != kTarget) {
      return fail(fmt::format(
          "{} is neither the target nor a column{}; a name with a comma or a colon needs backquotes",
          text::inQuotes(name), columns.empty() ? "" : "; the columns are " + text::listNames(columns.names())));
    }
    if (units[column.value_or(count)]) return fail(fmt::format("{} has a unit already", text::inQuotes(name)));
    const Result<Unit> unit = all.read(word.substr(name.size() + 1));
    if (!unit) {
      Error error = unit.error();
      if (error.where) error.where->column += begin + name.size() + 1;
      return error;
    }
    units[column.value_or(count)] = *unit;
  }
  all.target_ = units[count];
  for (std::size_t c = 0; c < count; ++c) all.columns_.push_back(units[c].value_or(Unit()));
  return all;
}

/// A unit is an expression over its words.
Result<Unit> Dimensions::read(std::string_view text) {
  std::vector<std::string> words;
  std::vector<Unit> units;
  for (std::size_t i = 0, length = 1; i < text.size(); i += std::max<std::size_t>(length, 1)) {
    length = text::isDigit(text[i]) ? text::scanNumber(text, i) : text::scanWord(text, i);
    const std::string word(text.substr(i, length));
    if (!text::isIdentifier(word)) continue;
    const std::optional<Unit> unit = unitOf(word);
    if (!unit) {
      return text::errorAt(text, i, length, fmt::format("there are more than {} base units", kMostBaseUnits),
                           Errc::kInvalid);
    }
    words.push_back(word);
    units.push_back(*unit);
  }
  const Result<Expression> parsed = srjit::parse(text, Language::kInfix, ColumnNames(std::move(words)));
  if (!parsed) return parsed.error();
  const auto isOfUnits = [](const Token& token) {
    return token.arity() == 0 || token.op == Op::kMul || token.op == Op::kDiv || token.op == Op::kPow ||
           token.op == Op::kNeg;
  };
  Trees tree;
  tree.add(parsed->tokens());
  std::size_t unknowns = 0;
  const Unit unit = valueOf(tree[0], {}, units, UnitConstants::kDimensionless, unknowns).unit;
  if (equations.are_broken || !std::ranges::all_of(parsed->tokens(), isOfUnits)) {
    return text::errorAt(text, 0, text.size(), "a unit has words, * / ^ and numbers as exponents, such as kg*m/s^2",
                         Errc::kInvalid);
  }
  return unit;
}

/// None if there are too many base units.
std::optional<Unit> Dimensions::unitOf(const std::string& word) {
  if (const std::size_t place = kDerivedUnits.find("," + word + ":"); place != std::string_view::npos) {
    const std::size_t begin = place + word.size() + 2;
    const Result<Unit> unit = read(kDerivedUnits.substr(begin, kDerivedUnits.find(',', begin) - begin));
    return unit ? std::optional(*unit) : std::nullopt;
  }
  const auto index = static_cast<std::size_t>(std::ranges::find(bases_, word) - bases_.begin());
  if (index == kMostBaseUnits) return {};
  if (index == bases_.size()) bases_.push_back(word);
  Unit unit(index + 1);
  unit[index] = 1;
  return unit;
}

/// Makes `equations` those of a formula. An unknown unit of the target is the last unknown; gives its number.
std::size_t Dimensions::equate(const TreeView& tree, std::span<const std::int32_t> wrapper) const {
  std::size_t unknowns = 0;
  UnitValue value = valueOf(tree, wrapper, columns_, constants, unknowns), target;
  target.unit = target_.value_or(unknown(unknowns));
  UnitValue::same(value, target);
  return unknowns;
}

bool Dimensions::keep(const TreeView& tree, std::span<const std::int32_t> wrapper) const {
  equate(tree, wrapper);
  return !equations.are_broken;
}

std::vector<std::optional<std::string>> Dimensions::ofConstants(const Expression& formula) const {
  Trees tree;
  tree.add(formula.tokens());
  const std::size_t target = equate(tree[0], {});
  std::vector<std::optional<std::string>> units(constantsIn(formula.tokens()));
  for (std::size_t i = 0; !equations.are_broken && i < units.size(); ++i) {
    Unit unit = constants == UnitConstants::kFree ? unknown(i) : Unit();
    equations.solve(unit);
    const bool is_open = unit.size() > kMostBaseUnits + target && !isZero(unit[kMostBaseUnits + target]);
    if (!is_open) units[i] = textOf(unit, bases_);
  }
  return units;
}

}  // namespace srjit::search
