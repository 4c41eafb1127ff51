#include "tools/bench/work.h"

#include <algorithm>
#include <array>
#include <future>
#include <iterator>
#include <optional>

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include "ir/numbers/rounding.h"
#include "ir/numeric.h"
#include "tests/generators/klein_nishina.h"

namespace srjit {

BenchData randomData(std::size_t columns, std::size_t rows) {
  BenchData data{std::vector(columns, std::vector<float>(rows)), std::vector<float>(rows)};
  Random random(7);
  const auto fill = [&](std::vector<float>& values) {
    for (float& value : values) value = static_cast<float>(random.between(-3.0, 3.0));
  };
  for (std::vector<float>& column : data.columns) fill(column);
  fill(data.target);
  return data;
}

BenchData positiveData(std::size_t columns, std::size_t rows) {
  BenchData data = randomData(columns, rows);
  for (std::vector<float>& column : data.columns) {
    for (float& value : column) value = (value + 3.1f) / 2;
  }
  return data;
}

BenchData formulaData(std::size_t rows) {
  BenchData data = randomData(kKleinNishinaVariables, rows);
  Random random(11);
  std::array<double, kKleinNishinaVariables> x{};
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < x.size(); ++c) {
      data.columns[c][r] = static_cast<float>(random.between(0.5, 3.0));
      x[c] = static_cast<double>(data.columns[c][r]);
    }
    data.target[r] = static_cast<float>(kleinNishinaValue(x));
  }
  return data;
}

std::vector<Expression> populationOf(std::string_view name, std::size_t count, std::uint64_t seed) {
  if (name == "formula") return Generations(count, seed).current();
  return ExpressionGenerator(findPopulation(name, seed).value()).batch(count);
}

std::vector<Expression> evenlySpread(std::span<const Expression> expressions, std::size_t count) {
  std::vector<Expression> chosen;
  chosen.reserve(count);
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(expressions[i * expressions.size() / count]);
  return chosen;
}

double nodesOf(std::span<const Expression> expressions) {
  std::size_t nodes = 0;
  for (const Expression& expression : expressions) nodes += expression.size();
  return static_cast<double>(nodes);
}

std::size_t parametersOf(std::span<const Expression> expressions) { return parameterOffsets(expressions).back(); }

std::vector<double> parameterNumbers(std::size_t count, int step) {
  std::vector<double> parameters(count);
  for (std::size_t i = 0; i < count; ++i) {
    parameters[i] = 0.5 + 0.001 * static_cast<double>((i * 7 + static_cast<std::size_t>(step) * 13) % 1000);
  }
  return parameters;
}

std::vector<double> parametersFor(const Program& program, int step) {
  return parameterNumbers(program.parameterOffset(program.size()), step);
}

std::string textOf(std::span<const Expression> expressions, Language language) {
  std::string text;
  for (const Expression& expression : expressions) text += print(expression, language) + '\n';
  return text;
}

std::vector<Expression> parseLines(const std::string& text, Language language) {
  std::vector<std::string_view> lines;
  for (std::size_t first = 0, end; (end = text.find('\n', first)) != std::string::npos; first = end + 1) {
    lines.push_back(std::string_view(text).substr(first, end - first));
  }
  constexpr std::size_t kBlock = 1000;
  std::vector<std::vector<Expression>> blocks(ceilDivide(lines.size(), kBlock));
  tbb::parallel_for(std::size_t{0}, blocks.size(), [&](std::size_t b) {
    blocks[b].reserve(kBlock);
    for (std::size_t i = b * kBlock; i < std::min(lines.size(), (b + 1) * kBlock); ++i) {
      blocks[b].push_back(parse(lines[i], language).value());
    }
  });
  std::vector<Expression> expressions;
  expressions.reserve(lines.size());
  for (auto& block : blocks) std::move(block.begin(), block.end(), std::back_inserter(expressions));
  return expressions;
}

Subject subjectOf(std::size_t count, std::string_view name, std::size_t rows) {
  return {fmt::format("{} {} x {} rows", count, name, rows),
          {{"expressions", count}, {"population", name}, {"rows", rows}}};
}

Subject inTier(const Subject& subject, Tier tier) { return subject.with(titleOf(tier), {{"tier", nameOf(tier)}}); }

