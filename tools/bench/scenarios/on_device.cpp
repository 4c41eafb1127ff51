#include "tools/bench/scenarios/on_device.h"

#include <bit>

#include "ir/ops.h"
#include "tests/generators/token_arrays.h"

namespace srjit {
namespace {

std::vector<Op> operatorsOfTrees() { return findPopulation("mixed")->ops; }

template <class T>
DeviceBuffer copied(const std::shared_ptr<const Stream>& stream, const std::vector<T>& values) {
  DeviceBuffer buffer(stream, values.size() * sizeof(T));
  stream->copyToDevice(buffer.address(), values.data(), values.size() * sizeof(T));
  return buffer;
}

}  // namespace

OnDevice::OnDevice(const Engine& engine, const Dataset& data, std::shared_ptr<const Cuda> cuda, std::size_t expressions)
    : cuda_(std::move(cuda)),
      current_(*cuda_),
      stream_(std::make_shared<const Stream>(cuda_)),
      loss_(must(engine.deviceLoss(data, {.operators = operatorsOfTrees(), .expressions = expressions}))) {}

std::pair<OnDeviceTimes, std::vector<double>> OnDevice::run(std::span<const Expression> generation) {
  const TokenArrays arrays = tokensOf(generation);
  const DeviceBuffer codes = copied(stream_, arrays.codes), values = copied(stream_, arrays.constants),
                     offsets = copied(stream_, arrays.offsets);
  const DeviceBuffer losses(stream_, generation.size() * sizeof(double));
  const Event begin(cuda_, true), end(cuda_, true);
  OnDeviceTimes times;
  for (int i = 0; i < 2; ++i) {
    stream_->synchronize();
    stream_->record(begin);
    const Stopwatch watch;
    must(loss_.submit({.codes = codes.address(),
                       .values = values.address(),
                       .tokens = arrays.codes.size(),
                       .expressions = generation.size(),
                       .offsets = offsets.address(),
                       .values_type = Precision::kF64},
                      {.losses = losses.address(), .type = Precision::kF64},
                      std::bit_cast<std::uint64_t>(stream_->get())));
    times.submit = watch.seconds();
    stream_->record(end);
    end.synchronize();
    times.wall = watch.seconds();
    times.kernels = end.secondsSince(begin);
  }
  std::vector<double> written(generation.size());
  stream_->copyToHost(written.data(), losses.address(), losses.bytes());
  stream_->synchronize();
  return {times, std::move(written)};
}

std::vector<Expression> withoutParameters(std::span<const Expression> generation) {
  std::vector<Expression> expressions;
  for (const Expression& expression : generation) {
    std::vector<Token> tokens(expression.tokens().begin(), expression.tokens().end());
    for (Token& token : tokens) {
      if (token.kind == Token::Kind::kParameter)
        token = Token::constant(1 + 0.25 * static_cast<double>(token.index % 7));
    }
    expressions.push_back(must(Expression::create(std::move(tokens))));
  }
  return expressions;
}

}  // namespace srjit
