// Parts about overlap of host and device: repeated new parameters, and repeated new populations.
#include <deque>

#include <fmt/format.h>

#include "tools/bench/gpu_context.h"

namespace srjit {
namespace {

/// Expressions of the mixed population that have two parameters each.
std::vector<Expression> withTwoParameters(std::size_t count) {
  GeneratorOptions options = findPopulation("mixed").value();
  options.parameters = 2;
  options.parameter_probability = 0.25;
  ExpressionGenerator generator(options);
  std::vector<Expression> expressions;
  while (expressions.size() < count) {
    Expression next = generator.next();
    if (next.parameterCount() == 2) expressions.push_back(std::move(next));
  }
  return expressions;
}

}  // namespace

void benchSteady(const BenchContext& context) {
  const std::vector<Expression> expressions = withTwoParameters(kPopulation);
  const Engine engine = context.engine(Math::kFast);
  const BenchData data(kBenchColumns, kPopulationRows);
  const Dataset uploaded = must(engine.upload(data.view()));
  const Program program = engine.compile(expressions, {.tier = Tier::kInterpret});
  std::vector<std::vector<double>> parameters;
  for (int step = 0; step < 4; ++step) parameters.push_back(parametersFor(program, step));
  timeLoss(engine, program, uploaded, parameters[0]);
  std::vector<double> ratios, device, wall;
  std::size_t step = 0;
  context.sample(31, 3, [&] {
    const Seconds seconds = timeLoss(engine, program, uploaded, parameters[++step % parameters.size()]);
    device.push_back(seconds.device);
    wall.push_back(seconds.wall * 1e3);
    ratios.push_back(seconds.wall / seconds.device);
    return seconds.wall;
  });
  const double kernel = medianOf(device);
  // Two in flight: the parameters of the next one are uploaded while one is computed.
  constexpr std::size_t kFlights = 20;
  const std::vector<double> pipelined = context.sample(9, 3, [&] {
    const Stopwatch watch;
    std::deque<Pending<Losses>> flights;
    for (std::size_t i = 0; i < kFlights; ++i) {
      flights.push_back(must(engine.submitLoss(program, uploaded, parameters[i % parameters.size()])));
      if (flights.size() < 2) continue;
      must(std::move(flights.front()).result());
      flights.pop_front();
    }
    must(std::move(flights.front()).result());
    return watch.seconds() / kFlights / kernel;
  });
  const std::string what =
      fmt::format("two new parameters each, losses of {} x {} mixed, ", kPopulation, kPopulationRows);
  context.report->add("steady", {what + "host to host over kernel", "times", ratios, atMost(1.1),
                                 fmt::format("kernels {:.4f} ms", kernel * 1e3)});
  context.report->add("steady", {what + "host to host", "ms", wall});
  context.report->add("steady", {what + "two in flight, each over kernel", "times", pipelined});
}

void benchOverlap(const BenchContext& context) {
  constexpr std::size_t kPopulations = 6;
  const std::size_t rows = context.onGpu() ? 100000 : 1000;
  std::vector<std::vector<Expression>> populations;
  for (std::size_t i = 0; i < kPopulations; ++i) {
    populations.push_back(ExpressionGenerator(findPopulation("mixed", i + 1).value()).batch(kPopulation));
  }
  const Engine engine = context.engine(Math::kFast);
  const Dataset uploaded = must(engine.upload(BenchData(kBenchColumns, rows).view()));
  const auto encode = [&](std::size_t i) { return engine.compile(populations[i], {.tier = Tier::kInterpret}); };
  timeLoss(engine, encode(0), uploaded, {});
  std::vector<double> serial, pipelined, ratios;
  context.sample(5, 4, [&] {
    const Stopwatch one_by_one;
    for (std::size_t i = 0; i < kPopulations; ++i) must(engine.loss(encode(i), uploaded, {}));
    serial.push_back(one_by_one.seconds() * 1e3 / kPopulations);
    const Stopwatch overlapping;
    std::optional<Program> program = encode(0);
    for (std::size_t i = 0; i < kPopulations; ++i) {
      auto flight = must(engine.submitLoss(*program, uploaded, {}));
      if (i + 1 < kPopulations) program = encode(i + 1);
      must(std::move(flight).result());
    }
    pipelined.push_back(overlapping.seconds() * 1e3 / kPopulations);
    ratios.push_back(pipelined.back() / serial.back());
    return ratios.back();
  });
  const std::string what = fmt::format("new populations of {} x {} mixed, encoding and losses, ", kPopulation, rows);
  context.report->add("overlap", {what + "one after the other", "ms/population", serial});
  context.report->add("overlap", {what + "encoding beside the device", "ms/population", pipelined});
  context.report->add("overlap", {what + "beside over after", "times", ratios});
}

}  // namespace srjit
