// Of 250,000 expressions of exhaustive symbolic regression (D. Bartlett, H. Desmond, P. Ferreira, "Exhaustive Symbolic
// Regression", IEEE Trans. Evol. Comput. 2023) every fourth on Nikuradse's measurements of rough pipes: both tiers
// against each other and against the float64 reference.
//
// The environment variable SRJIT_ACCEPTANCE=full evaluates all expressions, and compiles all instead of every
// sixteenth.
#include <tbb/parallel_for.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ir/reference.h"
#include "runtime/engine.h"
#include "tests/generators/graphs.h"
#include "tools/files/data.h"
#include "tools/files/expressions.h"

namespace srjit {
namespace {

// Only 896 of the expressions have a third parameter.
constexpr double kParameters[] = {1.5, 0.7, 0.3};
constexpr std::size_t kBatch = 4096;

std::string dataFolder() {
  const char* folder = std::getenv("SRJIT_DATA");
  return folder != nullptr ? folder : std::string(SRJIT_SOURCE_DIR) + "/../shared/data";
}

bool isFull() {
  const char* amount = std::getenv("SRJIT_ACCEPTANCE");
  return amount != nullptr && std::string_view(amount) == "full";
}

/// RAII: adds its lifetime to the time of a stage.
class Timer {
 public:
  explicit Timer(double& seconds) : seconds_(seconds) {}
  ~Timer() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

struct Seconds {
  double reading = 0, interpreting = 0, compiling = 0, running = 0, reference = 0;
};

/// Agreement of predictions with the reference, as counts of values.
struct Agreement {
  std::atomic<std::size_t> values{0};      ///< compared
  std::atomic<std::size_t> non_finite{0};  ///< non-finite in the reference
  std::atomic<std::size_t> bounded{0};     ///< outside of the cheap tolerance, within the error bound
  std::atomic<std::size_t> unpromised{0};  ///< the same, with an infinite error bound
  std::atomic<std::size_t> other{0};       ///< of those: NaN in one, infinite in the other, or infinities of two signs
  std::atomic<std::size_t> flipped{0};     ///< of those: finite in one and not in the other
  std::atomic<std::size_t> wrong{0};
  std::mutex mutex;
  std::string examples;
  std::size_t reported = 0;

  void report(const Expression& expression, std::size_t row, double got, const Bounded& wanted) {
    const std::lock_guard lock(mutex);
    if (reported++ >= 20) return;
    char text[400];
    std::snprintf(text, sizeof text, "%.200s row %zu: %.17g, but the reference is %.17g and the bound %.3g\n",
                  print(expression, Language::kInfix).c_str(), row, got, wanted.value, wanted.error);
    examples += text;
  }
};

/// Within a relative distance, or the same non-finite value.
bool isNear(double a, double b, double tolerance) {
  if (!std::isfinite(b)) return a == b || (std::isnan(a) && std::isnan(b));
  return std::fabs(a - b) <= tolerance * std::fabs(b);
}

bool keeps(const Bounded& bound, double value) {
  if (!std::isfinite(bound.value)) return isNear(value, bound.value, 0);
  return std::fabs(value - bound.value) <= bound.error;
}

class EsrSlow : public testing::Test {
 protected:
  void SetUp() override {
    const std::string expressions = dataFolder() + "/esr_ext_250k.postfix.xz";
    const std::string table = dataFolder() + "/nikuradse_1.csv";
    for (const std::string& path : {expressions, table}) {
      if (!std::filesystem::exists(path)) GTEST_SKIP() << "no file " << path << "; SRJIT_DATA names another folder";
    }
    const Timer timer(seconds_.reading);
    const auto lines = readExpressions(expressions, Language::kPostfix);
    ASSERT_TRUE(lines.ok()) << lines.error().message;
    for (const SourceLine& line : *lines) {
      ASSERT_TRUE(line.ok()) << line.expression.error().message;
      ASSERT_LE(line.expression->parameterCount(), std::size(kParameters));
      expressions_.push_back(*line.expression);
    }
    ASSERT_EQ(expressions_.size(), 250000U);
    const auto read = readData(table);
    ASSERT_TRUE(read.ok()) << read.error().message;
    const auto roles = assignRoles(*read, "target", "");
    ASSERT_TRUE(roles.ok()) << roles.error().message;
    for (const auto column : roles->variables) columns_.emplace_back(column.begin(), column.end());
    ASSERT_EQ(columns_.size(), 2U);
  }

