#include "tools/bench/scenarios/baseline_timer.h"

namespace srjit {

BaselineTimer::BaselineTimer(const BenchContext& context, const BaselineInfo& info, const BenchData& data)
    : data_{context.ordinal(), data.columns, data.target}, baseline_(info.make(data_)) {}

double BaselineTimer::prepare(std::span<const Expression> expressions) {
  expressions_ = expressions;
  const std::size_t parameters = parametersOf(expressions);
  numbers_.clear();
  for (int step = 0; step < 4; ++step) numbers_.push_back(parameterNumbers(parameters, step));
  next_ = 0;
  sums_.assign(expressions.size(), 0);
  predictions_.clear();
  const Stopwatch watch;
  baseline_->prepare(expressions);
  return watch.seconds();
}

double BaselineTimer::step(bool predictions) {
  last_ = next_;
  next_ = (next_ + 1) % numbers_.size();
  if (predictions) predictions_.resize(expressions_.size() * data_.target.size());
  const Stopwatch watch;
  if (predictions) {
    baseline_->predictions(numbers_[last_], predictions_);
  } else {
    baseline_->losses(numbers_[last_], sums_);
  }
  return watch.seconds();
}

std::size_t parametersOf(std::span<const Expression> expressions) {
  std::size_t count = 0;
  for (const Expression& expression : expressions) count += expression.parameterCount();
  return count;
}

}  // namespace srjit
