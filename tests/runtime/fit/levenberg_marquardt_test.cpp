#include "runtime/fit/levenberg_marquardt.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

namespace srjit::fit {
namespace {

using Complex = std::complex<double>;
using Parameters = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A prediction by parameters and one variable, and which parameters are linear.
struct Model {
  std::function<Complex(std::span<const Complex>, double)> predict;
  std::vector<std::uint32_t> linear;
};

struct Data {
  std::vector<double> x, y;
};

/// What an engine would give. Derivatives by a complex step (W. Squire, G. Trapp, SIAM Rev. 40(1), 1998), to the last
/// places.
std::vector<double> sumsOf(const Model& model, const Data& data, std::span<const double> parameters) {
  const std::size_t count = parameters.size();
  std::vector<double> sums(LevenbergMarquardt::sumsOf(count)), slopes(count);
  for (std::size_t row = 0; row < data.x.size(); ++row) {
    std::vector<Complex> at(parameters.begin(), parameters.end());
    const double residual = data.y[row] - model.predict(at, data.x[row]).real();
    for (std::size_t k = 0; k < count; ++k) {
      at[k] += Complex(0, 1e-100);
      slopes[k] = model.predict(at, data.x[row]).imag() / 1e-100;
      at[k] = parameters[k];
    }
    std::size_t place = 0;
    sums[place++] += residual * residual;
    for (std::size_t i = 0; i < count; ++i) sums[place++] += residual * slopes[i];
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = i; j < count; ++j) sums[place++] += slopes[i] * slopes[j];
    }
  }
  return sums;
}

double lossAt(const Model& model, const Data& data, std::span<const double> parameters) {
  return sumsOf(model, data, parameters)[0];
}

/// A fit with what goes on with it.
class Fit : public ParameterFit {
 public:
  Fit(const Model& model, const Parameters& start, Precision precision, const FitOptions& options)
      : ParameterFit(start, model.linear), method_(precision, options) {}

  void take(std::span<const double> sums) { method_.take(*this, sums); }
  void standardErrors(std::size_t rows, std::span<double> errors) { method_.standardErrors(*this, rows, errors); }

 private:
  LevenbergMarquardt method_;
};

Fit begun(const Model& model, const Parameters& start, const FitOptions& options = {}) {
  return {model, start, Precision::kF64, options};
}

/// Runs to the end.
Fit fitted(const Model& model, const Data& data, const Parameters& start, const FitOptions& options = {}) {
  Fit fit = begun(model, start, options);
  while (!fit.done()) fit.take(sumsOf(model, data, fit.trial()));
  return fit;
}

/// The model at `parameters` and x = 0, 1 / rows, ..., with noise of this size.
Data dataOf(const Model& model, const Parameters& parameters, std::size_t rows = 40, double noise = 0,
            double width = 4) {
  Data data;
  const std::vector<Complex> at(parameters.begin(), parameters.end());
  for (std::size_t row = 0; row < rows; ++row) {
    const double x = width * (static_cast<double>(row) + 0.5) / static_cast<double>(rows);
    data.x.push_back(x);
    data.y.push_back(model.predict(at, x).real() + noise * std::sin(1e3 * x * x));
  }
  return data;
}

const Model kLine{[](auto p, double x) { return p[0] * x + p[1]; }, {0, 1}};
const Model kDecay{[](auto p, double x) { return p[0] * std::exp(-p[1] * x) + p[2]; }, {0, 2}};
const Model kTwoDecays{[](auto p, double x) { return p[0] * std::exp(-p[1] * x) + p[2] * std::exp(-p[3] * x); },
                       {0, 2}};
const Model kLogistic{[](auto p, double x) { return p[0] / (1.0 + std::exp(p[1] - p[2] * x)); }, {0}};
const Model kRational{[](auto p, double x) { return (p[0] + p[1] * x) / (1.0 + p[2] * x); }, {0, 1}};
const Model kPeaks{[](auto p, double x) {
                     const Complex a = (x - p[1]) / p[2], b = (x - p[4]) / p[5];
                     return p[0] * std::exp(-a * a) + p[3] * std::exp(-b * b);
                   },
                   {0, 3}};
