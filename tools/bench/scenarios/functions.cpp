// Functions one at a time, beside those of other libraries: on a GPU sums of applications, as code of sr-jit and as
// CUDA C++ without approximate arithmetic; on a processor, precise and on one thread, beside loops over libmvec.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "tools/bench/designs/device.h"
#include "tools/bench/designs/tables.h"
#include "tools/bench/scenarios/libmvec.h"
#include "tools/bench/work.h"

namespace srjit {
namespace {

constexpr std::size_t kApplications = 16;  // in a sum
constexpr std::size_t kSums = 4;           // expressions: enough work to hide the launch
constexpr std::size_t kLibraryRuns = 200;

[[noreturn]] void failFunction(std::string message) { throw BenchFailure{{Errc::kMachine, std::move(message), {}}}; }

/// Columns in the operands' ranges, whose widths are multiplied by `part`.
BenchData operandsOf(const LibraryFunction& function, std::size_t rows, double part) {
  BenchData data = randomData(2, rows);
  const auto scale = [&](std::vector<float>& column, double low, double high) {
    for (float& value : column) {
      value = static_cast<float>(low + part * (high - low) * (static_cast<double>(value) + 3) / 6);
    }
  };
  scale(data.columns[0], function.x_low, function.x_high);
  scale(data.columns[1], function.y_low, function.y_high);
  return data;
}

/// Sum `number`: f(x0 + c, x1 + d) + ..., with other constants in every term, so that no two are the same subtree.
/// Operands are in the lower halves of their ranges; the constants add up to the other half.
Expression applicationsOf(const LibraryFunction& function, std::size_t number) {
  std::vector<Token> tokens;
  const auto operand = [&](std::uint32_t column, double offset) {
    tokens.push_back(Token::variable(column));
    tokens.push_back(Token::constant(offset));
    tokens.push_back(Token::operation(Op::kAdd));
  };
  for (std::size_t i = 0; i < kApplications; ++i) {
    const double part = (static_cast<double>(i * kSums + number) + 0.5) / (kApplications * kSums);
    operand(0, part * (function.x_high - function.x_low) / 2);
    if (arityOf(function.op) == 2) operand(1, (1 - part) * (function.y_high - function.y_low) / 2);
    tokens.push_back(Token::operation(function.op));
    if (i > 0) tokens.push_back(Token::operation(Op::kAdd));
  }
  return must(Expression::create(std::move(tokens)));
}

/// Logarithms of the ratios of functions, by the compared library.
using Ratios = std::map<std::string, std::vector<double>>;

void addRatios(const Bench& bench, const Subject& subject, const std::string& kind, std::span<const double> own,
               std::span<const double> library, Ratios& ratios) {
  std::vector<double> speeds;
  for (std::size_t i = 0; i < own.size(); ++i) speeds.push_back(library[i % library.size()] / own[i]);
  bench.add(subject, "speed over the library's", "times", speeds);
  ratios[kind].push_back(std::log(medianOf(speeds)));
}

/// One function on a GPU, in every tier that makes code, beside CUDA's library if it can be had.
void onGpu(const Bench& bench, const Engine& engine, const LibraryFunction& function, bool has_library,
           Ratios& ratios) {
  const BenchData data = operandsOf(function, bench.quick ? 50'000 : 1'000'000, 0.5);
  std::vector<Expression> sums;
  for (std::size_t i = 0; i < kSums; ++i) sums.push_back(applicationsOf(function, i));
  const Dataset uploaded = must(engine.upload(data.view()));
  const auto values = static_cast<double>(kApplications * kSums * data.rows());
  std::vector<double> expected(kSums), library;
  if (has_library) {
    const auto design = makeNvrtcBaseline(openBaselineDevice(bench.ordinal()), data, Math::kPrecise);
    design->prepare(sums);
    library = bench.sample(16, 0.1, [&] {
      design->losses({}, expected);
      return design->kernelSeconds() / values;
    });
  }
  for (const Tier tier : tiersOf(engine)) {
    if (tier == Tier::kInterpret) continue;
    const Program program = engine.compile(sums, {.tier = tier});
    const Losses own = must(engine.loss(program, uploaded, {}, {.kind = LossKind::kSse}));
    if (const auto error = program.status().error) throw BenchFailure{*error};
    for (std::size_t e = 0; has_library && e < kSums; ++e) {
      // Results differ by a few units in the last place, even beside a pole, and sums by the order of additions.
      if (std::fabs(own.values[e] - expected[e]) <= 1e-3 * expected[e]) continue;
      failFunction(fmt::format("a sum of squared errors is {}, with CUDA's function {}", own.values[e], expected[e]));
    }
    std::vector<double> times = timeSeries(bench, engine, program, uploaded, 15, 0.1).device;
    for (double& seconds : times) seconds /= values;
    const Subject subject =
        inTier({fmt::format("f32 precise, {} x {} in a sum", kApplications, infoOf(function.op).name),
                {{"function", infoOf(function.op).name}}},
               tier);
    bench.add(subject, "time", "ps/value", times);
    if (!has_library) continue;
    bench.add(subject.with("CUDA's library"), "time", "ps/value", library);
    const std::vector<double> middle = {medianOf(library)};
    addRatios(bench, subject, titleOf(tier), times, middle, ratios);
  }
}

/// One function on a processor, beside the loop of row `row` of libmvec. Both read and write all values.
template <class T>
void onProcessor(const Bench& bench, const LibraryFunction& function, std::size_t row, Ratios& ratios) {
  constexpr bool kIsFloat = std::is_same_v<T, float>;
  const std::size_t rows = bench.quick ? 10'000 : 1'000'000;
  const BenchData data = operandsOf(function, rows, 1);
  const std::vector<T> xs(data.columns[0].begin(), data.columns[0].end()),
      ys(data.columns[1].begin(), data.columns[1].end());
  std::vector<T> own(rows), library(rows);
  const Precision precision = kIsFloat ? Precision::kF32 : Precision::kF64;
  const Engine engine =
      must(Engine::create({.device = "cpu", .precision = precision, .math = Math::kPrecise, .threads = 1}));
  DataView view{.columns = {xs}};
  std::vector<Token> tokens = {Token::variable(0)};
  if (arityOf(function.op) == 2) {
    tokens.push_back(Token::variable(1));
    view.columns.emplace_back(ys);
  }
  tokens.push_back(Token::operation(function.op));
  const Expression expression = must(Expression::create(std::move(tokens)));
  const Dataset uploaded = must(engine.upload(view));
  const Program program = engine.compile({&expression, 1}, {.tier = Tier::kInterpret});
  std::vector<double> own_seconds, library_seconds;
  const auto once = [&] {
    const Stopwatch watch;
    must(engine.evaluate(program, uploaded, {}, std::span<T>(own)));
    const double middle = watch.seconds();
    libraryLoop<T>(row)(xs.data(), ys.data(), library.data(), rows);
    own_seconds.push_back(middle / static_cast<double>(rows));
    library_seconds.push_back((watch.seconds() - middle) / static_cast<double>(rows));
    return middle;
  };
  bench.sample(kLibraryRuns, 0.4, once);
  // Below 1, libmvec's functions may lose relative accuracy: sines near multiples of pi.
  const T tolerance = 16 * std::numeric_limits<T>::epsilon();
  for (std::size_t i = 0; i < rows; ++i) {
    if (std::fabs(own[i] - library[i]) <= tolerance * std::max(T(1), std::fabs(own[i]))) continue;
    failFunction(fmt::format("{} is {}, with libmvec {}", infoOf(function.op).name, own[i], library[i]));
  }
  const Subject subject = {fmt::format("{} precise, {}, one thread", nameOf(precision), infoOf(function.op).name),
                           {{"function", infoOf(function.op).name}, {"precision", nameOf(precision)}}};
  bench.add(subject, "time", "ns/value", own_seconds);
  bench.add(subject.with("libmvec"), "time", "ns/value", library_seconds);
  addRatios(bench, subject, std::string(nameOf(precision)), own_seconds, library_seconds, ratios);
}

}  // namespace

void benchFunctions(const Bench& bench) {
  const Engine engine = bench.engine(Math::kPrecise);
  bool has_library = true;
  if (bench.onGpu()) {
    const Status made =
        caught([&] { makeNvrtcBaseline(openBaselineDevice(bench.ordinal()), randomData(1, 1), Math::kPrecise); });
    has_library = made.ok();
    if (!made) bench.report->addNotRun(bench.scenario, "CUDA's library", made.error().message);
  }
  Ratios ratios;
  const auto functions = allLibraryFunctions();
  for (std::size_t row = 0; row < functions.size(); ++row) {
    const std::string name(infoOf(functions[row].op).name);
    if (!bench.mayBegin(name)) continue;
    const Status done = caught([&] {
      if (bench.onGpu()) return onGpu(bench, engine, functions[row], has_library, ratios);
      onProcessor<float>(bench, functions[row], row, ratios);
      onProcessor<double>(bench, functions[row], row, ratios);
    });
    if (!done) bench.report->addFault(bench.scenario, fmt::format("{}: {}", name, done.error().message));
  }
  for (const auto& [kind, logarithms] : ratios) {
    double sum = 0;
    for (const double logarithm : logarithms) sum += logarithm;
    bench.add({fmt::format("{} functions, {}", logarithms.size(), kind), {{"kind", kind}}},
              "speed over the library's, geometric mean", "times",
              {std::exp(sum / static_cast<double>(logarithms.size()))});
  }
}

}  // namespace srjit
