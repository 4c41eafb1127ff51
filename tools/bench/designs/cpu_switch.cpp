// The textbook loop on a processor: one row at a time, two switches per token, all cores. Libm's functions; any
// operator.
#include <algorithm>
#include <numeric>

#include <tbb/parallel_for.h>

#include "ir/rows.h"
#include "runtime/platform/clock.h"
#include "tools/bench/designs/baseline.h"
#include "tools/bench/designs/device.h"

namespace srjit {
namespace {

constexpr std::size_t kBlockRows = 4096;

class CpuSwitch final : public Baseline {
 public:
  explicit CpuSwitch(const BenchData& data) : data_(data), blocks_(ceilDivide(data.rows(), kBlockRows)) {}

  void prepare(std::span<const Expression> expressions) override {
    expressions_.assign(expressions.begin(), expressions.end());
    offsets_ = parameterOffsets(expressions);
  }

  void losses(std::span<const double> parameters, std::span<double> sums) override {
    checkStepSize(sums.size(), expressions_.size(), "sums");
    std::vector<double> partial(expressions_.size() * blocks_);
    evaluate(parameters, [&](std::size_t e, std::size_t first, std::span<const float> values) {
      double& sum = partial[e * blocks_ + first / kBlockRows];
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float error = values[i] - data_.target[first + i];
        sum += static_cast<double>(error * error);
      }
    });
    for (std::size_t e = 0; e < expressions_.size(); ++e) {
      const auto own = std::span(partial).subspan(e * blocks_, blocks_);
      sums[e] = std::accumulate(own.begin(), own.end(), 0.0);
    }
  }

  void predictions(std::span<const double> parameters, std::span<float> out) override {
    checkStepSize(out.size(), expressions_.size() * data_.rows(), "predictions");
    evaluate(parameters, [&](std::size_t e, std::size_t first, std::span<const float> values) {
      std::ranges::copy(values, out.subspan(e * data_.rows() + first).begin());
    });
  }

  double kernelSeconds() const override { return seconds_; }

 private:
  /// take(expression, first row, values of a block of rows), in parallel.
  template <class Take>
  void evaluate(std::span<const double> parameters, const Take& take) {
    checkStepSize(parameters.size(), offsets_.back(), "parameters");
    const Stopwatch watch;
    const std::vector<float> numbers(parameters.begin(), parameters.end());
    tbb::parallel_for(std::size_t{0}, expressions_.size() * blocks_, [&](std::size_t i) {
      const std::size_t e = i / blocks_, first = i % blocks_ * kBlockRows;
      std::vector<float> values(std::min(kBlockRows, data_.rows() - first));
      runSwitch(expressions_[e], data_.columns, std::span(numbers).subspan(offsets_[e]), first, values);
      take(e, first, values);
    });
    seconds_ = watch.seconds();
  }

  const BenchData data_;
  std::size_t blocks_;
  std::vector<Expression> expressions_;
  std::vector<std::uint32_t> offsets_ = {0};
  double seconds_ = 0;
};

}  // namespace

void runSwitch(const Expression& expression, std::span<const std::vector<float>> columns,
               std::span<const float> parameters, std::size_t first, std::span<float> out) {
  std::vector<float> stack(expression.stackHeight() + kMaxArity);
  for (std::size_t i = 0; i < out.size(); ++i) {
    float* top = stack.data();
    for (const Token& token : expression.tokens()) {
      switch (token.kind) {
        case Token::Kind::kConstant:
          *top++ = static_cast<float>(token.value);
          break;
        case Token::Kind::kVariable:
          *top++ = columns[token.index][first + i];
          break;
        case Token::Kind::kParameter:
          *top++ = parameters[token.index];
          break;
        case Token::Kind::kOp:
          top -= arityOf(token.op);
          *top = applyRow<float>(token.op, top[0], top[1], top[2]);
          ++top;
          break;
      }
    }
    out[i] = stack[0];
  }
}

std::unique_ptr<Baseline> makeCpuSwitch(const BenchData& data) { return std::make_unique<CpuSwitch>(data); }

}  // namespace srjit
