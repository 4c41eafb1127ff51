// Units of columns: what formulas keep, the units of constants, and searches for laws with units.
#include "tools/search/formulas/dimensions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "ir/ops.h"
#include "ir/reference.h"
#include "tests/generators/population.h"
#include "tests/tools/search/small_command.h"
#include "tests/tools/search/small_runs.h"
#include "tools/search/formulas/neighbourhood.h"
#include "tools/search/formulas/rounding.h"

namespace srjit::search {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Optional;
using testing::StrEq;

/// Of columns without names and a target y.
ColumnNames targetName() { return ColumnNames({}, {{"y", "target"}}); }

Dimensions dimensionsOf(std::string_view text, std::size_t columns = 4) {
  return Dimensions::parse(text, targetName(), columns).value();
}

bool keeps(const Dimensions& dimensions, const Expression& formula) {
  Trees tree;
  tree.add(formula.tokens());
  return dimensions.keep(tree[0]);
}

bool keeps(const char* units, const char* formula) { return keeps(dimensionsOf(units), infix(formula)); }

std::string constantsOf(const char* units, const char* formula) {
  std::string all;
  for (const auto& unit : dimensionsOf(units).ofConstants(infix(formula))) {
    all += (all.empty() ? "" : ", ") + unit.value_or("?");
  }
  return all;
}

TEST(Dimensions, SumsNeedEqualUnitsAndFunctionsNone) {
  const char* units = "x0:m,x1:s,x2:kg,y:m";
  for (const char* kept :
       {"x0", "x0 + 2", "x0 + 2 * x1", "sqrt(x0 * x0)", "x0 * exp(2 * x1)", "abs(-x0)", "x0^2 / x0", "max(x0, 3 * x2)",
        "x0 * (x1 / x1)^x3", "if(x1, x0, 2)", "x0^(1/2) * x0^0.5", "cbrt(cube(x0))", "x0 * sign(x1 / x1)",
        "fma(x1, 2, x0)", "2 * x1^0.3", "atan2(x2, 3 * x1) * x0", "3"}) {
    EXPECT_TRUE(keeps(units, kept)) << kept;
  }
  for (const char* broken :
       {"x1", "x0 + x1", "x0 * exp(x1)", "x0^2", "x0 * x1^x3", "x0 * 2^x1", "sqrt(x0)", "if(x1, x0, x1)", "max(x0, x2)",
        "x0 * lt(x1, x2)", "aq(x0, x1)", "pdiv(x0 * x1, x1)", "exp(2 * x0)", "x0 * atan2(x1, x2)", "log(3)"}) {
    EXPECT_FALSE(keeps(units, broken)) << broken;
  }
  EXPECT_TRUE(keeps("x0:m", "exp(2 * x0)")) << "the target's unit is open";
  EXPECT_TRUE(keeps("y:m", "2 * x0")) << "a column without a unit is a number";
  EXPECT_FALSE(keeps("y:m", "x0"));
}

TEST(Dimensions, ConstantsHaveTheUnitsOfTheirPlaces) {
  EXPECT_EQ(constantsOf("x0:J,x1:K,y:1", "exp(-x0 / (1.38e-23 * x1))"), "kg*m^2/(s^2*K)");
  EXPECT_EQ(constantsOf("x0:kg,x1:m,y:N", "6.7e-11 * x0 * x0 / x1^2"), "m^3/(kg*s^2), 1");
  EXPECT_EQ(constantsOf("x0:m,y:s", "2 + 3 * 4 * sqrt(x0)"), "s, s/m^(1/2), 1");
  EXPECT_EQ(constantsOf("x0:m,x1:s", "2 * x0 + 3 * x1"), "?, ?") << "only the target could tell";
  EXPECT_EQ(constantsOf("x0:m,y:m", "2 * x0 + 3 * x1 + exp(5) * x0"), "1, m, 1");
  EXPECT_EQ(constantsOf("x0:m,y:s", "2 * x0^1.25"), "s/m^(5/4), 1");
  EXPECT_EQ(constantsOf("x0:apple,x1:EUR,y:EUR", "3 * x0 + x1"), "EUR/apple");
  EXPECT_EQ(constantsOf("x0:m,y:m", "lt(2, 3) * x0"), "1, 1");
  EXPECT_EQ(constantsOf("x0:m,x1:s,y:m", "2 * x0 + x1"), "?") << "a broken formula";
}

TEST(Dimensions, ReadUnits) {
  const auto unit = [](const char* text) { return constantsOf(fmt::format("y:{}", text).c_str(), "2"); };
  EXPECT_EQ(unit("kg*m/s^2"), "kg*m/s^2");
  EXPECT_EQ(unit("J/(mol*K)"), "kg*m^2/(s^2*mol*K)");
  EXPECT_EQ(unit("V*A/W"), "1");
  EXPECT_EQ(unit("Wb/(H*A)"), "1");
  EXPECT_EQ(unit("F*V/C"), "1");
  EXPECT_EQ(unit("T*m^2/Wb"), "1");
  EXPECT_EQ(unit("ohm*A/V"), "1");
  EXPECT_EQ(unit("Pa*m^2/N"), "1");
  EXPECT_EQ(unit("rad*Hz"), "1/s");
  EXPECT_EQ(unit("s^(1/2)"), "s^(1/2)");
  EXPECT_EQ(unit("m^-1.5"), "1/m^(3/2)");
  EXPECT_EQ(unit("1"), "1");
  struct Case {
    const char* text;
    const char* message;
    std::size_t column;
  };
  const Case cases[] = {{"x0:m,z:s", "'z' is neither", 6},
                        {"x9:m", "'x9' is neither", 1},
                        {"x0:m,x0:s", "'x0' has a unit already", 6},
                        {"x0", "NAME:UNIT", 1},
                        {"x0:m,,", "NAME:UNIT", 6},
                        {"x0:kg*", "expected", 7},
                        {"x0:1/(m*s", "expected ", 10},
                        {"x0:m+s", "a unit has words", 4},
                        {"x0:sqrt(m)", "a unit has words", 4},
                        {"x0:m^s", "a unit has words", 4},
                        {"x0:a*b*c*d,x1:e*f*g*h*k", "more than 8 base units", 23}};
  for (const Case& bad : cases) {
    const Result<Dimensions> parsed = Dimensions::parse(bad.text, targetName(), 4);
    ASSERT_FALSE(parsed) << bad.text;
    EXPECT_THAT(parsed.error().message, HasSubstr(bad.message)) << bad.text;
    ASSERT_TRUE(parsed.error().where) << bad.text;
    EXPECT_EQ(parsed.error().where->column, bad.column) << bad.text << ": " << parsed.error().message;
  }
}

/// A tree under a change of units: base units are `factors` times smaller, and so numbers are larger.
class Change {
 public:
  Change(const Dimensions& dimensions, const Expression& tree, const std::vector<std::string>& columns)
      : tree_(tree), columns_(columns), tokens_(tree.tokens().begin(), tree.tokens().end()) {
    const auto units = dimensions.ofConstants(tree);
    auto unit = units.begin();
    for (Token& token : tokens_) {
      if (token.kind == Token::Kind::kConstant) token.value *= factorOf((unit++)->value_or("1"));
    }
  }

