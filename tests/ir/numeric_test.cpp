#include "ir/numeric.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <iterator>
#include <set>
#include <string>

namespace srjit {
namespace {

template <class T>
concept HasPrecision = requires { kPrecisionOf<T>; };
static_assert(HasPrecision<float> && HasPrecision<double> && !HasPrecision<long double> && !HasPrecision<int>);

TEST(Numeric, EveryPrecisionHasATypeAndAName) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < std::size(kPrecisions); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(kPrecisions[i]), i) << "the list has the order of the enumerators";
    EXPECT_EQ(withZeroOf(kPrecisions[i], []<class T>(T) { return kPrecisionOf<T>; }), kPrecisions[i]);
    EXPECT_TRUE(names.insert(nameOf(kPrecisions[i])).second);
  }
}

TEST(Numeric, EveryMathModeHasAName) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < std::size(kMathModes); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(kMathModes[i]), i) << "the list has the order of the enumerators";
    EXPECT_TRUE(names.insert(nameOf(kMathModes[i])).second);
  }
}

}  // namespace
}  // namespace srjit
