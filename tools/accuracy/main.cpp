// sr-jit-accuracy: measures the error of elementary functions (docs/accuracy.md), in f32 over all arguments.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <tbb/enumerable_thread_specific.h>
#include <tbb/parallel_for.h>
#include <nlohmann/json.hpp>

#include "ir/numbers/random.h"
#include "ir/numbers/rounding.h"
#include "ir/ops.h"
#include "runtime/engine.h"
#include "tools/accuracy/reference.h"
#include "tools/files/output.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/report.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kChunk = std::size_t{1} << 20;  ///< arguments per evaluation
constexpr std::size_t kSlice = std::size_t{1} << 14;  ///< of a chunk, per task
constexpr std::uint64_t kAllFloats = std::uint64_t{1} << 32;

struct Options {
  std::vector<std::string> functions;
  std::string device = "cpu", json;
  Precision precision = Precision::kF32;
  Math math = Math::kPrecise;
  std::uint64_t arguments = 0;
  std::uint64_t seed = 1;
};

/// The maximal error that the table of functions promises; none where it is no number of ulp.
std::optional<double> boundOf(Op op, const Options& options) {
  if (isApproximate(options.math, options.precision)) return {};
  for (const FunctionInfo& function : allFunctions()) {
    if (function.name == infoOf(op).name) return ulpsOf(function, options.precision);
  }
  return 0.5;  // an operation of IEEE 754
}

/// The arguments number `first` to first + x.size() - 1. Those of one operand in f32 are a permutation of all 2^32
/// floats: multiples of an odd number modulo 2^32. Others are random.
template <class T>
void fillArguments(std::uint64_t first, std::uint64_t seed, std::span<T> x, std::span<T> y) {
  if constexpr (sizeof(T) == sizeof(std::uint32_t)) {
    if (y.empty()) {
      // 2^32 over the golden ratio, so that any part of the sequence is spread evenly.
      constexpr std::uint32_t kOdd = 2654435769;
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = std::bit_cast<T>(static_cast<std::uint32_t>(first + i) * kOdd);
      }
      return;
    }
  }
  Random random(seed + first);
  for (T& value : x) value = randomArgument<T>(random);
  for (T& value : y) value = randomArgument<T>(random);
}

/// Operators of one arity, evaluated together.
template <class T>
class Scan {
 public:
  Scan(const Engine& engine, std::vector<Op> ops, int arity)
      : engine_(engine),
        ops_(std::move(ops)),
        arity_(arity),
        program_(engine.compile(expressions())),
        found_(std::vector<Worst<T>>(ops_.size())) {}

  Status run(std::uint64_t arguments, std::uint64_t seed) {
    Progress progress(arity_ == 1 ? "one operand" : "two operands", ceilDivide(arguments, kChunk), false);
    for (std::uint64_t first = 0; first < arguments; first += kChunk) {
      const std::size_t count = std::min<std::uint64_t>(kChunk, arguments - first);
      x_.resize(count);
      y_.resize(arity_ == 1 ? 0 : count);
      fillArguments<T>(first, seed, x_, y_);
      if (Status done = evaluate(); !done) return done;
      compare();
      progress.advance();
    }
    return okStatus();
  }

  std::span<const Op> ops() const { return ops_; }
  Worst<T> worst(std::size_t op) const {
    Worst<T> worst;
    for (const std::vector<Worst<T>>& part : found_) worst = worse(worst, part[op]);
    return worst;
  }

 private:
  std::vector<Expression> expressions() const {
    std::vector<Expression> all;
    for (const Op op : ops_) {
      std::vector<Token> tokens = {Token::variable(0)};
      if (arity_ == 2) tokens.push_back(Token::variable(1));
      tokens.push_back(Token::operation(op));
      all.push_back(Expression::create(std::move(tokens)).value());
    }
    return all;
  }

  Status evaluate() {
    DataView view;
    view.columns.emplace_back(x_);
    if (arity_ == 2) view.columns.emplace_back(y_);
    Result<Dataset> data = engine_.upload(view);
    if (!data) return data.error();
    results_.resize(ops_.size() * x_.size());
    Result<std::vector<Failure>> done = engine_.evaluate(program_, *data, {}, std::span<T>(results_));
    if (!done) return done.error();
    if (!done->empty()) return done->front().error;
    return okStatus();
  }

  void compare() {
    const std::size_t count = x_.size(), slices = ceilDivide(count, kSlice);
    tbb::parallel_for(std::size_t{0}, ops_.size() * slices, [&](std::size_t task) {
      const std::size_t op = task / slices, begin = task % slices * kSlice, length = std::min(kSlice, count - begin);
      const std::span<const T> x(x_), y(y_), got(results_);
      updateWorst<T>(ops_[op], x.subspan(begin, length), y.empty() ? y : y.subspan(begin, length),
                     got.subspan(op * count + begin, length), found_.local()[op]);
    });
  }

  const Engine& engine_;
  std::vector<Op> ops_;
  int arity_;
  Program program_;
  std::vector<T> x_, y_, results_;
  tbb::enumerable_thread_specific<std::vector<Worst<T>>> found_;  ///< per thread and operator
};