  /// The factor by which the value changes; NaN where there is no value.
  double at(const std::vector<double>& row) const {
    std::vector<double> other;
    for (std::size_t c = 0; c < row.size(); ++c) other.push_back(row[c] * factorOf(columns_[c]));
    const double before = evaluateReference(tree_, row, {});
    const double after = evaluateReference(Expression::create(tokens_).value(), other, {});
    return before == 0 && after == 0 ? std::nan("") : after / before;
  }

 private:
  static double factorOf(const std::string& unit) {
    const double factors[] = {64, 0x1p-12, 0x1p18};
    return evaluateReference(parse(unit, Language::kInfix, {"m", "s", "kg"}).value(), factors, {});
  }

  const Expression& tree_;
  const std::vector<std::string>& columns_;
  std::vector<Token> tokens_;
};

/// Whether the value changes by one factor, wherever the variables are.
std::optional<bool> changesByOneFactor(const Change& change, Random& random) {
  std::optional<double> factor;
  for (int i = 0; i < 12; ++i) {
    std::vector<double> row;
    for (int c = 0; c < 4; ++c) row.push_back(random.between(0.2, 3.0));
    const double at = change.at(row);
    if (!std::isfinite(at)) continue;
    if (factor && std::fabs(at - *factor) > 1e-6 * std::fabs(*factor)) return false;
    if (!factor) factor = at;
  }
  return factor ? std::optional(true) : std::nullopt;
}

// The law is the same in any system of units: columns and constants in other units give values in another unit.
TEST(Dimensions, TreesThatKeepUnitsAreTheSameInOtherUnits) {
  const std::vector<std::string> columns = {"m", "s", "m/s", "1"};
  Random random(3);
  for (const char* target : {"1", "m", "m/s", "s^2"}) {
    for (const UnitConstants constants : {UnitConstants::kFree, UnitConstants::kDimensionless}) {
      Dimensions dimensions = dimensionsOf(fmt::format("x0:m,x1:s,x2:m/s,x3:kg/kg,y:{}", target));
      dimensions.constants = constants;
      ExpressionGenerator trees({.seed = 4,
                                 .min_nodes = 2,
                                 .max_nodes = 12,
                                 .variables = 4,
                                 .ops = allOperators(),
                                 .constant_probability = 0.4});
      std::size_t kept = 0;
      for (int i = 0; i < 12000; ++i) {
        const Expression tree = trees.next();
        if (!keeps(dimensions, tree)) continue;
        const std::optional<bool> is_same = changesByOneFactor(Change(dimensions, tree, columns), random);
        kept += is_same.has_value();
        ASSERT_NE(is_same, false) << print(tree, Language::kInfix);
      }
      EXPECT_GT(kept, target[0] == 's' ? 0u : 20u) << target;
    }
  }
}

TEST(Dimensions, TreesThatBreakUnitsAreNot) {
  const std::vector<std::string> columns = {"m", "s", "m/s", "1"};
  Dimensions dimensions = dimensionsOf("x0:m,x1:s,x2:m/s,x3:kg/kg");
  dimensions.constants = UnitConstants::kDimensionless;
  ExpressionGenerator trees({.seed = 6,
                             .min_nodes = 2,
                             .max_nodes = 12,
                             .variables = 4,
                             .ops = {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kSqrt, Op::kExp, Op::kSin, Op::kAbs},
                             .constant_probability = 0.3});
  Random random(8);
  std::size_t broken = 0, same = 0;
  for (int i = 0; i < 5000; ++i) {
    const Expression tree = trees.next();
    if (keeps(dimensions, tree)) continue;
    const std::optional<bool> is_same = changesByOneFactor(Change(dimensions, tree, columns), random);
    broken += is_same.has_value();
    same += is_same.value_or(false);
  }
  EXPECT_GT(broken, 1000u);
  EXPECT_LT(same, broken / 10) << "as x0 * (x1 - x1 + x0), or exp(-1e9 * x0)";
}

/// A law of the first columns, with three more that have nothing to do with it.
struct LawOfUnits {
  const char* law;
  const char* units;
};

TEST(DimensionsSlow, LawsWithUnitsAreFoundAmongOtherColumns) {
  const LawOfUnits laws[] = {{"x0 * x1", "x0:kg,x1:m/s^2,x2:K,x3:A,x4:s,y:N"},
                             {"x0 * 2.998^2", "x0:kg,x1:m,x2:K,x3:A,x4:s,y:J"},
                             {"sqrt(2 * x0 / x1)", "x0:m,x1:m/s^2,x2:kg,x3:A,x4:m,y:s"},
                             {"0.5 * x0 * x1^2 + 9.81 * x0 * x2", "x0:kg,x1:m/s,x2:m,x3:A,x4:s,y:J"}};
  for (const auto& [law, units] : laws) {
    for (const UnitConstants constants : {UnitConstants::kFree, UnitConstants::kDimensionless}) {
      const Expression expression = infix(law);
      RowSet rows = rowsOf(5, 200, [&](const auto& row) { return evaluateReference(expression, row, {}); }, 0.02);
      rows.names = targetName();
      SearchOptions options = smallOptions();
      options.generations = 15;
      options.units = units;
      options.unit_constants = constants;
      Dimensions dimensions = dimensionsOf(units, 5);
      dimensions.constants = constants;
      const Result<SearchResult> result = search(rows.view(), options);
      // The constants of two of the laws have units.
      const bool needs_units = law[0] == 'x' ? law[5] == '2' : law[0] == '0';
      if (needs_units && constants == UnitConstants::kDimensionless) {
        EXPECT_TRUE(!result || result->state.front.best()->loss > 1e-3) << law;
        if (!result) continue;
      }
      ASSERT_TRUE(result) << law << ": " << result.error().message;
      for (const Formula& formula : result->state.front.formulas()) {
        EXPECT_TRUE(keeps(dimensions, formula.expression)) << print(formula.expression, Language::kInfix);
      }
      if (!needs_units || constants == UnitConstants::kFree) {
        EXPECT_GT(result->state.front.chosen()->r2, 0.99) << law;
      }
      EXPECT_EQ(recordOf(*result), recordOf(search(rows.view(), options).value())) << law;
    }
  }
}

TEST(DimensionsSlow, APenaltyLetsDataDecide) {
  const RowSet rows = rowsOf(2, 200, [&](const auto& row) { return row[0] + row[1]; });
  SearchOptions options = smallOptions();
  options.generations = 10;
  options.units = "x0:m,x1:s,target:m";
  options.unit_constants = UnitConstants::kDimensionless;
  EXPECT_GT(search(rows.view(), options).value().state.front.best()->loss, 0.01);
  options.unit_rule = UnitRule::kPenalty;
  EXPECT_LT(search(rows.view(), options).value().state.front.best()->loss, 1e-12);
}

TEST(SearchColumns, AreAtMostSoMany) {
  const RowSet rows = rowsOf(4, 200, [&](const auto& row) { return row[0] + row[1] * row[2] + row[3] * row[3]; });
  SearchOptions options = smallOptions();
  options.generations = 16;
  options.grammar.max_columns = 2;
  const SearchResult result = search(rows.view(), options).value();
  for (const Formula& formula : result.state.front.formulas()) {
    std::array<bool, 4> used{};
    for (const Token& token : formula.expression.tokens()) {
      if (token.kind == Token::Kind::kVariable) used[token.index] = true;
    }
    EXPECT_LE(std::ranges::count(used, true), 2) << print(formula.expression, Language::kInfix);
  }
  EXPECT_GT(result.state.front.best()->r2, 0.5);
}

TEST(SearchTrends, HoldInTheBoxOfTheData) {
  // The best formula has a minimum at x0 = 2, and rises with x1.
  const auto law = [](const auto& row) { return (row[0] - 2) * (row[0] - 2) + 0.8 * row[0] + std::log(row[1]); };
  const RowSet rows = rowsOf(2, 200, law, 0.05);
  SearchOptions options = smallOptions();
  options.generations = 16;
  const auto slopes = [&](const Expression& formula, std::uint32_t column) {
    std::vector<double> found;
    for (double x0 = 1; x0 <= 3; x0 += 0.04) {
      for (double x1 = 1; x1 <= 3; x1 += 0.04) {
        std::vector<double> place = {x0, x1};
        const double before = evaluateReference(formula, place, {});
        place[column] += 1e-4;
        found.push_back((evaluateReference(formula, place, {}) - before) / 1e-4);
      }
    }
    return found;
  };
  const auto leastSlope = [&](const auto&... of) { return std::ranges::min(slopes(of...)); };
  const auto largestSlope = [&](const auto&... of) { return std::ranges::max(slopes(of...)); };
  EXPECT_LT(leastSlope(search(rows.view(), options).value().state.front.best()->expression, 0), -0.5);
  options.monotone = "x0:up,x1:up";
  const SearchResult result = search(rows.view(), options).value();
  for (const Formula& formula : result.state.front.formulas()) {
    for (const std::uint32_t column : {0, 1}) {
      EXPECT_GE(leastSlope(formula.expression, column), -1e-5) << print(formula.expression, Language::kInfix);
    }
  }
  EXPECT_GT(result.state.front.best()->r2, 0.6);
  RowSet falling = rows;
  for (double& target : falling.target) target = -target;
  options.monotone = "x0:down,x1:down";
  const SearchResult fallen = search(falling.view(), options).value();
  for (const Formula& formula : fallen.state.front.formulas()) {
    for (const std::uint32_t column : {0, 1}) {
      EXPECT_LE(largestSlope(formula.expression, column), 1e-5) << print(formula.expression, Language::kInfix);
    }
  }
  EXPECT_GT(fallen.state.front.best()->r2, 0.6);
}

TEST(SearchTrends, AreReadAndRefused) {
  EXPECT_THAT(parseTrends("b:up,zz:down", {"a", "b"}, 2).error().message, HasSubstr("'zz' is no column"));
  EXPECT_EQ(parseTrends("b:up,zz:down", {"a", "b"}, 2).error().where->column, 6u);
  EXPECT_THAT(parseTrends("b:up,b:down", {"a", "b"}, 2).error().message, HasSubstr("occurs twice"));
  EXPECT_THAT(parseTrends("b:rising", {"a", "b"}, 2).error().message, HasSubstr("COLUMN:up or COLUMN:down"));
}

TEST(SearchCommandPhysical, ConstantsGetTheirNames) {
  const Scratch scratch;
  std::string table = "n,T,V,energy\n";
  Random random(2);
  for (int i = 0; i < 300; ++i) {
    const double n = random.between(1.0, 3.0), t = random.between(280.0, 400.0), v = random.between(1.0, 2.0);
    table += fmt::format("{},{},{},{}\n", n, t, v, 8.31446 * n * t / v * (1 + 0.01 * random.between(-1.0, 1.0)));
  }
  scratch.write("table.csv", table);
  const auto chosen = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = commandOf({"--generations", "12", "--json"});
    words.insert(words.end(), more.begin(), more.end());
    for (const auto& formula : nlohmann::json::parse(runCommand(words, scratch.path(".")).out)) {
      if (formula.at("chosen")) return formula;
    }
    return nlohmann::json();
  };
  const auto formula = chosen({"--codata"});
  EXPECT_EQ(formula.at("constants"), nlohmann::json::parse(R"([{"value": 8.31446261815324, "name": "R"}])")) << formula;
  EXPECT_FALSE(chosen({}).contains("constants"));
}

