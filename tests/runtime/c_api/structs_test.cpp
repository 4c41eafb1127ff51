// Structs of callers that were compiled with an older or a newer header.
#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/c_api/caller.h"

namespace srjit::c_api {
namespace {

/// A struct in two versions. The library here knows the second.
struct FirstVersion {
  std::uint64_t size;
  std::uint64_t old_member;
};
struct SecondVersion {
  std::uint64_t size;
  std::uint64_t old_member, new_member;
};
struct ThirdVersion {
  SecondVersion known;
  std::uint64_t unknown;
};

}  // namespace

template <>
inline constexpr std::size_t kFirstSize<SecondVersion> = sizeof(FirstVersion);

namespace {

TEST(CStructs, OfOtherVersions) {
  const FirstVersion first{sizeof first, 5};
  const auto read = [](const void* given) { return fromCaller(static_cast<const SecondVersion*>(given), "it"); };
  EXPECT_EQ(read(&first).old_member, 5U);
  EXPECT_EQ(read(&first).new_member, 0U);
  EXPECT_EQ(read(&first).size, sizeof(SecondVersion));
  EXPECT_EQ(read(nullptr).old_member, 0U);

  ThirdVersion third{{sizeof third, 6, 7}, 0};
  EXPECT_EQ(read(&third).new_member, 7U);
  third.unknown = 1;
  const auto codeOfRead = [&] {
    try {
      read(&third);
      return Errc::kSyntax;
    } catch (const ErrorException& refused) {
      return refused.error().code;
    }
  };
  EXPECT_EQ(codeOfRead(), Errc::kUnsupported);
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{8}, std::uint64_t{4097}, ~std::uint64_t{0}}) {
    third.known.size = size;
    EXPECT_EQ(codeOfRead(), Errc::kInvalid) << size;
  }

  // What is written ends with the caller's struct, and with what is known; the rest may hold anything.
  const auto write = [](auto& to) {
    describeTo(reinterpret_cast<SecondVersion*>(&to), "it", [](SecondVersion& it) {
      it.old_member = 10;
      it.new_member = 11;
    });
  };
  struct {
    FirstVersion it;
    std::uint64_t behind;
  } old = {{sizeof(FirstVersion), 1}, 77};
  write(old);
  EXPECT_EQ(old.it.size, sizeof(FirstVersion));
  EXPECT_EQ(old.it.old_member, 10U);
  EXPECT_EQ(old.behind, 77U);
  third = {{sizeof third, 1, 2}, 88};
  write(third);
  EXPECT_EQ(third.known.new_member, 11U);
  EXPECT_EQ(third.unknown, 88U);
}

}  // namespace
}  // namespace srjit::c_api
