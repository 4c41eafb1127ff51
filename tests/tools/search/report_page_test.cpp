#include "tools/search/page/report_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ir/text.h"

namespace srjit::search {
namespace {

const Engine& engine() {
  static const Engine made = Engine::create({.device = "cpu", .precision = Precision::kF64}).value();
  return made;
}

Json frontOf(std::initializer_list<const char*> formulas) {
  Json front = Json::array();
  for (const char* formula : formulas) front.push_back({{"formula", formula}, {"chosen", front.empty()}});
  return front;
}

TEST(ReportData, DrawsRowsAtEqualDistancesAndJudgesByAll) {
  constexpr std::size_t kRows = 7'001;
  std::vector<double> x(kRows), y(kRows);
  for (std::size_t i = 0; i < kRows; ++i) {
    x[i] = static_cast<double>(i) - 3;
    y[i] = 1e6 * x[i] + static_cast<double>(i);
  }
  y[11] = 1e300;
  const Json data = reportData(engine(), {.front = frontOf({"1e6 * x0", "log(x0)"}), .data = {{x}, y}}).value();
  EXPECT_EQ(data["rows"], kRows);
  ASSERT_EQ(data["y"].size(), kMostDrawnRows);
  ASSERT_EQ(data["columns"].size(), 1u);
  EXPECT_EQ(data["columns"][0]["name"], "x0");
  const Json &exact = data["front"][0], &log = data["front"][1];
  for (std::size_t i = 0; i < kMostDrawnRows; ++i) {
    const std::size_t row = i * kRows / kMostDrawnRows;
    EXPECT_EQ(data["columns"][0]["values"][i], x[row]);
    if (row == 11) continue;
    EXPECT_EQ(exact["residuals"][i], row);
  }
  EXPECT_EQ(exact["open_rows"], 0);
  EXPECT_EQ(log["open_rows"], 4);  // -3, -2, -1 and 0
  EXPECT_TRUE(std::isnan(log["residuals"][0].get<double>()));
  const double shares[] = {.025, .25, .5, .75, .975};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(exact["quantiles"][i].get<double>(), shares[i] * (kRows - 1), 1.01);  // row 11 went to the end
  }
}

TEST(ReportData, NumbersThatAreNotFinite) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> x{0, 1, inf, 2}, y{1, 2, 3, 4};
  Json front = frontOf({"1 / x0", "sqrt(-1 - abs(x0))"});
  front[0]["loss"] = inf;
  const Report report{.front = front, .data = {{x}, y}};
  const Json data = reportData(engine(), report).value();
  EXPECT_EQ(data["front"][0]["open_rows"], 1);  // 1 / inf is 0
  EXPECT_EQ(data["front"][1]["open_rows"], 4);
  EXPECT_TRUE(data["front"][1]["quantiles"].empty());
  const std::string page = reportPage(engine(), report).value();
  EXPECT_THAT(page, testing::HasSubstr("\"residuals\":[null,1.0,3.0,3.5]"));
  EXPECT_THAT(page, testing::HasSubstr("\"loss\":null"));
  EXPECT_THAT(page, testing::HasSubstr("\"values\":[0.0,1.0,null,2.0]"));
}

TEST(ReportData, ColumnsOfFormulasComeFirst) {
  std::vector<std::vector<double>> columns(100, std::vector<double>{1, 2, 3});
  DataView view{std::vector<ColumnView>(columns.begin(), columns.end()), columns[0]};
  const Json data = reportData(engine(), {.front = frontOf({"x90 + 1", "x95 - x1"}), .data = view}).value();
  ASSERT_EQ(data["columns"].size(), kMostDrawnColumns);
  EXPECT_EQ(data["columns_left_out"], 100 - kMostDrawnColumns);
  const char* const names[] = {"x1", "x90", "x95", "x0", "x2"};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(data["columns"][i]["name"], names[i]);
}

TEST(ReportPage, NamesEndNothing) {
  const std::string name = "</script><b>\xff' \"/* page.js */";
  const std::vector<double> x{1, 2};
  const std::string page = reportPage(engine(), {.front = frontOf({"x[0]"}),
                                                 .data = {{x}, x, {}, {name}},
                                                 .target_name = name,
                                                 .command = name,
                                                 .facts = {name}})
                               .value();
  EXPECT_EQ(page.find("</script><b>"), std::string::npos);
  EXPECT_EQ(page.find("\xff"), std::string::npos);
  const std::size_t begin = page.find("application/json\">\n") + 19, end = page.find("</script>", begin);
  const Json data = Json::parse(page.substr(begin, end - begin));
  EXPECT_EQ(data["target"], "</script><b>\ufffd' \"/* page.js */");
  EXPECT_EQ(data["columns"][0]["name"], data["target"]);
}

TEST(ReportPage, RefusesWhatDoesNotFit) {
  const std::vector<double> x{1, 2};
  EXPECT_EQ(reportData(engine(), {.front = frontOf({"x0"}), .data = {{x}}}).error().code, Errc::kInvalid);
  EXPECT_EQ(reportData(engine(), {.front = frontOf({"x0 +"}), .data = {{x}, x}}).error().code, Errc::kSyntax);
  EXPECT_FALSE(reportData(engine(), {.front = frontOf({"x1"}), .data = {{x}, x}}).ok());
}

}  // namespace
}  // namespace srjit::search
