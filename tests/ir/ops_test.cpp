// The operator table: names, values at exceptional points, derivatives.
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/ops.h"
#include "ir/rows.h"
#include "tests/generators/data.h"
#include "tests/generators/population.h"

namespace srjit {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Ops, NamesAndTextsAreUnique) {
  std::map<std::string_view, std::size_t> owners;
  for (std::size_t i = 0; i < allOps().size(); ++i) {
    const OpInfo& info = allOps()[i];
    for (const std::string_view key : {info.name, info.text}) {
      const auto [entry, added] = owners.emplace(key, i);
      EXPECT_EQ(entry->second, i) << key << " is not unique";
      ASSERT_TRUE(findOp(key)) << key;
      EXPECT_EQ(static_cast<std::size_t>(*findOp(key)), i) << key;
    }
    EXPECT_GE(info.arity, 1) << info.name;
    EXPECT_LE(info.arity, kMaxArity) << info.name;
    EXPECT_FALSE(info.doc.empty()) << info.name;
    if (info.has(OpProps::kCommutative)) {
      EXPECT_GE(info.arity, 2) << info.name;
    }
  }
}

TEST(Ops, UnknownNamesAreNotFound) {
  for (const std::string_view name : {"", "sni", "SIN", "sin ", "x", "++", "addd", "ad"}) {
    EXPECT_FALSE(findOp(name)) << "'" << name << "'";
  }
}

TEST(Functions, ArityAndErrorsAreInRange) {
  std::set<std::string_view> names;
  for (const FunctionInfo& info : allFunctions()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_GE(info.arity, 1);
    EXPECT_LE(info.arity, kMaxArity);
    for (const double ulp : {info.ulp_f32, info.ulp_f64}) {
      EXPECT_GE(ulp, 0) << info.name;
      EXPECT_LE(ulp, 1) << info.name;
    }
  }
}

/// Values derived by hand from the operator's definition, not from its row: first operands with the values, then the
/// other operands.
struct Case {
  Op op;
  std::vector<std::array<double, 2>> values;
  double y = 0, z = 0;
};

using enum Op;

