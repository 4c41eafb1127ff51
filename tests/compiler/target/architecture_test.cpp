#include "compiler/target/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace srjit {
namespace {

TEST(Architectures, ListsEqualTheTable) {
  std::vector<std::string_view> with_ptx;
  std::vector<unsigned> direct;
  for (const Architecture& row : allArchitectures()) {
    if (row.has_ptx) with_ptx.push_back(row.name);
    if (row.has_direct_code) direct.push_back(row.number);
    EXPECT_EQ(row.name, "sm_" + std::to_string(row.number));
    EXPECT_EQ(&architectureOf(row.number), &row);
    EXPECT_EQ(&architectureOf(row.name), &row);
  }
  EXPECT_THAT(ptxArchitectures(), testing::ElementsAreArray(with_ptx));
  EXPECT_THAT(directArchitectures(), testing::ElementsAreArray(direct));
  EXPECT_THAT(direct, testing::IsSupersetOf({80U, 90U, 120U}));
}

TEST(Architectures, UnknownNumbersInheritThePreviousRow) {
  EXPECT_EQ(architectureOf(88).number, 87U);
  EXPECT_EQ(architectureOf(101).number, 100U);
  EXPECT_EQ(architectureOf(121).number, 120U);
  EXPECT_EQ(architectureOf(60).number, 75U) << "older than all";
}

TEST(Architectures, GenerationsDifferInParameterOffsets) {
  EXPECT_EQ(architectureOf(80).parameters, 0x160);
  EXPECT_EQ(architectureOf(90).parameters, 0x210);
  EXPECT_EQ(architectureOf(100).parameters, 0x380);
}

}  // namespace
}  // namespace srjit