  std::size_t rows() const { return columns_[0].size(); }

  /// Every `step`th expression, in batches.
  template <class Use>
  void forBatches(std::size_t step, const Use& use) const {
    std::vector<Expression> batch;
    for (std::size_t i = 0; i < expressions_.size(); i += step) {
      batch.push_back(expressions_[i]);
      if (batch.size() < kBatch && i + step < expressions_.size()) continue;
      use(batch);
      batch.clear();
    }
  }

  DataView view() const {
    DataView view;
    for (const auto& column : columns_) view.columns.emplace_back(std::span<const double>(column));
    return view;
  }

  template <class T>
  std::vector<T> predict(const Engine& engine, const Dataset& data, const std::vector<Expression>& batch,
                         const CompileOptions& options, double& making, double& running) const {
    std::vector<double> parameters;
    for (const Expression& e : batch) {
      parameters.insert(parameters.end(), kParameters, kParameters + e.parameterCount());
    }
    std::vector<T> out(batch.size() * rows());
    const Program program = [&] {
      const Timer timer(making);
      return engine.compile(batch, options);
    }();
    const Timer timer(running);
    const auto failures = engine.evaluate(program, data, parameters, std::span<T>(out));
    EXPECT_TRUE(failures.ok()) << failures.error().message;
    if (failures.ok()) {
      EXPECT_TRUE(failures->empty()) << failures->front().error.message;
    }
    return out;
  }

  template <class T>
  void compareWithReference(const std::vector<Expression>& batch, const std::vector<T>& got, Math math,
                            double tolerance, Agreement& agreement) {
    const Timer timer(seconds_.reference);
    constexpr auto kPrecision = kPrecisionOf<T>;
    const std::vector<T> rounded(std::begin(kParameters), std::end(kParameters));
    const std::vector<double> given(rounded.begin(), rounded.end());
    tbb::parallel_for(std::size_t{0}, batch.size(), [&](std::size_t e) {
      const Expression& expression = batch[e];
      const std::span<const double> parameters(given.data(), expression.parameterCount());
      std::vector<double> row(columns_.size());
      std::size_t non_finite = 0, bounded = 0, unpromised = 0, other = 0, flipped = 0, wrong = 0;
      for (std::size_t r = 0; r < rows(); ++r) {
        for (std::size_t c = 0; c < row.size(); ++c) row[c] = static_cast<T>(columns_[c][r]);
        const double value = static_cast<double>(got[e * rows() + r]);
        const double wanted = evaluateReference(expression, row, parameters);
        if (!std::isfinite(wanted)) ++non_finite;
        if (isNear(value, wanted, tolerance)) continue;
        const Bounded bound = evaluateBounded(expression, row, parameters, {kPrecision, math});
        if (std::isinf(bound.error)) {
          ++unpromised;
          if (std::isfinite(value) != std::isfinite(wanted)) {
            if (flipped++ == 0 && kPrecision == Precision::kF64) agreement.report(expression, r, value, bound);
          } else if (!std::isfinite(value)) {
            ++other;
          }
        } else if (keeps(bound, value)) {
          ++bounded;
        } else if (wrong++ == 0) {
          agreement.report(expression, r, value, bound);
        }
      }
      agreement.values += rows();
      agreement.non_finite += non_finite;
      agreement.bounded += bounded;
      agreement.unpromised += unpromised;
      agreement.other += other;
      agreement.flipped += flipped;
      agreement.wrong += wrong;
    });
  }

  static void expectSame(const std::vector<Expression>& batch, std::span<const double> a, std::span<const double> b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_TRUE(sameBits(a[i], b[i])) << print(batch[i / (a.size() / batch.size())], Language::kInfix) << ": " << a[i]
                                        << " interpreted, " << b[i] << " compiled";
    }
  }

