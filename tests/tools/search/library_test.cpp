// The search as a library: in C++, and through srjit.h.
#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "ir/text.h"
#include "tests/runtime/c_api/owned.h"
#include "tools/search/interface/options.h"
#include "tools/search/library.h"

namespace srjit::search {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kSmall = "--device cpu --islands 2 --population 40 --offspring 40 --seconds 0 ";

/// Rows of two columns one behind the other, as in a C array, and a target that no short search finds.
struct Table {
  static constexpr std::size_t kRows = 60;
  std::vector<double> cells, first, second, target;

  Table() {
    for (std::size_t r = 0; r < kRows; ++r) {
      const double a = 0.5 + 0.05 * static_cast<double>(r), b = 1 + std::fmod(0.37 * static_cast<double>(r), 2.0);
      cells.insert(cells.end(), {a, b});
      first.push_back(a);
      second.push_back(b);
      target.push_back(std::sin(a * b) + std::cos(b * b + a));
    }
  }
  DataView view() const {
    return {.columns = {ColumnView(first), ColumnView(second)},
            .target = ColumnView(target),
            .names = ColumnNames({"mass", "the speed"})};
  }
};

std::string textOf(const Front& front, const ColumnNames& names) {
  std::string text;
  for (const Formula& formula : front.formulas()) {
    text +=
        fmt::format("{} {} {}\n", formula.complexity, formula.loss, print(formula.expression, Language::kInfix, names));
  }
  return text;
}

TEST(SearchLibrary, FindsWhatTheSearchWithOptionsFindsAndGoesOnFromItsState) {
  const Table table;
  const DataView data = table.view();
  const std::string small = kSmall;
  const SearchResult whole = search(data, parseSearchOptions(small + "--generations 12").value()).value();
  const Found begun = search(data, small + "--generations 5").value();
  EXPECT_EQ(begun.generations, 5u);
  std::vector<double> losses;
  const SearchCalls calls{.progress = [&](const Found& so_far) { losses.push_back(so_far.front.best()->loss); },
                          .state = begun.state};
  const Found ended = search(data, small + "--generations 12", calls).value();
  EXPECT_EQ(textOf(ended.front, data.names), textOf(whole.state.front, data.names));
  EXPECT_EQ(ended.candidates, whole.state.candidates);
  EXPECT_EQ(ended.end, "generations");
  EXPECT_EQ(ended.device, "cpu");
  ASSERT_FALSE(losses.empty());
  EXPECT_GE(losses.front(), ended.front.best()->loss);
  const Result<Found> other = search(data, small + "--generations 12 --seed 2", {.state = begun.state});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Errc::kInvalid);
  EXPECT_THAT(search(data, "--op add").error().message, StartsWith("unknown option '--op'"));
}

class CSearch : public testing::Test {
 protected:
  CSearch() {
    columns.data = table.cells.data();
    columns.columns = 2;
    columns.row_stride = 2 * sizeof(double);
    columns.column_stride = sizeof(double);
    target.data = table.target.data();
    target.columns = 1;
    columns.rows = target.rows = Table::kRows;
    columns.type = target.type = SRJIT_F64;
    data.columns = &columns;
    data.target = &target;
    data.names = names;
  }
  int32_t search(const char* options, const srjit_stop* stop = nullptr) {
    srjit_found* given = nullptr;
    const int32_t code = srjit_search(&data, options, stop, &given, &error);
    found.reset(given);
    return code;
  }

  Table table;
  const char* names[2] = {"mass", "the speed"};
  srjit_matrix columns = c_api::sized<srjit_matrix>(), target = columns;
  srjit_data data = c_api::sized<srjit_data>();
  srjit_error error = c_api::sized<srjit_error>();
  c_api::Owned<srjit_found> found;
};

TEST_F(CSearch, GivesTheFormulasOfTheSearchInCpp) {
  const std::string options = std::string(kSmall) + "--generations 6 --held-out 0.25";
  ASSERT_EQ(search(options.c_str()), SRJIT_OK) << error.message;
  const DataView view = table.view();
  const Found expected = search::search(view, options).value();
  ASSERT_EQ(srjit_found_count(found.get()), expected.front.size());
  for (std::size_t i = 0; i < expected.front.size(); ++i) {
    const Formula& formula = expected.front.formulas()[i];
    auto got = c_api::sized<srjit_formula>();
    ASSERT_EQ(srjit_found_get(found.get(), i, &got, &error), SRJIT_OK);
    EXPECT_EQ(got.text, print(formula.expression, Language::kInfix, view.names));
    EXPECT_EQ(parse(got.postfix, Language::kPostfix, view.names).value(), formula.expression);
    EXPECT_GT(std::strlen(got.latex), 0u);
    EXPECT_EQ(got.complexity, formula.complexity);
    for (const auto& [mine, its] : {std::pair(got.loss, formula.loss),
                                    {got.held_out, formula.held_out},
                                    {got.evidence, formula.evidence},
                                    {got.bic, formula.bic},
                                    {got.r2, formula.r2}}) {
      EXPECT_TRUE(mine == its || (std::isnan(mine) && std::isnan(its))) << mine << " and " << its;
    }
  }
  EXPECT_EQ(srjit_found_chosen(found.get()), expected.front.chosen() - expected.front.formulas().data());
  for (std::size_t i = 0; i < expected.notices.size(); ++i)
    EXPECT_EQ(srjit_found_notice(found.get(), i), expected.notices[i]);
  EXPECT_EQ(srjit_found_notice(found.get(), expected.notices.size()), nullptr);
}

TEST_F(CSearch, EndsOnRequest) {
  srjit_stop* stop = nullptr;
  ASSERT_EQ(srjit_stop_create(&stop, &error), SRJIT_OK);
  const c_api::Owned<srjit_stop> owned(stop);
  srjit_stop_request(stop);
  EXPECT_EQ(search(kSmall, stop), SRJIT_OK) << error.message;
  EXPECT_GT(srjit_found_count(found.get()), 0u);
}

TEST_F(CSearch, RefusesWhatItCannotTake) {
  const auto expectRefusal = [&](const srjit_data* of, const char* options, int32_t code, const char* words) {
    auto* given = reinterpret_cast<srjit_found*>(this);
    EXPECT_EQ(srjit_search(of, options, nullptr, &given, &error), code);
    EXPECT_THAT(error.message, HasSubstr(words));
    EXPECT_EQ(given, nullptr);
  };
  expectRefusal(nullptr, nullptr, SRJIT_ERROR_INVALID, "data is NULL");
  expectRefusal(&data, "--ops add,foo", SRJIT_ERROR_INVALID, "--ops:1:5: unknown operator 'foo'");
  expectRefusal(&data, "--data t.csv", SRJIT_ERROR_INVALID, "unknown option '--data'");
  data.target = nullptr;
  expectRefusal(&data, kSmall, SRJIT_ERROR_INVALID, "target");
  data.target = &target;
  columns.on_device = target.on_device = 1;
  expectRefusal(&data, kSmall, SRJIT_ERROR_UNSUPPORTED, "on the device");
  EXPECT_EQ(srjit_search(&data, nullptr, nullptr, nullptr, &error), SRJIT_ERROR_INVALID);
  auto formula = c_api::sized<srjit_formula>();
  EXPECT_EQ(srjit_found_get(nullptr, 0, &formula, &error), SRJIT_ERROR_INVALID);
  EXPECT_EQ(srjit_found_count(nullptr), 0u);
  EXPECT_EQ(srjit_found_notice(nullptr, 0), nullptr);
}

}  // namespace
}  // namespace srjit::search
