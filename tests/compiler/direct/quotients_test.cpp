// Quotients and square roots of the direct tier are rounded correctly, for estimates of the special function unit that
// are inaccurate.
#include <gtest/gtest.h>

#include "tests/compiler/direct/run.h"
#include "tests/generators/graphs.h"
#include "tests/generators/hard_pairs.h"

namespace srjit {
namespace {

template <class T>
class DirectQuotients : public ::testing::Test {};
using QuotientNumbers = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DirectQuotients, QuotientNumbers);

TYPED_TEST(DirectQuotients, AndRootsAreRoundedCorrectly) {
  using T = TypeParam;
  constexpr std::size_t kCount = 100'000;
  const Precision precision = kPrecisionOf<T>;
  const Dag dag =
      ran(graphOf({"x0/x1", "inv(x1)", "sqrt(x0)", "sqrt(abs(x1))", "neg(x0)/abs(x1)", "sqrt(neg(x1))"}, precision),
          "hoist, schedule", Math::kStrict);
  const Pairs<T> pairs = hardPairs(kCount, T());
  DirectData<T> data{.rows = kCount, .stride = kCount, .columns = {}, .target = {}, .weights = {}};
  data.target.assign(kCount, 0);
  data.weights = data.target;
  data.columns = pairs.x;
  data.columns.insert(data.columns.end(), pairs.y.begin(), pairs.y.end());
  const DirectOptions options{.precision = precision, .math = Math::kStrict};
  const Made made = make(dag, options);
  ASSERT_TRUE(made.part.refused.empty());
  const auto values = expected(dag, data);
  for (const std::uint32_t inaccuracy : {0, 1, 2}) {
    const auto out = runDirect(dag, made.part, made.image, options, data, {.row_blocks = 4, .warps = 8}, inaccuracy);
    for (std::size_t root = 0; root < values.size(); ++root) {
      for (std::size_t r = 0; r < data.rows; ++r) {
        const T value = out.results[(root + 3) % values.size() * data.rows + r];
        ASSERT_TRUE(sameBits(value, values[root][r])) << textOf(dag, root) << " of " << pairs.x[r] << ", " << pairs.y[r]
                                                      << ": " << value << ", not " << values[root][r];
      }
    }
  }
}

}  // namespace
}  // namespace srjit