const Model kProduct{[](auto p, double x) { return p[0] * p[1] * x; }, {0}};
/// x > 10 has no rows.
const Model kBranch{[](auto p, double x) { return x > 10 ? p[1] * p[2] : p[0] * x + std::exp(p[3] * x); }, {0, 1}};
const Model kConstant{[](auto, double x) { return Complex(x); }, {}};

struct Problem {
  const char* name;
  Model model;
  Parameters truth, start;
};
const Problem kProblems[] = {
    {"line", kLine, {2, -1}, {0, 0}},
    {"decay", kDecay, {2, 1.5, 0.5}, {1, 0.2, 0}},
    {"decay from 0", kDecay, {2, 1.5, 0.5}, {0, 0, 0}},
    {"decays", kTwoDecays, {2, 0.5, 3, 4}, {1, 1, 1, 2}},
    {"logistic", kLogistic, {3, 2, 1.7}, {1, 1, 1}},
    {"rational", kRational, {1, 2, 0.3}, {1, 1, 1}},
    {"peaks", kPeaks, {2, 1, 0.4, 1, 2.5, 0.7}, {1, 0.8, 0.5, 1, 2.8, 0.5}},
};

TEST(ParameterFit, FindsTheParametersOfExactData) {
  for (const auto& [name, model, truth, start] : kProblems) {
    const Fit fit = fitted(model, dataOf(model, truth), start);
    EXPECT_EQ(fit.status(), FitStatus::kConverged) << name;
    EXPECT_LT(fit.loss(), 1e-15) << name;
    EXPECT_LT(fit.passes(), 40U) << name;
    for (std::size_t k = 0; k < truth.size(); ++k) EXPECT_NEAR(fit.parameters()[k], truth[k], 1e-6) << name << k;
  }
}

// At a minimum the residuals are orthogonal to the columns of J.
TEST(ParameterFit, FindsMinimaOfNoisyData) {
  for (const auto& [name, model, truth, start] : kProblems) {
    const Data data = dataOf(model, truth, 100, 0.05);
    const Fit fit = fitted(model, data, start, {.loss_tolerance = 1e-14});
    EXPECT_EQ(fit.status(), FitStatus::kConverged) << name;
    EXPECT_LE(fit.loss(), lossAt(model, data, truth)) << name;
    const std::size_t count = truth.size();
    const std::vector<double> sums = sumsOf(model, data, fit.parameters());
    EXPECT_EQ(sums[0], fit.loss()) << name;
    std::size_t diagonal = 1 + count;
    for (std::size_t k = 0; k < count; diagonal += count - k, ++k) {
      EXPECT_LT(std::fabs(sums[1 + k]), 1e-6 * std::sqrt(sums[0] * sums[diagonal])) << name << k;
    }
  }
}

// Of exact data, the second pass shows what the rounding of the normal equations has left.
TEST(ParameterFit, LinearProblemsTakeTwoPasses) {
  const Model cubic{[](auto p, double x) { return p[0] + x * (p[1] + x * (p[2] + x * p[3])); }, {0, 1, 2, 3}};
  for (const double noise : {0.0, 0.3}) {
    const Fit fit = fitted(cubic, dataOf(cubic, {1, -2, 3, 0.5}, 60, noise), {0, 0, 0, 0});
    EXPECT_EQ(fit.status(), FitStatus::kConverged);
    EXPECT_EQ(fit.passes(), noise > 0 ? 2U : 3U);
    EXPECT_NEAR(fit.parameters()[2], 3, noise + 1e-9);
  }
}

TEST(ParameterFit, LinearParametersNeedNotBeKnown) {
  Model model = kDecay;
  const Data data = dataOf(model, {2, 1.5, 0.5}, 50, 0.01);
  const Fit projected = fitted(model, data, {1, 0.2, 0});
  model.linear.clear();
  const Fit whole = fitted(model, data, {1, 0.2, 0});
  EXPECT_EQ(whole.status(), FitStatus::kConverged);
  for (std::size_t k = 0; k < 3; ++k) EXPECT_NEAR(projected.parameters()[k], whole.parameters()[k], 1e-4);
}

