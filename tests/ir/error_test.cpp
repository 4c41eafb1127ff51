#include "ir/error.h"

#include <gtest/gtest.h>

namespace srjit {
namespace {

TEST(Result, ValueOfAnErrorThrows) {
  const Result<int> bad = Error{Errc::kUnsupported, "no such thing", Span{2, 3, 4}};
  try {
    static_cast<void>(bad.value());
    FAIL() << "nothing was thrown";
  } catch (const ErrorException& thrown) {
    EXPECT_STREQ(thrown.what(), "no such thing");
    EXPECT_EQ(thrown.error().code, Errc::kUnsupported);
    ASSERT_TRUE(thrown.error().where);
    EXPECT_EQ(thrown.error().where->column, 3U);
  }
  EXPECT_THROW(static_cast<void>(Result<int>(bad).value()), ErrorException) << "of a temporary";
  EXPECT_EQ(Result<int>(7).value(), 7);
}

}  // namespace
}  // namespace srjit
