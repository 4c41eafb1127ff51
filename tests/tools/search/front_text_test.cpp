#include "tools/search/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

namespace srjit::search {
namespace {

using testing::HasSubstr;

void addTo(Front& front, std::string_view infix, std::size_t complexity, double loss, double held_out,
           const ColumnNames& columns, double evidence = std::nan(""), double bic = std::nan(""),
           double r2 = std::nan("")) {
  Formula formula{*parse(infix, Language::kInfix, columns), complexity, loss, held_out, evidence, bic, r2};
  ASSERT_TRUE(front.add(std::move(formula)));
}

const ColumnNames& textColumns() {
  static const ColumnNames columns{"x", "a \"b\", c", "mass"};
  return columns;
}

Front sampleFront() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Front front;
  addTo(front, "x", 1, 0.1 + 0.2, nan, textColumns());
  addTo(front, "max(x, mass)", 3, 1.25e-5, 0.5, textColumns(), 12.345678, -24.691356, 1 - 1.25e-5);
  addTo(front, "x / `a \"b\", c`", 4, 0, 1e-300, textColumns(), -HUGE_VAL, nan, 1);
  return front;
}

TEST(FrontText, Csv) {
  EXPECT_EQ(csvText(sampleFront(), textColumns()),
            "complexity,loss,held_out,evidence,bic,r2,formula\n"
            "1,0.30000000000000004,,,,,x\n"
            "3,1.25e-05,0.5,12.3457,-24.6914,0.999988,\"max(x, mass)\"\n"
            "4,0,1e-300,-inf,,1,\"x / `a \"\"b\"\", c`\"\n");
  EXPECT_EQ(csvText(Front(), {}), "complexity,loss,held_out,evidence,bic,r2,formula\n");
}

TEST(FrontText, Json) {
  const auto array = nlohmann::json::parse(dump(frontJson(sampleFront(), textColumns())));
  ASSERT_EQ(array.size(), 3u);
  EXPECT_EQ(array[0]["loss"], 0.1 + 0.2);
  EXPECT_TRUE(array[0]["held_out"].is_null());
  EXPECT_EQ(array[1]["complexity"], 3);
  EXPECT_EQ(array[1]["held_out"], 0.5);
  EXPECT_EQ(array[1]["evidence"], 12.345678);
  EXPECT_EQ(array[1]["bic"], -24.691356);
  EXPECT_EQ(array[1]["r2"], 1 - 1.25e-5);
  EXPECT_TRUE(array[2]["evidence"].is_null());
  EXPECT_EQ(array[1]["latex"], "\\max\\left(x, \\mathrm{mass}\\right)");
  EXPECT_EQ(array[1]["postfix"], "x mass max");
  EXPECT_EQ(std::ranges::count_if(array, [](const auto& row) { return row["chosen"] == true; }), 1);
  ChosenDetails details{{}, {0, 1, 0}};
  details.uncertainty.standard_errors = {0.5, std::nan("")};
  for (const auto& row : nlohmann::json::parse(dump(frontJson(sampleFront(), textColumns(), &details)))) {
    EXPECT_EQ(row.contains("standard_errors"), row["chosen"]);
    if (row["chosen"] != true) continue;
    EXPECT_EQ(row["standard_errors"].dump(), "[0.5,null]");
    EXPECT_EQ(row["importances"].dump(), R"({"a \"b\", c":1.0,"mass":0.0,"x":0.0})");
  }
  for (const auto& row : array) {
    EXPECT_TRUE(parse(row["formula"].get<std::string>(), Language::kInfix, textColumns()).ok()) << row;
    EXPECT_EQ(row.size(), 10u);
  }
  EXPECT_EQ(dump(frontJson(Front(), {})), "[]\n");
}

// JSON is UTF-8, whatever a column is called.
TEST(FrontText, NamesThatAreNoText) {
  const ColumnNames columns{"\xff\xfe"};
  Front front;
  front.add({*Expression::create({Token::variable(0)}), 1, 1});
  const auto array = nlohmann::json::parse(dump(frontJson(front, columns)));
  EXPECT_EQ(array[0]["formula"], "`\\xff\\xfe`");
  EXPECT_EQ(array[0]["latex"], "\\text{\\textbackslash{}xff\\textbackslash{}xfe}");
}

TEST(FrontText, LatexTable) {
  const std::string table = latexTable(sampleFront(), textColumns());
  EXPECT_THAT(table, HasSubstr("\\begin{tabular}{rrl}\n"));
  EXPECT_THAT(table, HasSubstr("1 & $0.3$ & $\\displaystyle x$ \\\\\n"));
  EXPECT_THAT(table,
              HasSubstr("3 & $1.25 \\cdot 10^{-5}$ & $\\displaystyle \\max\\left(x, \\mathrm{mass}\\right)$ \\\\\n"));
  EXPECT_TRUE(table.ends_with("\\end{tabular}\n"));
}

}  // namespace
}  // namespace srjit::search