  static void tell(const char* what, const Agreement& agreement) {
    std::printf("%s: %zu values, %zu of them non-finite\n", what, agreement.values.load(), agreement.non_finite.load());
    std::printf("  beyond the cheap tolerance: %zu within the bound, %zu without a promise, %zu wrong\n",
                agreement.bounded.load(), agreement.unpromised.load(), agreement.wrong.load());
    std::printf("  of those without a promise: %zu finite on one side only, %zu non-finite in another way\n",
                agreement.flipped.load(), agreement.other.load());
  }

  Seconds seconds_;
  std::vector<Expression> expressions_;
  std::vector<std::vector<double>> columns_;
};

TEST_F(EsrSlow, F64Precise) {
  const Engine engine = Engine::create({.precision = Precision::kF64, .math = Math::kPrecise}).value();
  const Dataset data = engine.upload(view()).value();
  Agreement agreement;
  double encoding = 0;
  std::size_t evaluated = 0;
  forBatches(isFull() ? 1 : 4, [&](const std::vector<Expression>& batch) {
    evaluated += batch.size();
    const auto values =
        predict<double>(engine, data, batch, {.tier = Tier::kInterpret}, encoding, seconds_.interpreting);
    compareWithReference(batch, values, Math::kPrecise, 1e-12, agreement);
  });
  tell("f64 precise", agreement);
  EXPECT_EQ(agreement.wrong, 0U) << agreement.examples;
  EXPECT_EQ(agreement.values, evaluated * rows());
  // A fused a*a - b does not overflow where a*a does, so inf - inf may become an infinity, which is still non-finite.
  EXPECT_EQ(agreement.flipped, 0U) << agreement.examples;

  std::size_t compiled = 0;
  double ignored = 0;
  forBatches(isFull() ? 1 : 16, [&](const std::vector<Expression>& batch) {
    if (HasFatalFailure()) return;
    compiled += batch.size();
    const auto interpreted = predict<double>(engine, data, batch, {.tier = Tier::kInterpret}, ignored, ignored);
    const auto values =
        predict<double>(engine, data, batch, {.tier = Tier::kCompile}, seconds_.compiling, seconds_.running);
    expectSame(batch, interpreted, values);
  });
  std::printf("%zu expressions x %zu rows: read %.2f s, encoded %.2f s, interpreted %.2f s, reference %.2f s\n",
              evaluated, rows(), seconds_.reading, encoding, seconds_.interpreting, seconds_.reference);
  std::printf("%zu expressions: compiled %.2f s, run %.2f s\n", compiled, seconds_.compiling, seconds_.running);
}

TEST_F(EsrSlow, F32Sample) {
  // Rewrites of `fast` that reassociate are outside of what the bound covers. Many intermediate values are beyond f32:
  // nothing is promised of what becomes of them.
  for (const Math math : {Math::kStrict, Math::kPrecise, Math::kFast}) {
    const Engine engine = Engine::create({.precision = Precision::kF32, .math = math}).value();
    const Dataset data = engine.upload(view()).value();
    CompileOptions options{.tier = Tier::kInterpret};
    if (math == Math::kFast) {
      options.pipeline = Pipeline::parse(passOfRules(Math::kPrecise) + ",fma,hoist,schedule", math).value();
    }
    Agreement agreement;
    double ignored = 0;
    forBatches(isFull() ? 8 : 64, [&](const std::vector<Expression>& batch) {
      const auto values = predict<float>(engine, data, batch, options, ignored, ignored);
      compareWithReference(batch, values, math, 1e-7, agreement);
    });
    const std::string name = std::string("f32 ") + nameOf(math);
    tell(name.c_str(), agreement);
    EXPECT_EQ(agreement.wrong, 0U) << name << '\n' << agreement.examples;
    EXPECT_GT(agreement.values, rows() * 3000);
  }
}

}  // namespace
}  // namespace srjit
