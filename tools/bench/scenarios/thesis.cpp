// The workload of exhaustive symbolic regression that a thesis published for an interpreter and a transpiler in Julia
// (docs/performance.md): many small expressions, and a hundred steps of parameter optimisation.
//
// A run begins with the text of all expressions and the columns in host memory, and ends with the last result in host
// memory. Every step waits for the results of the one before, as an optimiser does. The kernels of the interpreter are
// compiled before, since they do not depend on the expressions and are compiled once per machine.
#include <fmt/format.h>

#include "tests/generators/enumeration.h"
#include "tools/bench/work.h"
#include "tools/files/data.h"

namespace srjit {
namespace {

constexpr std::size_t kEnumerated = 250000;

/// Seconds of one run.
struct ThesisRun {
  double frontend = 0, upload = 0, compile = 0, steps = 0, kernels = 0;
  ProgramStatus status = {};
  double total() const { return frontend + upload + compile + steps; }
};

/// Two columns and a target: from the file, whose last column is the target, or generated. Generated numbers are
/// positive, as those of the published data.
BenchData thesisData(const Bench& bench, std::size_t rows) {
  if (bench.data_file.empty()) return positiveData(2, rows);
  const DataTable table = must(readData(bench.data_file));
  if (table.columns.size() != 3) {
    failBench(Errc::kInvalid,
              fmt::format("{} has {} columns; this scenario takes two variables and the target, in this order",
                          bench.data_file, table.columns.size()));
  }
  BenchData data;
  for (const auto& column : table.columns) data.columns.emplace_back(column.begin(), column.end());
  data.target = std::move(data.columns.back());
  data.columns.pop_back();
  return data;
}

class Thesis {
 public:
  Thesis(const Bench& bench, std::size_t expressions, std::size_t rows)
      : bench_(bench),
        steps_(bench.quick ? 5 : 100),
        data_(thesisData(bench, rows)),
        expressions_(evenlySpread(enumerateExpressions(kEnumerated), bench.quick ? expressions / 50 : expressions)),
        text_(textOf(expressions_, Language::kPostfix)),
        engine_(bench.engine()),
        subject_(subjectOf(expressions_.size(), "small expressions", data_.rows())
                     .with(fmt::format("{} steps", steps_),
                           {{"steps", steps_}, {"data", bench.data_file.empty() ? "synthetic" : bench.data_file}})) {}

  void run() {
    for (int step = 0; step < 4; ++step) numbers_.push_back(parameterNumbers(parametersOf(expressions_), step));
    const std::vector<Expression> few = evenlySpread(expressions_, std::min<std::size_t>(64, expressions_.size()));
    const Stopwatch watch;
    const Program program = engine_.compile(few, {.tier = Tier::kInterpret});
    timeLoss(engine_, program, must(engine_.upload(data_.view())), parametersFor(program, 0));
    bench_.add(subject_, "first losses, with loading kernels", "s", {watch.seconds()});
    if (bench_.losses) {
      measure(Tier::kAuto, "losses", {}, 7, 0.1);
      if (hasDirect(engine_)) {
        measure(Tier::kDirect, "losses", {}, 3, 0.05);
        measure(Tier::kInterpret, "losses", {}, 3, 0.05);
      }
    }
    if (bench_.predictions) {
      std::vector<float> out(expressions_.size() * data_.rows());
      measure(Tier::kAuto, "predictions", out, 3, 0.24);
    }
    runDesigns(bench_, {subject_, data_, expressions_, steps_, frontend_seconds_}, 0.9 * bench_.left());
  }

 private:
  /// From text to the last result; `out` is empty for losses.
  ThesisRun once(Tier tier, std::span<float> out) {
    ThesisRun run;
    const Stopwatch frontend;
    const std::vector<Expression> expressions = parseLines(text_, Language::kPostfix);
    run.frontend = frontend.seconds();
    const Stopwatch uploading;
    const Dataset data = must(engine_.upload(data_.view()));
    run.upload = uploading.seconds();
    const CompileOptions options{
        .tier = tier, .expected_evaluations = static_cast<double>(steps_), .expected_rows = data.rows()};
    const auto [program, seconds] = makeReady(engine_, expressions, data, options, !out.empty());
    run.compile = seconds;
    const Stopwatch stepping;
    for (int step = 0; step < steps_; ++step) {
      const auto& parameters = numbers_[static_cast<std::size_t>(step) % numbers_.size()];
      run.kernels += (out.empty() ? timeLoss(engine_, program, data, parameters)
                                  : timePredictions(engine_, program, data, parameters, out))
                         .device;
    }
    run.steps = stepping.seconds();
    run.status = program.status();
    return run;
  }

  /// Samples of whole runs in a part of the time.
  void measure(Tier tier, const std::string& result, std::span<float> out, std::size_t most, double part) {
    std::vector<ThesisRun> runs;
    bench_.sample(most, part * bench_.left(), [&] {
      runs.push_back(once(tier, out));
      return runs.back().total();
    });
    const ProgramStatus& status = runs.front().status;
    // Later runs would find the code of the first in the cache.
    if (status.compiling || status.tier == Tier::kCompile) runs.resize(1);
    const Subject subject = inTier(subject_, tier).with(result, {{"result", result}, {"served", nameOf(status.tier)}});
    const auto add = [&](const char* metric, const char* unit, const auto& of, const std::string& note = {}) {
      std::vector<double> samples;
      for (const ThesisRun& run : runs) samples.push_back(of(run));
      bench_.add(subject, metric, unit, samples, note);
      return medianOf(samples);
    };
    const double steps = steps_;
    add(
        "text to last result", "s", [](const ThesisRun& run) { return run.total(); },
        fmt::format("{} expressions had machine code at the end", status.compiled));
    frontend_seconds_ = add("of that, frontend", "ms", [](const ThesisRun& run) { return run.frontend; });
    add("of that, upload", "ms", [](const ThesisRun& run) { return run.upload; });
    add("of that, compile", "ms", [](const ThesisRun& run) { return run.compile; });
    add("of that, kernels", "ms", [](const ThesisRun& run) { return run.kernels; });
    // Copies that no kernel overlaps, and host work.
    add("of that, copies and host", "ms", [](const ThesisRun& run) { return run.steps - run.kernels; });
    add("text to programs", "ms", [](const ThesisRun& run) { return run.frontend + run.compile; });
    add("one step, kernels", "ms", [=](const ThesisRun& run) { return run.kernels / steps; });
    add("one step, new parameters to results", "ms", [=](const ThesisRun& run) { return run.steps / steps; });
  }

  const Bench& bench_;
  const int steps_;
  const BenchData data_;  ///< first, since reading the file may fail
  const std::vector<Expression> expressions_;
  const std::string text_;
  const Engine engine_;
  const Subject subject_;
  std::vector<std::vector<double>> numbers_;  ///< parameters of each step
  double frontend_seconds_ = 0;
};

}  // namespace

void benchThesis1(const Bench& bench) { Thesis(bench, 250000, 362).run(); }
void benchThesis2(const Bench& bench) { Thesis(bench, 10000, 362).run(); }
void benchThesis3(const Bench& bench) { Thesis(bench, 10000, 10860).run(); }

}  // namespace srjit
