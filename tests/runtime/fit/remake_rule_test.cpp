#include "runtime/fit/progress.h"

#include <gtest/gtest.h>

namespace srjit::fit {
namespace {

TEST(RemakeRule, IsDueWhenWhatHasEndedTookAsLongAsMakingTheRest) {
  RemakeRule rule;
  rule.made(100, 8);
  rule.evaluated(100, 1000);
  EXPECT_FALSE(rule.isDue(25)) << "nothing had ended then";
  rule.evaluated(25, 2);
  EXPECT_FALSE(rule.isDue(25)) << "1.5 of 2 s";
  rule.evaluated(25, 0.8);
  EXPECT_TRUE(rule.isDue(25)) << "2.1 of 2 s";
  EXPECT_FALSE(rule.isDue(30)) << "2.1 of 2.4 s";
  EXPECT_TRUE(rule.isDue(1));
}

TEST(RemakeRule, IsNotDueBeforeHalfHasEnded) {
  RemakeRule rule;
  rule.made(100, 1);
  rule.evaluated(60, 1000);
  EXPECT_FALSE(rule.isDue(51));
  EXPECT_TRUE(rule.isDue(50));
}

TEST(RemakeRule, WhatWasThereIsLeftAsSoonAsHalfHasEnded) {
  RemakeRule rule;
  rule.made(3, 0);
  EXPECT_FALSE(rule.isDue(2));
  EXPECT_TRUE(rule.isDue(1));
}

TEST(RemakeRule, BeginsAgainWithEachProgram) {
  RemakeRule rule;
  rule.made(100, 8);
  rule.evaluated(10, 10);
  ASSERT_TRUE(rule.isDue(10));
  rule.made(10, 8);
  EXPECT_FALSE(rule.isDue(5));
}

}  // namespace
}  // namespace srjit::fit
