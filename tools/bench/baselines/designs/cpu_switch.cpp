#include "tools/bench/baselines/designs/cpu_switch.h"

#include <algorithm>
#include <numeric>

#include <tbb/parallel_for.h>

#include "ir/numbers/rounding.h"
#include "ir/rows.h"
#include "runtime/platform/clock.h"
#include "tools/bench/baselines/check.h"

namespace srjit {
namespace {

constexpr std::size_t kBlockRows = 4096;

class CpuSwitch final : public Baseline {
 public:
  explicit CpuSwitch(const BaselineData& data) : data_(data), blocks_(ceilDivide(rows(), kBlockRows)) {}

  void prepare(std::span<const Expression> expressions) override {
    expressions_.assign(expressions.begin(), expressions.end());
    offsets_ = parameterOffsets(expressions);
  }

  void losses(std::span<const double> parameters, std::span<double> sums) override {
    checkStepSize(sums.size(), expressions_.size(), "sums");
    std::vector<double> partial(expressions_.size() * blocks_);
    forBlocks(parameters, [&](std::size_t e, std::size_t block, std::span<const float> numbers) {
      const std::size_t first = block * kBlockRows;
      std::vector<float> values(std::min(kBlockRows, rows() - first));
      runSwitch(expressions_[e], data_.columns, numbers, first, values);
      double& sum = partial[e * blocks_ + block];
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float error = values[i] - data_.target[first + i];
        sum += static_cast<double>(error * error);
      }
    });
    for (std::size_t e = 0; e < expressions_.size(); ++e) {
      const auto first = partial.begin() + static_cast<std::ptrdiff_t>(e * blocks_);
      sums[e] = std::accumulate(first, first + static_cast<std::ptrdiff_t>(blocks_), 0.0);
    }
  }

  void predictions(std::span<const double> parameters, std::span<float> out) override {
    checkStepSize(out.size(), expressions_.size() * rows(), "predictions");
    forBlocks(parameters, [&](std::size_t e, std::size_t block, std::span<const float> numbers) {
      const std::size_t first = block * kBlockRows;
      const std::size_t count = std::min(kBlockRows, rows() - first);
      runSwitch(expressions_[e], data_.columns, numbers, first, out.subspan(e * rows() + first, count));
    });
  }

  double kernelSeconds() const override { return seconds_; }

 private:
  std::size_t rows() const { return data_.target.size(); }

  /// body(expression, block of rows, parameters of the expression), in parallel.
  template <class Body>
  void forBlocks(std::span<const double> parameters, const Body& body) {
    checkStepSize(parameters.size(), offsets_.back(), "parameters");
    const Stopwatch watch;
    const std::vector<float> numbers(parameters.begin(), parameters.end());
    tbb::parallel_for(std::size_t{0}, expressions_.size() * blocks_, [&](std::size_t i) {
      const std::size_t e = i / blocks_;
      body(e, i % blocks_, std::span(numbers).subspan(offsets_[e], offsets_[e + 1] - offsets_[e]));
    });
    seconds_ = watch.seconds();
  }

  const BaselineData data_;
  std::size_t blocks_;
  std::vector<Expression> expressions_;
  std::vector<std::uint32_t> offsets_ = {0};
  double seconds_ = 0;
};

}  // namespace

void runSwitch(const Expression& expression, std::span<const std::vector<float>> columns,
               std::span<const float> parameters, std::size_t first, std::span<float> out) {
  const std::span<const Token> tokens = expression.tokens();
  std::vector<float> stack(expression.stackHeight() + kMaxArity);
  for (std::size_t i = 0; i < out.size(); ++i) {
    float* top = stack.data();
    for (const Token& token : tokens) {
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

std::unique_ptr<Baseline> makeCpuSwitch(const BaselineData& data) { return std::make_unique<CpuSwitch>(data); }

}  // namespace srjit