/// Adds the rows of a scan to `rows`, and prints them. Whether all errors are within their bounds.
template <class T>
bool addRows(const Scan<T>& scan, const Options& options, std::uint64_t arguments, Json& rows) {
  bool is_within = true;
  for (std::size_t i = 0; i < scan.ops().size(); ++i) {
    const Op op = scan.ops()[i];
    const Worst<T> worst = scan.worst(i);
    const double error = worst.error;
    const std::optional<double> bound = boundOf(op, options);
    const bool is_good = !bound || error <= *bound;
    is_within = is_within && is_good;
    const std::string at = arityOf(op) == 1 ? fmt::format("{:a}", worst.sample.x)
                                            : fmt::format("{:a}, {:a}", worst.sample.x, worst.sample.y);
    fmt::print("{:<6} {:>9.4f} {:>6} {:>12} {}{}\n", infoOf(op).name, error, bound ? fmt::format("{}", *bound) : "-",
               worst.wrong, at, is_good ? "" : "  beyond the bound");
    rows.push_back({{"function", infoOf(op).name},
                    {"arguments", arguments},
                    {"error_ulp", std::isfinite(error) ? Json(error) : Json("inf")},
                    {"bound_ulp", bound ? Json(*bound) : Json()},
                    {"wrong", worst.wrong},
                    {"at", at},
                    {"result", fmt::format("{:a}", worst.sample.got)}});
  }
  return is_within;
}

template <class T>
Result<bool> measure(const Engine& engine, const Options& options, Json& rows) {
  bool is_within = true;
  for (const int arity : {1, 2}) {
    std::vector<Op> ops;
    for (const Op op : referenceOps()) {
      const bool wanted =
          options.functions.empty() || std::ranges::find(options.functions, infoOf(op).name) != options.functions.end();
      if (wanted && arityOf(op) == arity) ops.push_back(op);
    }
    if (ops.empty()) continue;
    const bool all_floats = arity == 1 && options.precision == Precision::kF32;
    const std::uint64_t most = all_floats ? kAllFloats : std::uint64_t{1} << 30;
    const std::uint64_t arguments = options.arguments == 0 ? most
                                    : all_floats           ? std::min(options.arguments, most)
                                                           : options.arguments;
    Scan<T> scan(engine, std::move(ops), arity);
    if (const Status done = scan.run(arguments, options.seed); !done) return done.error();
    is_within = addRows(scan, options, arguments, rows) && is_within;
  }
  return is_within;
}

void addOptions(CLI::App& app, Options& options) {
  std::vector<std::string> names;
  for (const Op op : referenceOps()) names.emplace_back(infoOf(op).name);
  app.add_option("function", options.functions, "functions to measure; all if none is named")
      ->type_name("FUNCTION")
      ->check(CLI::IsMember(names));
  app.add_option("--device", options.device, "cpu, cuda:N, or auto")->capture_default_str();
  addNumericOptions(app, options.math, options.precision);
  addCount(app, "--arguments", options.arguments,
           "arguments per function, or pairs (all 2^32 of one operand in f32, else 2^30)")
      ->default_str("");
  addCount(app, "--seed", options.seed, "of random arguments");
  app.add_option("--json", options.json, "write the results to FILE")->type_name("FILE");
  app.footer(
      "Columns: function; largest error in ulp; bound of the table of functions, - where it is no number of ulp;\n"
      "number of wrong results (NaN for a number, a number for NaN, a zero of the wrong sign); argument of the\n"
      "largest error.\n"
      "Exit status: 0 all errors are within their bounds; 1 one is not; 2 wrong usage; 3 the machine.");
}

int runCommand(int argc, const char* const* argv) {
  CLI::App app("Measures the error of sr-jit's elementary functions against MPFR.", "sr-jit-accuracy");
  Options options;
  addOptions(app, options);
  if (const std::optional<ExitStatus> end = parseCommandLine(app, argc, argv)) return *end;
  const Result<Engine> engine =
      Engine::create({.device = options.device, .precision = options.precision, .math = options.math});
  if (!engine) return report(engine.error());
  Json rows = Json::array();
  const Result<bool> is_within =
      withZeroOf(options.precision, [&](auto zero) { return measure<decltype(zero)>(*engine, options, rows); });
  if (!is_within) return report(is_within.error());
  if (!options.json.empty()) {
    const Json all = {{"device", engine->options().device},
                      {"precision", nameOf(options.precision)},
                      {"math", nameOf(options.math)},
                      {"seed", options.seed},
                      {"functions", std::move(rows)}};
    Result<OutputFile> file = OutputFile::create(options.json);
    if (!file) return report(file.error());
    file->write(all.dump(2) + '\n');
    if (const Status saved = file->publish(); !saved) return report(saved.error());
  }
  return *is_within ? kDone : kBadInput;
}

}  // namespace
}  // namespace srjit

int main(int argc, char** argv) {
  return srjit::runMain([&] { return srjit::runCommand(argc, argv); });
}
