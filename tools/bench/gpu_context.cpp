#include "tools/bench/gpu_context.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <string_view>

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include "ir/numbers/rounding.h"
#include "tests/generators/klein_nishina.h"

namespace srjit {

bool BenchContext::mayBegin(const std::string& part, const std::string& name) const {
  if (left() > 0) return true;
  report->addNotRun(part, name, fmt::format("the {:g} s were up", seconds));
  return false;
}

std::string BenchContext::cacheDirectory(const std::string& name) const {
  const std::filesystem::path directory = std::filesystem::path(scratch) / name;
  if (!warm.empty() && !std::filesystem::exists(directory)) {
    std::filesystem::copy(warm, directory, std::filesystem::copy_options::recursive);
  }
  return directory.string();
}

Engine BenchContext::engine(Math math, const std::string& cache, Precision precision) const {
  return must(Engine::create(
      {.device = device, .precision = precision, .math = math, .cache_directory = cacheDirectory(cache)}));
}

std::vector<double> BenchContext::sample(std::size_t count, double limit, const std::function<double()>& body) const {
  if (quick) {
    count = std::min<std::size_t>(count, 3);
    limit /= 5;
  }
  const Stopwatch watch;
  std::vector<double> samples;
  do {
    samples.push_back(body());
  } while (samples.size() < count && watch.seconds() < limit && left() > 0);
  return samples;
}

BenchData::BenchData(std::size_t column_count, std::size_t rows) : columns(column_count), target(rows) {
  Random random(7);
  const auto fill = [&](std::vector<float>& values) {
    for (float& value : values) value = static_cast<float>(random.between(-3.0, 3.0));
  };
  for (std::vector<float>& column : columns) {
    column.resize(rows);
    fill(column);
  }
  fill(target);
}

BenchData BenchData::positive(std::size_t columns, std::size_t rows) {
  BenchData data(columns, rows);
  for (std::vector<float>& column : data.columns) {
    for (float& value : column) value = (value + 3.1f) / 2;
  }
  return data;
}

BenchData BenchData::ofFormula(std::size_t rows) {
  BenchData data(kKleinNishinaVariables, rows);
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

DataView BenchData::view() const {
  DataView view;
  for (const auto& column : columns) view.columns.emplace_back(column);
  view.target.emplace(target);
  return view;
}

std::vector<Expression> populationOf(std::string_view name, std::size_t count) {
  return ExpressionGenerator(findPopulation(name).value()).batch(count);
}

double nodesOf(std::span<const Expression> expressions) {
  std::size_t nodes = 0;
  for (const Expression& expression : expressions) nodes += expression.size();
  return static_cast<double>(nodes);
}

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

void warmCache(const std::string& device, const std::string& directory) {
  if (device == "cpu") return;
  const Engine engine = must(Engine::create({.device = device, .math = Math::kFast, .cache_directory = directory}));
  std::vector<std::future<void>> making;
  for (const char* const population : {"mixed", "arithmetic"}) {
    // Few rows and many rows use different interpreters.
    for (const std::size_t rows : {128, 4096}) {
      making.push_back(std::async(std::launch::async, [&engine, population, rows] {
        const Dataset data = must(engine.upload(BenchData(10, rows).view()));
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
  const Dataset data = must(engine.upload(BenchData(10, 128).view()));
  const Program program = engine.compile(populationOf("arithmetic", 8), {.tier = Tier::kDirect});
  must(engine.prepare(program, data, LossOptions{}));
  return program.status().tier == Tier::kDirect;
}

std::vector<Tier> tiersOf(const Engine& engine) {
  if (hasDirect(engine)) return {Tier::kInterpret, Tier::kDirect, Tier::kCompile};
  return {Tier::kInterpret, Tier::kCompile};
}

const char* titleOf(Tier tier) {
  return tier == Tier::kInterpret ? "interpreter" : tier == Tier::kDirect ? "direct code" : "machine code";
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

std::vector<double> kernelRates(const BenchContext& context, const Engine& engine, const Program& program,
                                const Dataset& data, double nodes, std::size_t count, double limit,
                                std::span<float> out) {
  const double evaluations = nodes * static_cast<double>(data.rows());
  const auto rate = [&] {
    const Seconds seconds =
        out.empty() ? timeLoss(engine, program, data, {}) : timePredictions(engine, program, data, {}, out);
    return evaluations / seconds.device / kTera;
  };
  rate();
  return context.sample(count, limit, rate);
}

}  // namespace srjit