void warmCache(const std::string& device, const std::string& directory) {
  if (device == "cpu") return;
  const Engine engine = must(Engine::create({.device = device, .math = Math::kFast, .cache_directory = directory}));
  std::vector<std::future<void>> making;
  for (const char* const population : {"mixed", "arithmetic"}) {
    // Few rows and many rows use different interpreters.
    for (const std::size_t rows : {128, 4096}) {
      making.push_back(std::async(std::launch::async, [&engine, population, rows] {
        const Dataset data = must(engine.upload(randomData(kTreeColumns, rows).view()));
        const Program program = engine.compile(populationOf(population, 8), {.tier = Tier::kInterpret});
        must(engine.loss(program, data, {}));
        std::vector<float> out(program.size() * rows);
        must(engine.evaluate(program, data, {}, out));
      }));
    }
  }
  for (std::future<void>& one : making) one.get();
  hasDirect(engine);
}

bool hasDirect(const Engine& engine) {
  if (engine.options().device == "cpu") return false;
  const Dataset data = must(engine.upload(randomData(kTreeColumns, 128).view()));
  return makeReady(engine, populationOf("arithmetic", 8), data, {.tier = Tier::kDirect}).program.status().tier ==
         Tier::kDirect;
}

std::vector<Tier> tiersOf(const Engine& engine) {
  if (hasDirect(engine)) return {Tier::kInterpret, Tier::kDirect, Tier::kCompile};
  return {Tier::kInterpret, Tier::kCompile};
}

const char* titleOf(Tier tier) {
  switch (tier) {
    case Tier::kInterpret:
      return "interpreter";
    case Tier::kDirect:
      return "direct code";
    case Tier::kCompile:
      return "machine code";
    default:
      return "auto";
  }
}

Ready makeReady(const Engine& engine, std::span<const Expression> expressions, const Dataset& data,
                CompileOptions options, bool predictions) {
  const Stopwatch watch;
  Program program = engine.compile(expressions, options);
  if (options.tier == Tier::kDirect || options.tier == Tier::kCompile) {
    must(engine.prepare(program, data, predictions ? std::nullopt : std::optional(LossOptions{})));
  }
  return {std::move(program), watch.seconds()};
}

namespace {

Seconds secondsOf(const Stopwatch& watch, const Program& program) {
  const double wall = watch.seconds();
  const double device = program.status().device_seconds;
  return {wall, device > 0 ? device : wall};
}

}  // namespace

Seconds timeLoss(const Engine& engine, const Program& program, const Dataset& data,
                 std::span<const double> parameters) {
  const Stopwatch watch;
  const Losses losses = must(engine.loss(program, data, parameters));
  const Seconds seconds = secondsOf(watch, program);
  if (!losses.failures.empty()) throw BenchFailure{losses.failures.front().error};
  return seconds;
}

Seconds timePredictions(const Engine& engine, const Program& program, const Dataset& data,
                        std::span<const double> parameters, std::span<float> out) {
  const Stopwatch watch;
  const std::vector<Failure> failures = must(engine.evaluate(program, data, parameters, out));
  const Seconds seconds = secondsOf(watch, program);
  if (!failures.empty()) throw BenchFailure{failures.front().error};
  return seconds;
}

std::vector<double> Series::rates(double work) const {
  std::vector<double> rates(device.size());
  std::ranges::transform(device, rates.begin(), [&](double seconds) { return work / seconds; });
  return rates;
}

Series timeSeries(const Bench& bench, const Engine& engine, const Program& program, const Dataset& data,
                  std::size_t count, double limit, std::span<float> out) {
  Series series;
  const auto once = [&] {
    return out.empty() ? timeLoss(engine, program, data, {}) : timePredictions(engine, program, data, {}, out);
  };
  once();
  bench.sample(count, limit, [&] {
    series.add(once());
    return series.wall.back();
  });
  return series;
}

void requireSameBits(std::span<const double> numbers, std::span<const double> expected, const std::string& what) {
  for (std::size_t e = 0; e < expected.size(); ++e) {
    if (sameBits(numbers[e], expected[e])) continue;
    failBench(Errc::kMachine, fmt::format("{}: number {} is {} instead of {}", what, e, numbers[e], expected[e]));
  }
}

}  // namespace srjit
