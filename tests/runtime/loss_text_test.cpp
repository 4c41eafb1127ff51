#include "runtime/loss_text.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace srjit {
namespace {

using ::testing::HasSubstr;

TEST(LossText, NamesAndConstants) {
  for (const LossInfo& info : allLosses()) {
    const Result<LossOptions> loss = parseLoss(info.name);
    ASSERT_TRUE(loss) << info.name;
    EXPECT_EQ(loss->kind, info.kind);
    EXPECT_FALSE(loss->tuning || loss->custom);
  }
  EXPECT_EQ(parseLoss("huber:2.5")->tuning, 2.5);
  EXPECT_EQ(parseLoss("huber: 2.5 ")->tuning, 2.5);
  for (const char* text : {"huber:", "huber:x", "huber:1 2", "huber: "}) {
    const Result<LossOptions> loss = parseLoss(text);
    ASSERT_FALSE(loss) << text;
    EXPECT_THAT(loss.error().message, HasSubstr("expected a number behind the colon")) << text;
  }
}

TEST(LossText, Expressions) {
  EXPECT_TRUE(parseLoss("w*abs(f - y)^1.5")->custom);
  EXPECT_TRUE(parseLoss("f")->custom);
  const Result<LossOptions> open = parseLoss("abs(f - ");
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().code, Errc::kSyntax);
  EXPECT_TRUE(open.error().where);
  const Result<LossOptions> word = parseLoss("msx");
  ASSERT_FALSE(word);
  EXPECT_EQ(word.error().code, Errc::kInvalid);
  EXPECT_FALSE(word.error().where);
  EXPECT_THAT(word.error().message, HasSubstr("is none of sse, mse"));
  EXPECT_FALSE(parseLoss(""));
}

// In expressions of data x0 is the first column; in a loss it would be the prediction.
TEST(LossText, OnlyTheNamesOfALossAreOperands) {
  for (const auto& [text, column] : {std::pair("x0", 1U), {"abs(f - x1)", 9U}, {"f*p0", 3U}, {"f + x[2]", 5U}}) {
    const Result<LossOptions> loss = parseLoss(text);
    ASSERT_FALSE(loss) << text;
    ASSERT_TRUE(loss.error().where) << text;
    EXPECT_EQ(loss.error().where->column, column) << text;
    EXPECT_THAT(loss.error().message, HasSubstr("expected f for the prediction, y for the target or w")) << text;
  }
  EXPECT_TRUE(parseLoss("exp(-f) + 1e5*pow(y, 2) + expm1(f)"));
}

}  // namespace
}  // namespace srjit