// From any start, whatever happens on the way, after any number of passes.
TEST(ParameterFit, IsNeverWorseThanTheStartNorThanBefore) {
  for (const auto& [name, model, truth, start] : kProblems) {
    const Data data = dataOf(model, truth, 30, 0.2);
    for (int from = 0; from < 40; ++from) {
      Parameters at = truth;
      for (std::size_t k = 0; k < at.size(); ++k)
        at[k] *= 4 * std::sin(1e3 * (from + 1) * (static_cast<double>(k) + 1.3));
      Fit fit = begun(model, at);
      double before = lossAt(model, data, at);
      while (!fit.done()) {
        fit.take(sumsOf(model, data, fit.trial()));
        if (fit.status() == FitStatus::kNotFinite) break;
        ASSERT_LE(fit.loss(), before) << name << from;
        before = fit.loss();
        ASSERT_EQ(fit.loss(), lossAt(model, data, fit.parameters())) << name << from;
      }
      EXPECT_LE(fit.passes(), FitOptions().iterations);
    }
  }
}

// Where it is flat, the Gauss-Newton step is millions of times the parameter, and exponentials overflow.
TEST(ParameterFit, TrialsStayNearDampedParameters) {
  const Data data = dataOf(kDecay, {2, 1.5, 0.5}, 30, 0.1, 40);
  Fit fit = begun(kDecay, {1, 30, 0});
  fit.take(sumsOf(kDecay, data, fit.trial()));
  for (double rate = 30; !fit.done();) {
    EXPECT_LE(std::fabs(fit.trial()[1]), 4 * std::fabs(rate));
    fit.take(sumsOf(kDecay, data, fit.trial()));
    rate = fit.parameters()[1];
  }
  EXPECT_LT(fit.loss(), lossAt(kDecay, data, Parameters{1, 30, 0}));
}

TEST(ParameterFit, DependentParametersGetNoStepAndHaveNoError) {
  const Data data = dataOf(kLine, {6, 0}, 30, 0.01);
  Fit fit = fitted(kProduct, data, {1, 2});
  EXPECT_EQ(fit.status(), FitStatus::kConverged);
  EXPECT_EQ(fit.passes(), 2U);
  EXPECT_NEAR(fit.parameters()[0], 3, 0.01);
  EXPECT_EQ(fit.parameters()[1], 2);
  Parameters errors(2);
  fit.standardErrors(data.x.size(), errors);
  EXPECT_GT(errors[0], 0);
  EXPECT_TRUE(std::isnan(errors[1]));
}

TEST(ParameterFit, ParametersWithoutEffectStayAsTheyAre) {
  const Data data = dataOf(kBranch, {1, 0, 0, 0.5}, 30, 0.1);
  const Fit fit = fitted(kBranch, data, {0, 7, 8, 0.2});
  EXPECT_EQ(fit.status(), FitStatus::kConverged);
  EXPECT_EQ(fit.parameters()[1], 7);
  EXPECT_EQ(fit.parameters()[2], 8);
  EXPECT_NEAR(fit.parameters()[3], 0.5, 0.02);
}

// Two equal decays: J has rank 2 of 4 at the start. One decay is as good as two, so it has rank 3 at most at the end.
TEST(ParameterFit, MovesThroughPointsWhereParametersDepend) {
  const Data data = dataOf(kDecay, {2, 0.5, 0}, 30, 0.01);
  Fit fit = fitted(kTwoDecays, data, {1, 1, 1, 1});
  EXPECT_TRUE(fit.status() == FitStatus::kConverged || fit.status() == FitStatus::kNoProgress);
  EXPECT_LE(fit.loss(), lossAt(kDecay, data, Parameters{2, 0.5, 0}));
  EXPECT_LT(fit.passes(), 40U);
}

TEST(ParameterFit, StandardErrorsOfALineAreThoseOfRegression) {
  const Data data = dataOf(kLine, {2, -1}, 25, 0.5);
  Fit fit = fitted(kLine, data, {0, 0});
  const double n = 25;
  double mean = 0, squares = 0;
  for (const double x : data.x) mean += x / n;
  for (const double x : data.x) squares += (x - mean) * (x - mean);
  const double variance = fit.loss() / (n - 2);
  Parameters errors(2);
  fit.standardErrors(25, errors);
  EXPECT_NEAR(errors[0], std::sqrt(variance / squares), 1e-12);
  EXPECT_NEAR(errors[1], std::sqrt(variance * (1 / n + mean * mean / squares)), 1e-12);
}

