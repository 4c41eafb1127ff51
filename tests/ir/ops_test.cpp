// The operator table: names, values at exceptional points, derivatives.
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>

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

/// A value derived by hand from the operator's definition, not from its row.
struct Case {
  Op op;
  double x, y, z;
  double expected;
};

const Case kCases[] = {
    {Op::kAdd, kInfinity, -kInfinity, 0, kNan},
    {Op::kAdd, 1, 2, 0, 3},
    {Op::kSub, 1, 2, 0, -1},
    {Op::kSub, kInfinity, kInfinity, 0, kNan},
    {Op::kMul, 0, kInfinity, 0, kNan},
    {Op::kMul, -3, 2, 0, -6},
    {Op::kDiv, 1, 0, 0, kInfinity},
    {Op::kDiv, 1, -0.0, 0, -kInfinity},
    {Op::kDiv, 0, 0, 0, kNan},
    {Op::kDiv, 7, 2, 0, 3.5},
    {Op::kPow, -8, 1.0 / 3, 0, kNan},
    {Op::kPow, -2, 3, 0, -8},
    {Op::kPow, kNan, 0, 0, 1},
    {Op::kPow, 0, -1, 0, kInfinity},
    {Op::kPow, 0, 0, 0, 1},
    {Op::kNeg, 0, 0, 0, -0.0},
    {Op::kNeg, -5, 0, 0, 5},
    {Op::kFma, 0x1.0000001p0, 0x1.0000001p0, -1, 0x1.00000008p-27},
    {Op::kFma, 2, 3, 4, 10},
    {Op::kFms, 2, 3, 4, 2},
    {Op::kFnma, 2, 3, 4, -2},
    {Op::kInv, 4, 0, 0, 0.25},
    {Op::kInv, -0.0, 0, 0, -kInfinity},
    {Op::kSquare, -3, 0, 0, 9},
    {Op::kCube, -3, 0, 0, -27},
    {Op::kSqrt, -1, 0, 0, kNan},
    {Op::kSqrt, -0.0, 0, 0, -0.0},
    {Op::kSqrt, 9, 0, 0, 3},
    {Op::kCbrt, -27, 0, 0, -3},
    {Op::kAbs, -0.0, 0, 0, 0.0},
    {Op::kAbs, -kInfinity, 0, 0, kInfinity},
    {Op::kSign, -3, 0, 0, -1},
    {Op::kSign, kInfinity, 0, 0, 1},
    {Op::kSign, -0.0, 0, 0, -0.0},
    {Op::kSign, kNan, 0, 0, kNan},
    {Op::kMin, 0, -0.0, 0, -0.0},
    {Op::kMin, -0.0, 0, 0, -0.0},
    {Op::kMin, kNan, 1, 0, kNan},
    {Op::kMin, 1, kNan, 0, kNan},
    {Op::kMin, 2, -1, 0, -1},
    {Op::kMax, 0, -0.0, 0, 0.0},
    {Op::kMax, -0.0, 0, 0, 0.0},
    {Op::kMax, 1, kNan, 0, kNan},
    {Op::kMax, 2, -1, 0, 2},
    {Op::kFloor, -1.5, 0, 0, -2},
    {Op::kFloor, -0.0, 0, 0, -0.0},
    {Op::kCeil, -1.5, 0, 0, -1},
    {Op::kCeil, 1.5, 0, 0, 2},
    {Op::kRound, 2.5, 0, 0, 2},
    {Op::kRound, 3.5, 0, 0, 4},
    {Op::kRound, -2.5, 0, 0, -2},
    {Op::kMod, 7, 3, 0, 1},
    {Op::kMod, -7, 3, 0, 2},
    {Op::kMod, 7, -3, 0, -2},
    {Op::kMod, 1, 0, 0, kNan},
    {Op::kMod, 1e9, 7, 0, 6},
    {Op::kMod, 1e17, 3, 0, 1},
    {Op::kMod, 0.5, 0.001, 0, 0.00099999999999998957},  // 0.001 is a little more than a thousandth
    {Op::kMod, -1, kInfinity, 0, kInfinity},
    {Op::kMod, -6, 3, 0, 0.0},
    {Op::kMod, 6, -3, 0, -0.0},
    {Op::kExp, 0, 0, 0, 1},
    {Op::kExp, -kInfinity, 0, 0, 0},
    {Op::kExp, 1000, 0, 0, kInfinity},
    {Op::kExp2, 10, 0, 0, 1024},
    {Op::kExpm1, -kInfinity, 0, 0, -1},
    {Op::kExpm1, 0, 0, 0, 0},
    {Op::kLog, 0, 0, 0, -kInfinity},
    {Op::kLog, -1, 0, 0, kNan},
    {Op::kLog, 1, 0, 0, 0},
    {Op::kLog2, 8, 0, 0, 3},
    {Op::kLog2, 0, 0, 0, -kInfinity},
    {Op::kLog10, 1000, 0, 0, 3},
    {Op::kLog10, -1, 0, 0, kNan},
    {Op::kLog1p, -1, 0, 0, -kInfinity},
    {Op::kLog1p, 1e-300, 0, 0, 1e-300},
    {Op::kSin, 0, 0, 0, 0},
    {Op::kSin, kInfinity, 0, 0, kNan},
    {Op::kCos, 0, 0, 0, 1},
    {Op::kCos, kInfinity, 0, 0, kNan},
    {Op::kTan, -0.0, 0, 0, -0.0},
    {Op::kAsin, 1.5, 0, 0, kNan},
    {Op::kAsin, 0, 0, 0, 0},
    {Op::kAcos, 1, 0, 0, 0},
    {Op::kAcos, -1.5, 0, 0, kNan},
    {Op::kAtan, kInfinity, 0, 0, 1.5707963267948966},
    {Op::kAtan2, 1, 0, 0, 1.5707963267948966},
    {Op::kAtan2, 0, -1, 0, 3.141592653589793},
    {Op::kAtan2, -0.0, -1, 0, -3.141592653589793},
    {Op::kSinh, -kInfinity, 0, 0, -kInfinity},
    {Op::kCosh, 0, 0, 0, 1},
    {Op::kTanh, kInfinity, 0, 0, 1},
    {Op::kTanh, -1000, 0, 0, -1},
    {Op::kAsinh, -kInfinity, 0, 0, -kInfinity},
    {Op::kAcosh, 0.5, 0, 0, kNan},
    {Op::kAcosh, 1, 0, 0, 0},
    {Op::kAtanh, 1, 0, 0, kInfinity},
    {Op::kAtanh, 2, 0, 0, kNan},
    {Op::kErf, -kInfinity, 0, 0, -1},
    {Op::kErf, 0, 0, 0, 0},
    {Op::kLogistic, 0, 0, 0, 0.5},
    {Op::kLogistic, -1000, 0, 0, 0},
    {Op::kLogistic, 1000, 0, 0, 1},
    {Op::kAq, 3, 0, 0, 3},
    {Op::kAq, 6, 1e300, 0, 6e-300},
    {Op::kLt, 1, 2, 0, 1},
    {Op::kLt, 2, 2, 0, 0},
    {Op::kLt, kNan, 2, 0, 0},
    {Op::kLe, 2, 2, 0, 1},
    {Op::kLe, 2, kNan, 0, 0},
    {Op::kGt, 2, 1, 0, 1},
    {Op::kGt, 1, 1, 0, 0},
    {Op::kGt, 1, kNan, 0, 0},
    {Op::kGe, 1, 1, 0, 1},
    {Op::kGe, kNan, kNan, 0, 0},
    {Op::kIf, 1, 5, 7, 5},
    {Op::kIf, 0, 5, 7, 7},
    {Op::kIf, kNan, 5, 7, 7},
    {Op::kIf, -1, kNan, 7, 7},
    // gplearn's functions.py: closures by the threshold 0.001, compared with >
    {Op::kPdiv, 3, 2, 0, 1.5},
    {Op::kPdiv, 3, 0.001, 0, 1},
    {Op::kPdiv, 3, -0.0005, 0, 1},
    {Op::kPdiv, 3, -0.5, 0, -6},
    {Op::kPlog, 0.001, 0, 0, 0},
    {Op::kPlog, -1, 0, 0, 0},
    {Op::kPlog, 0, 0, 0, 0},
    {Op::kPsqrt, -4, 0, 0, 2},
    {Op::kPinv, 0.001, 0, 0, 0},
    {Op::kPinv, -0.5, 0, 0, -2},
    {Op::kPpow, -2, 3, 0, 8},
    {Op::kPpow, 0.0005, -3, 0, 1},
    {Op::kPpow, 4, -0.5, 0, 0.5},
    // EvoGP's loose operators: the denominator at least 1e-9 in magnitude, its sign kept
    {Op::kLooseDiv, 1, 0, 0, 1e9},
    {Op::kLooseDiv, 1, -0.0, 0, -1e9},
    {Op::kLooseDiv, 1, -1e-12, 0, -1e9},
    {Op::kLooseDiv, 6, -2, 0, -3},
    {Op::kLooseInv, 0, 0, 0, 1e9},
    {Op::kLooseInv, -4, 0, 0, -0.25},
    {Op::kLooseLog, 0, 0, 0, -1e9},
    {Op::kLooseLog, -1, 0, 0, 0},
    {Op::kLooseSqrt, -9, 0, 0, 3},
    {Op::kZdiv, 3, 0, 0, 1},
    {Op::kZdiv, 3, -0.0, 0, 1},
    {Op::kZdiv, 3, 1e-300, 0, 3 / 1e-300},
    {Op::kZdiv, 3, 4, 0, 0.75},
    {Op::kLoosePow, 0, 0, 0, 0},
    {Op::kLoosePow, -2, 3, 0, 8},
    {Op::kLoosePow, 0, 2, 0, 0},
    {Op::kLoosePow, 0, -1, 0, kInfinity},
};

TEST(Rows, EqualHandWrittenValues) {
  std::set<Op> seen;
  for (const Case& c : kCases) {
    seen.insert(c.op);
    const double got = applyRow<double>(c.op, c.x, c.y, c.z);
    const std::string call = std::string(infoOf(c.op).name) + "(" + std::to_string(c.x) + ", " + std::to_string(c.y) +
                             ", " + std::to_string(c.z) + ")";
    if (std::isnan(c.expected)) {
      EXPECT_TRUE(std::isnan(got)) << call << " is " << got;
    } else if (std::isinf(c.expected) || c.expected == 0) {
      EXPECT_EQ(got, c.expected) << call;
      EXPECT_EQ(std::signbit(got), std::signbit(c.expected)) << call;
    } else {
      EXPECT_NEAR(got, c.expected, 1e-15 * std::fabs(c.expected)) << call;
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