const Case kCases[] = {{kAdd, {{kInfinity, kNan}}, -kInfinity},
                       {kAdd, {{1, 3}}, 2},
                       {kSub, {{1, -1}}, 2},
                       {kSub, {{kInfinity, kNan}}, kInfinity},
                       {kMul, {{0, kNan}}, kInfinity},
                       {kMul, {{-3, -6}}, 2},
                       {kDiv, {{1, kInfinity}}},
                       {kDiv, {{1, -kInfinity}}, -0.0},
                       {kDiv, {{0, kNan}}},
                       {kDiv, {{7, 3.5}}, 2},
                       {kPow, {{-8, kNan}}, 1.0 / 3},
                       {kPow, {{-2, -8}}, 3},
                       {kPow, {{kNan, 1}}},
                       {kPow, {{0, kInfinity}}, -1},
                       {kPow, {{0, 1}}},
                       {kNeg, {{0, -0.0}, {-5, 5}}},
                       {kFma, {{0x1.0000001p0, 0x1.00000008p-27}}, 0x1.0000001p0, -1},
                       {kFma, {{2, 10}}, 3, 4},
                       {kFms, {{2, 2}}, 3, 4},
                       {kFnma, {{2, -2}}, 3, 4},
                       {kInv, {{4, 0.25}, {-0.0, -kInfinity}}},
                       {kSquare, {{-3, 9}}},
                       {kCube, {{-3, -27}}},
                       {kSqrt, {{-1, kNan}, {-0.0, -0.0}, {9, 3}}},
                       {kCbrt, {{-27, -3}}},
                       {kAbs, {{-0.0, 0.0}, {-kInfinity, kInfinity}}},
                       {kSign, {{-3, -1}, {kInfinity, 1}, {-0.0, -0.0}, {kNan, kNan}}},
                       {kMin, {{0, -0.0}}, -0.0},
                       {kMin, {{-0.0, -0.0}}},
                       {kMin, {{kNan, kNan}}, 1},
                       {kMin, {{1, kNan}}, kNan},
                       {kMin, {{2, -1}}, -1},
                       {kMax, {{0, 0.0}}, -0.0},
                       {kMax, {{-0.0, 0.0}}},
                       {kMax, {{1, kNan}}, kNan},
                       {kMax, {{2, 2}}, -1},
                       {kFloor, {{-1.5, -2}, {-0.0, -0.0}}},
                       {kCeil, {{-1.5, -1}, {1.5, 2}}},
                       {kRound, {{2.5, 2}, {3.5, 4}, {-2.5, -2}}},
                       {kMod, {{7, 1}, {-7, 2}}, 3},
                       {kMod, {{7, -2}}, -3},
                       {kMod, {{1, kNan}}},
                       {kMod, {{1e9, 6}}, 7},
                       {kMod, {{1e17, 1}}, 3},
                       // 0.001 is a little more than a thousandth
                       {kMod, {{0.5, 0.00099999999999998957}}, 0.001},
                       {kMod, {{-1, kInfinity}}, kInfinity},
                       {kMod, {{-6, 0.0}}, 3},
                       {kMod, {{6, -0.0}}, -3},
                       {kExp, {{0, 1}, {-kInfinity, 0}, {1000, kInfinity}}},
                       {kExp2, {{10, 1024}}},
                       {kExpm1, {{-kInfinity, -1}, {0, 0}}},
                       {kLog, {{0, -kInfinity}, {-1, kNan}, {1, 0}}},
                       {kLog2, {{8, 3}, {0, -kInfinity}}},
                       {kLog10, {{1000, 3}, {-1, kNan}}},
                       {kLog1p, {{-1, -kInfinity}, {1e-300, 1e-300}}},
                       {kSin, {{0, 0}, {kInfinity, kNan}}},
                       {kCos, {{0, 1}, {kInfinity, kNan}}},
                       {kTan, {{-0.0, -0.0}}},
                       {kAsin, {{1.5, kNan}, {0, 0}}},
                       {kAcos, {{1, 0}, {-1.5, kNan}}},
                       {kAtan, {{kInfinity, 1.5707963267948966}}},
                       {kAtan2, {{1, 1.5707963267948966}}},
                       {kAtan2, {{0, 3.141592653589793}, {-0.0, -3.141592653589793}}, -1},
                       {kSinh, {{-kInfinity, -kInfinity}}},
                       {kCosh, {{0, 1}}},
                       {kTanh, {{kInfinity, 1}, {-1000, -1}}},
                       {kAsinh, {{-kInfinity, -kInfinity}}},
                       {kAcosh, {{0.5, kNan}, {1, 0}}},
                       {kAtanh, {{1, kInfinity}, {2, kNan}}},
                       {kErf, {{-kInfinity, -1}, {0, 0}}},
                       {kLogistic, {{0, 0.5}, {-1000, 0}, {1000, 1}}},
                       {kAq, {{3, 3}}},
                       {kAq, {{6, 6e-300}}, 1e300},
                       {kLt, {{1, 1}, {2, 0}, {kNan, 0}}, 2},
                       {kLe, {{2, 1}}, 2},
                       {kLe, {{2, 0}}, kNan},
                       {kGt, {{2, 1}, {1, 0}}, 1},
                       {kGt, {{1, 0}}, kNan},
                       {kGe, {{1, 1}}, 1},
                       {kGe, {{kNan, 0}}, kNan},
                       {kIf, {{1, 5}, {0, 7}, {kNan, 7}}, 5, 7},
                       {kIf, {{-1, 7}}, kNan, 7},
                       // gplearn's functions.py: closures by the threshold 0.001, compared with >
                       {kPdiv, {{3, 1.5}}, 2},
                       {kPdiv, {{3, 1}}, 0.001},
                       {kPdiv, {{3, 1}}, -0.0005},
                       {kPdiv, {{3, -6}}, -0.5},
                       {kPlog, {{0.001, 0}, {-1, 0}, {0, 0}}},
                       {kPsqrt, {{-4, 2}}},
                       {kPinv, {{0.001, 0}, {-0.5, -2}}},
                       {kPpow, {{-2, 8}}, 3},
                       {kPpow, {{0.0005, 1}}, -3},
                       {kPpow, {{4, 0.5}}, -0.5},
                       // EvoGP's loose operators: the denominator at least 1e-9 in magnitude, its sign kept
                       {kLooseDiv, {{1, 1e9}}},
                       {kLooseDiv, {{1, -1e9}}, -0.0},
                       {kLooseDiv, {{1, -1e9}}, -1e-12},
                       {kLooseDiv, {{6, -3}}, -2},
                       {kLooseInv, {{0, 1e9}, {-4, -0.25}}},
                       {kLooseLog, {{0, -1e9}, {-1, 0}}},
                       {kLooseSqrt, {{-9, 3}}},
                       {kLtSign, {{1, 1}, {2, -1}, {kNan, -1}}, 2},
                       {kLeSign, {{2, 1}, {3, -1}}, 2},
                       {kGtSign, {{2, 1}, {1, -1}}, 1},
                       {kGeSign, {{1, 1}, {0, -1}}, 1},
                       {kGeSign, {{1, -1}}, kNan},
                       {kZdiv, {{3, 1}}},
                       {kZdiv, {{3, 1}}, -0.0},
                       {kZdiv, {{3, 3 / 1e-300}}, 1e-300},
                       {kZdiv, {{3, 0.75}}, 4},
                       {kLoosePow, {{0, 0}}},
                       {kLoosePow, {{-2, 8}}, 3},
                       {kLoosePow, {{0, 0}}, 2},
                       {kLoosePow, {{0, kInfinity}}, -1}};