TEST(ParameterFit, StandardErrorsNeedDegreesOfFreedom) {
  for (const std::size_t rows : {1U, 2U}) {
    Fit fit = fitted(kLine, dataOf(kLine, {2, -1}, rows), {0, 0});
    EXPECT_EQ(fit.status(), FitStatus::kConverged);
    EXPECT_LT(fit.loss(), 1e-20);
    Parameters errors(2, 0);
    fit.standardErrors(rows, errors);
    EXPECT_TRUE(std::isnan(errors[0]) && std::isnan(errors[1]));
  }
  Fit fit = begun(kLine, {1, 1});
  Parameters errors(2, 0);
  fit.standardErrors(100, errors);
  EXPECT_TRUE(std::isnan(errors[0]));
}

TEST(ParameterFit, OfNoParametersGivesTheLossInOnePass) {
  const Fit fit = fitted(kConstant, dataOf(kLine, {1, 1}, 10), {});
  EXPECT_EQ(fit.status(), FitStatus::kConverged);
  EXPECT_EQ(fit.passes(), 1U);
  EXPECT_NEAR(fit.loss(), 10, 1e-12);
}

TEST(ParameterFit, APerfectStartTakesOnePass) {
  const Fit fit = fitted(kDecay, dataOf(kDecay, {2, 1.5, 0.5}), {2, 1.5, 0.5});
  EXPECT_EQ(fit.status(), FitStatus::kConverged);
  EXPECT_EQ(fit.passes(), 1U);
  EXPECT_EQ(fit.loss(), 0);
}

TEST(ParameterFitStatus, AStartThatIsNotFinite) {
  for (const Parameters& start :
       {Parameters{1, -1e6, 0}, Parameters{std::nan(""), 1, 0}, Parameters{kInfinity, 1, 0}}) {
    const Fit fit = fitted(kDecay, dataOf(kDecay, {2, 1.5, 0.5}), start);
    EXPECT_EQ(fit.status(), FitStatus::kNotFinite);
    EXPECT_EQ(fit.passes(), 1U);
    EXPECT_EQ(fit.loss(), kInfinity);
    EXPECT_EQ(fit.parameters()[1], start[1]);
  }
}

TEST(ParameterFitStatus, SumsThatOverflowAreNotFinite) {
  Fit fit = begun(kLine, {1, 1});
  fit.take(std::vector{1.0, 1.0, 1.0, kInfinity, 1.0, 1.0});
  EXPECT_EQ(fit.status(), FitStatus::kNotFinite);
}

// Trials on the way may overflow.
TEST(ParameterFitStatus, TrialsThatAreNotFiniteAreRejected) {
  const Data data = dataOf(kDecay, {2, 1.5, 0.5});
  Fit fit = begun(kDecay, {1, 0.2, 0});
  for (unsigned pass = 1; !fit.done(); ++pass) {
    std::vector<double> sums = sumsOf(kDecay, data, fit.trial());
    if (pass % 3 == 0) sums[0] = kInfinity;
    fit.take(sums);
  }
  EXPECT_EQ(fit.status(), FitStatus::kConverged);
  EXPECT_NEAR(fit.parameters()[1], 1.5, 1e-6);
}

TEST(ParameterFitStatus, PredictionsThatNoParameterChanges) {
  const Data data = dataOf(kLine, {1, 1});
  const Model step{[](auto p, double x) { return Complex(std::floor(p[0].real()) + x); }, {}};
  const Fit fit = fitted(step, data, {0.5});
  EXPECT_EQ(fit.status(), FitStatus::kSingular);
  EXPECT_EQ(fit.passes(), 1U);
  EXPECT_EQ(fit.parameters()[0], 0.5);
}

TEST(ParameterFitStatus, IterationsAreUsedUp) {
  const Data data = dataOf(kPeaks, {2, 1, 0.4, 1, 2.5, 0.7}, 60, 0.1);
  for (const unsigned most : {1U, 2U, 3U, 5U}) {
    const Fit fit = fitted(kPeaks, data, {1, 0.8, 0.5, 1, 2.8, 0.5}, {.iterations = most});
    EXPECT_EQ(fit.status(), FitStatus::kIterations);
    EXPECT_EQ(fit.passes(), most);
  }
}