TEST(SearchPhysical, NeedThreeDigits) {
  EXPECT_EQ(physicalNear(6.68e-11, 2e-13)->name, "G");
  EXPECT_EQ(physicalNear(-6.68e-11, 2e-13)->value, -6.6743e-11);
  EXPECT_FALSE(physicalNear(6.68e-11, 4e-13)) << "two digits";
  EXPECT_FALSE(physicalNear(6.68e-11, 1e-14));
  EXPECT_FALSE(physicalNear(0, 0));
  // Relations between them.
  const auto valueOf = [](double about) { return physicalNear(about, 1e-3 * about)->value; };
  const double c = valueOf(3e8), eps0 = valueOf(8.85e-12), mu0 = valueOf(1.2566e-6), h = valueOf(6.626e-34);
  EXPECT_NEAR(eps0 * mu0 * c * c, 1, 1e-9);
  EXPECT_NEAR(valueOf(1.0545e-34) * 2 * std::numbers::pi / h, 1, 1e-15);
  EXPECT_NEAR(valueOf(1.38e-23) * valueOf(6.02e23) / valueOf(8.314), 1, 1e-15);
  EXPECT_NEAR(valueOf(1.602e-19) * valueOf(6.02e23) / valueOf(96485), 1, 1e-15);
  const double e = valueOf(1.602e-19), alpha = valueOf(7.297e-3), mass = valueOf(9.109e-31);
  EXPECT_NEAR(e * e / (2 * eps0 * h * c) / alpha, 1, 1e-9);
  EXPECT_NEAR(mass * alpha * alpha * c / (2 * h) / valueOf(10973732), 1, 1e-9);
  EXPECT_NEAR(mass / valueOf(1.6726e-27), 1 / 1836.152673, 1e-12);
  EXPECT_NEAR(mass / valueOf(1.6605e-27), 5.485799090e-4, 1e-12);
}

TEST(SearchCommandUnits, AreShownWithJsonAndRefusedWithACaret) {
  const Scratch scratch;
  scratch.write("table.csv", tableOf(true));
  const auto run = [&](const char* units) {
    return runCommand(commandOf({"--generations", "6", "--json", "--units", units}), scratch.path("."));
  };
  const Outcome found = run("mass:kg,speed:m/s,energy:J");
  ASSERT_EQ(found.status, 0) << found.err;
  const auto front = nlohmann::json::parse(found.out);
  EXPECT_EQ(front.front().at("units"), nlohmann::json::array({"kg*m^2/s^2"})) << found.out;
  EXPECT_EQ(front.back().at("units").at(0), "1") << found.out;
  const Outcome bad = run("mass:kg,speed:m/");
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.err, HasSubstr("--units:1:17: ")) << bad.err;
  EXPECT_THAT(bad.err, HasSubstr("\n                ^")) << bad.err;
}

}  // namespace
}  // namespace srjit::search