TEST(Rows, EqualHandWrittenValues) {
  std::set<Op> seen;
  for (const auto& [op, values, y, z] : kCases) {
    seen.insert(op);
    for (const auto& [x, expected] : values) {
      const double got = applyRow<double>(op, x, y, z);
      const std::string call = fmt::format("{}({}, {}, {})", infoOf(op).name, x, y, z);
      const bool is_exact = !std::isfinite(expected) || expected == 0;
      EXPECT_TRUE(is_exact ? sameBits(got, expected) : std::fabs(got - expected) <= 1e-15 * std::fabs(expected))
          << call << " is " << got << ", not " << expected;
    }
  }
  for (std::size_t i = 0; i < allOps().size(); ++i) {
    EXPECT_TRUE(seen.contains(static_cast<Op>(i)))
        << infoOf(static_cast<Op>(i)).name << " has no value written by hand: add a row to kCases in this file, with a "
        << "value that follows from the operator's definition, not from its row in ir/ops.def";
  }
}

TEST(Rows, FloatRowsComputeInFloat) {
  // A bare literal in a row would compute in double, which a float cannot represent.
  for (std::size_t i = 0; i < allOps().size(); ++i) {
    const Op op = static_cast<Op>(i);
    const float got = applyRow<float>(op, 0.3f, 0.7f, 0.2f);
    const double wanted = applyRow<double>(op, 0.3f, 0.7f, 0.2f);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(got)) << infoOf(op).name;
    } else {
      EXPECT_NEAR(static_cast<double>(got), wanted, 1e-5 * (1 + std::fabs(wanted))) << infoOf(op).name;
    }
  }
}

TEST(Rows, CommutativeOperatorsGiveTheSameBits) {
  Random random(7);
  for (const Op op : allOperators()) {
    if (!infoOf(op).has(OpProps::kCommutative)) continue;
    for (int k = 0; k < 1000; ++k) {
      const double x = random.magnitude(-3, 3);
      const double y = random.chance(0.1) ? -x : random.magnitude(-3, 3);
      const double z = random.magnitude(-3, 3);
      const double a = applyRow<double>(op, x, y, z);
      const double b = applyRow<double>(op, y, x, z);
      ASSERT_EQ(a, b) << infoOf(op).name << " of " << x << " and " << y;
      ASSERT_EQ(std::signbit(a), std::signbit(b)) << infoOf(op).name << " of " << x << " and " << y;
    }
  }
}

using Real = long double;  // 64 bits of significand on x86-64, so that finite differences keep enough of it

/// Central difference of `op` in one operand; NaN if the value is not smooth or not finite.
Real difference(Op op, int operand, const Real (&at)[3]) {
  const auto value = [&](Real shift) {
    Real p[3] = {at[0], at[1], at[2]};
    p[operand] += shift;
    return applyRow<Real>(op, p[0], p[1], p[2]);
  };
  const Real h = 1e-6L;
  const Real middle = value(0);
  const Real forward = (value(h) - middle) / h;
  const Real backward = (middle - value(-h)) / h;
  const bool smooth = std::fabs(forward - backward) <= 1e-3L * (1 + std::fabs(forward));
  return smooth && std::isfinite(forward) ? (forward + backward) / 2 : std::numeric_limits<Real>::quiet_NaN();
}

TEST(Rows, DerivativesMatchDifferences) {
  Random random(11);
  for (const Op op : allOperators()) {
    for (int operand = 0; operand < arityOf(op); ++operand) {
      int compared = 0;
      for (int k = 0; k < 2000; ++k) {
        const Real at[3] = {random.between(-3.0, 3.0), random.between(-3.0, 3.0), random.between(-3.0, 3.0)};
        const Real expected = difference(op, operand, at);
        if (std::isnan(expected)) continue;
        ++compared;
        const Real r = applyRow<Real>(op, at[0], at[1], at[2]);
        const Real got = derivativeRow<Real>(op, operand, at[0], at[1], at[2], r);
        ASSERT_LE(std::fabs(got - expected), 1e-6L * (1 + std::fabs(expected)))
            << infoOf(op).name << ", operand " << operand << " at " << at[0] << ", " << at[1] << ", " << at[2] << ": "
            << got << ", differences give " << expected;
      }
      EXPECT_GE(compared, 300) << infoOf(op).name << ", operand " << operand;
    }
  }
}

TEST(Rows, DerivativesOfAbsentOperandsAreZero) {
  for (std::size_t i = 0; i < allOps().size(); ++i) {
    const Op op = static_cast<Op>(i);
    for (int operand = arityOf(op); operand < kMaxArity; ++operand) {
      EXPECT_EQ(derivativeRow<double>(op, operand, 0.5, 0.25, 0.125, 1.0), 0)
          << infoOf(op).name << ", operand " << operand;
    }
  }
}

TEST(Rows, GuardedRegionsHaveDerivativeZero) {
  // Inside the guarded region the value does not depend on the operand, so its derivative is 0.
  EXPECT_EQ(derivativeRow<double>(Op::kLooseDiv, 1, 2.0, 1e-10, 0.0, 2e9), 0);
  EXPECT_EQ(derivativeRow<double>(Op::kPlog, 0, 1e-4, 0.0, 0.0, 0.0), 0);
  EXPECT_EQ(derivativeRow<double>(Op::kPinv, 0, 1e-4, 0.0, 0.0, 0.0), 0);
  EXPECT_EQ(derivativeRow<double>(Op::kPdiv, 0, 1.0, 1e-4, 0.0, 1.0), 0);
}

}  // namespace
}  // namespace srjit