// Sums whose gradient points up: no step helps.
TEST(ParameterFitStatus, NoStepLowersTheLoss) {
  const Data data = dataOf(kDecay, {2, 1.5, 0.5});
  Fit fit = begun(kDecay, {1, 0.2, 0});
  const std::vector<double> start = sumsOf(kDecay, data, fit.trial());
  while (!fit.done()) fit.take(start);
  EXPECT_EQ(fit.status(), FitStatus::kNoProgress);
  EXPECT_EQ(fit.loss(), start[0]);
  EXPECT_EQ(fit.parameters()[1], 0.2);
  EXPECT_LT(fit.passes(), 40U);
}

TEST(ParameterFitStatus, CancelledKeepsTheBest) {
  const Data data = dataOf(kDecay, {2, 1.5, 0.5}, 30, 0.1);
  Fit fit = begun(kDecay, {1, 0.2, 0});
  for (int pass = 0; pass < 3; ++pass) fit.take(sumsOf(kDecay, data, fit.trial()));
  fit.cancel();
  EXPECT_EQ(fit.status(), FitStatus::kCancelled);
  EXPECT_LT(fit.loss(), lossAt(kDecay, data, Parameters{1, 0.2, 0}));
  Fit finished = fitted(kLine, dataOf(kLine, {1, 2}), {0, 0});
  finished.cancel();
  EXPECT_EQ(finished.status(), FitStatus::kConverged);
}

// The state is all in the object: interrupted, copied and interleaved with another fit, it goes on with the same bits.
TEST(ParameterFit, DoesNotDependOnInterruptions) {
  LevenbergMarquardt method(Precision::kF64, {});
  for (const auto& [name, model, truth, start] : kProblems) {
    const Data data = dataOf(model, truth, 50, 0.1), other_data = dataOf(kPeaks, kProblems[6].truth, 20, 0.2);
    Fit whole = fitted(model, data, start);
    ParameterFit other(kProblems[6].start, kPeaks.linear);
    std::vector<ParameterFit> copies{ParameterFit(start, model.linear)};
    while (!copies.back().done()) {
      ParameterFit next = copies.back();
      method.take(next, sumsOf(model, data, next.trial()));
      if (!other.done()) method.take(other, sumsOf(kPeaks, other_data, other.trial()));
      copies.push_back(next);
    }
    EXPECT_EQ(copies.back().passes(), whole.passes()) << name;
    EXPECT_EQ(copies.back().loss(), whole.loss()) << name;
    EXPECT_TRUE(std::ranges::equal(copies.back().parameters(), whole.parameters())) << name;
    Parameters errors(start.size()), expected(start.size());
    method.standardErrors(copies.back(), 50, errors);
    whole.standardErrors(50, expected);
    for (std::size_t k = 0; k < errors.size(); ++k) {
      EXPECT_TRUE(errors[k] == expected[k] || (std::isnan(errors[k]) && std::isnan(expected[k]))) << name << k;
    }
  }
}

// Powers of two change no bits, so the steps are the same in other units.
TEST(ParameterFit, DoesNotDependOnUnits) {
  const Model milli{[](auto p, double x) { return p[0] * 1024.0 * std::exp(-p[1] / 64.0 * x) + p[2] / 4096.0; },
                    {0, 2}};
  const Data data = dataOf(kDecay, {2, 1.5, 0.5}, 50, 0.1);
  const Fit fit = fitted(kDecay, data, {1, 0.25, 1});
  const Fit other = fitted(milli, data, {1.0 / 1024, 0.25 * 64, 4096});
  EXPECT_EQ(fit.passes(), other.passes());
  EXPECT_NEAR(fit.parameters()[1], other.parameters()[1] / 64, 1e-12);
}

// Noise of single precision in the sums ends as no progress or convergence, near the minimum.
TEST(ParameterFit, SumsOfSinglePrecision) {
  for (const auto& [name, model, truth, start] : kProblems) {
    const Data data = dataOf(model, truth, 100, 0.05);
    Fit fit(model, start, Precision::kF32, {});
    while (!fit.done()) {
      std::vector<double> sums = sumsOf(model, data, fit.trial());
      for (double& sum : sums) sum = static_cast<float>(sum);
      fit.take(sums);
    }
    EXPECT_TRUE(fit.status() == FitStatus::kConverged || fit.status() == FitStatus::kNoProgress) << name;
    EXPECT_LT(fit.loss(), fitted(model, data, start).loss() * 1.0001) << name;
    EXPECT_LT(fit.passes(), 60U) << name;
  }
}

}  // namespace
}  // namespace srjit::fit
