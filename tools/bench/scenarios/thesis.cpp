// The workload of exhaustive symbolic regression that a thesis published for an interpreter and a transpiler in Julia
// (docs/performance.md): many small expressions, and a hundred steps of parameter optimisation.
//
// A run begins with the text of all expressions and the columns in host memory, and ends with the last result in host
// memory. Every step waits for the results of the one before, as an optimiser does. The kernels of the interpreter are
// compiled before, since they do not depend on the expressions and are compiled once per machine.
#include <fmt/format.h>

#include "tests/generators/enumeration.h"
#include "tools/bench/gpu_context.h"
#include "tools/bench/scenarios/baseline_runs.h"
#include "tools/bench/scenarios/host_memory.h"
#include "tools/files/data.h"
#include "tools/progress.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kEnumerated = 250000;
constexpr int kThesisSteps = 100;
constexpr double kPinnedCopies = 1.3;  // limit for predictions, as a multiple of the time of the pinned copies

struct ThesisShape {
  const char* part;
  std::size_t expressions, rows;
  double losses_seconds;  ///< the target
};

/// Seconds of one run.
struct Run {
  double frontend = 0, upload = 0, compile = 0, steps = 0, kernels = 0;
  ProgramStatus status = {};
  double total() const { return frontend + upload + compile + steps; }
};

constexpr std::pair<const char*, double Run::*> kStages[] = {
    {"frontend", &Run::frontend}, {"upload", &Run::upload}, {"compile", &Run::compile}, {"kernels", &Run::kernels}};

/// Two columns and a target: from the file, whose last column is the target, or generated. Generated numbers are
/// positive, as those of the published data.
BenchData thesisData(const BenchContext& context, std::size_t rows) {
  if (context.data_file.empty()) return BenchData::positive(2, rows);
  const DataTable table = must(readData(context.data_file));
  if (table.columns.size() != 3) {
    throw BenchFailure{
        {Errc::kInvalid,
         fmt::format("{} has {} columns; this scenario takes two variables and the target, in this order",
                     context.data_file, table.columns.size()),
         {}}};
  }
  BenchData data;
  for (const auto& column : table.columns) data.columns.emplace_back(column.begin(), column.end());
  data.target = std::move(data.columns.back());
  data.columns.pop_back();
  return data;
}

class Thesis {
 public:
  Thesis(const BenchContext& context, const ThesisShape& shape)
      : context_(context),
        shape_(shape),
        steps_(context.quick ? 5 : kThesisSteps),
        data_(thesisData(context, shape.rows)),
        expressions_(evenlySpread(enumerateExpressions(kEnumerated),
                                  context.quick ? shape.expressions / 50 : shape.expressions)),
        text_(textOf(expressions_, Language::kPostfix)),
        engine_(context.engine(Math::kFast)),
        what_(fmt::format("{} small expressions x {} rows, {} steps", expressions_.size(), data_.rows(), steps_)) {}

  void run() {
    const std::size_t parameters = parametersOf(expressions_);
    for (int step = 0; step < 4; ++step) numbers_.push_back(parameterNumbers(parameters, step));
    Json details = {{"expressions", expressions_.size()},
                    {"rows", data_.rows()},
                    {"steps", steps_},
                    {"tokens", nodesOf(expressions_)},
                    {"parameters", parameters},
                    {"data", context_.data_file.empty() ? "synthetic" : context_.data_file}};
    const std::vector<Expression> few = evenlySpread(expressions_, std::min<std::size_t>(64, expressions_.size()));
    const Stopwatch watch;
    const Program program = engine_.compile(few, {.tier = Tier::kInterpret});
    timeLoss(engine_, program, must(engine_.upload(data_.view())), parametersFor(program, 0));
    details["first_losses_seconds"] = watch.seconds();
    const bool has_direct = hasDirect(engine_);
    if (context_.losses) {
      details["losses"] = losses();
      if (has_direct) {
        details["direct_losses"] = losses(Tier::kDirect, "losses with direct code");
        details["interpreted_losses"] = losses(Tier::kInterpret, "losses, interpreted");
      }
    }
    if (context_.predictions) details["predictions"] = predictions();
    if (context_.losses) details["compiled_losses"] = compiled();
    // Saved before the designs run, since one of them may crash the device.
    context_.report->attach(shape_.part, details);
    details["baselines"] = runBaselines(context_, {shape_.part, what_, data_, expressions_, steps_, frontend_seconds_},
                                        0.9 * context_.left());
    context_.report->attach(shape_.part, std::move(details));
  }

 private:
  /// From text to the last result; `out` is empty for losses.
  Run once(const Engine& engine, const std::string& text, std::span<const std::vector<double>> numbers, Tier tier,
           std::span<float> out) {
    Run run;
    const Stopwatch frontend;
    const std::vector<Expression> expressions = parseLines(text, Language::kPostfix);
    run.frontend = frontend.seconds();
    const Stopwatch uploading;
    const Dataset data = must(engine.upload(data_.view()));
    run.upload = uploading.seconds();
    const Stopwatch compiling;
    const Program program = engine.compile(
        expressions, {.tier = tier, .expected_evaluations = static_cast<double>(steps_), .expected_rows = data.rows()});
    if (tier == Tier::kCompile || tier == Tier::kDirect) {
      must(engine.prepare(program, data, out.empty() ? std::optional(LossOptions{}) : std::nullopt));
    }
    run.compile = compiling.seconds();
    Progress progress(shape_.part, static_cast<std::size_t>(steps_), false);
    const Stopwatch stepping;
    for (int step = 0; step < steps_; ++step) {
      const auto& parameters = numbers[static_cast<std::size_t>(step) % numbers.size()];
      const Seconds seconds = out.empty() ? timeLoss(engine, program, data, parameters)
                                          : timePredictions(engine, program, data, parameters, out);
      run.kernels += seconds.device;
      progress.advance();
    }
    run.steps = stepping.seconds();
    run.status = program.status();
    return run;
  }

  /// Samples of whole runs, in figures and JSON.
  Json measure(const std::string& name, std::span<float> out, std::size_t most, double limit,
               std::optional<Target> target, Tier tier = Tier::kAuto) {
    std::vector<Run> runs;
    context_.sample(most, limit, [&] {
      runs.push_back(once(engine_, text_, numbers_, tier, out));
      return runs.back().total();
    });
    const ProgramStatus& status = runs.front().status;
    // Later runs would find the code of the first in the cache.
    if (status.compiling || status.tier == Tier::kCompile) runs.resize(1);
    std::vector<double> totals;
    for (const Run& run : runs) totals.push_back(run.total());
    context_.report->add(shape_.part, {fmt::format("{}, {}: text to last result", what_, name), "s", totals, target,
                                       fmt::format("{} expressions had machine code at the end", status.compiled)});
    Json stages;
    const auto add = [&](const char* stage, std::vector<double> seconds) {
      stages[stage] = {medianOf(seconds), quantileOf(seconds, 0.25), quantileOf(seconds, 0.75)};
      for (double& value : seconds) value *= 1e3;
      context_.report->add(shape_.part, {fmt::format("{}, {}: of that, {}", what_, name, stage), "ms", seconds});
    };
    for (const auto& [stage, member] : kStages) {
      std::vector<double> seconds;
      for (const Run& run : runs) seconds.push_back(run.*member);
      add(stage, std::move(seconds));
    }
    std::vector<double> rest;
    for (const Run& run : runs) rest.push_back(run.steps - run.kernels);
    // Copies that no kernel overlaps, and host work.
    add("copies and host", std::move(rest));
    frontend_seconds_ = stages["frontend"][0].get<double>();
    return {{"total_seconds", medianOf(totals)}, {"quartiles", {quantileOf(totals, 0.25), quantileOf(totals, 0.75)}},
            {"stages_seconds", stages},          {"samples", runs.size()},
            {"tier", nameOf(status.tier)},       {"compiled_expressions", status.compiled}};
  }

  /// Targets are for the published sizes.
  bool isPublishedShape() const {
    return context_.onGpu() && expressions_.size() == shape_.expressions && data_.rows() == shape_.rows &&
           steps_ == kThesisSteps;
  }

  Json losses() {
    return measure("losses", {}, 7, 0.1 * context_.left(),
                   isPublishedShape() ? std::optional(atMost(shape_.losses_seconds)) : std::nullopt);
  }

  Json losses(Tier tier, const std::string& name) { return measure(name, {}, 3, 0.05 * context_.left(), {}, tier); }

  // To pinned memory, comparable with the plain copy, and to pageable memory.
  Json predictions() {
    const std::size_t values = expressions_.size() * data_.rows();
    Json all;
    if (!context_.onGpu()) {
      HostMatrix out(context_, values, false);
      all["pageable"] = measure("predictions", out.values(), 3, 0.1 * context_.left(), {});
      return all;
    }
    const std::vector<double> copies = pinnedCopySeconds(context_, values * sizeof(float));
    const double copy = medianOf(copies) * steps_;
    std::vector<double> milliseconds;
    for (const double seconds : copies) milliseconds.push_back(seconds * 1e3);
    context_.report->add(shape_.part,
                         {fmt::format("{}, predictions: one pinned copy of the matrix", what_), "ms", milliseconds});
    for (const bool pinned : {true, false}) {
      HostMatrix out(context_, values, pinned);
      const char* const name = pinned ? "pinned" : "pageable";
      Json row = measure(fmt::format("predictions to {} memory", name), out.values(), 3, 0.12 * context_.left(), {});
      const double ratio = row["total_seconds"].get<double>() / copy;
      row["over_pinned_copies"] = ratio;
      Figure figure{
          fmt::format("{}, predictions to {} memory: text to last result over the pinned copies alone", what_, name),
          "times",
          {ratio}};
      if (pinned && isPublishedShape()) figure.target = atMost(kPinnedCopies);
      context_.report->add(shape_.part, std::move(figure));
      all[name] = std::move(row);
    }
    all["pinned_copies_seconds"] = copy;
    return all;
  }

  // Machine code for all, compile time included. Kernels are cached, so only the first run compiles them. Earlier runs
  // may have compiled some in the background, so this one uses a cache of its own.
  Json compiled() {
    constexpr std::size_t kMost = 10000;
    const std::size_t count = std::min(expressions_.size(), context_.quick ? std::size_t{100} : kMost);
    const double scale = static_cast<double>(expressions_.size()) / static_cast<double>(count);
    const std::vector<Expression> chosen = evenlySpread(expressions_, count);
    std::vector<std::vector<double>> numbers;
    for (int step = 0; step < 4; ++step) numbers.push_back(parameterNumbers(parametersOf(chosen), step));
    const Engine engine = context_.engine(Math::kFast, "compiled");
    const Run run = once(engine, textOf(chosen, Language::kPostfix), numbers, Tier::kCompile, {});
    context_.report->add(shape_.part, {fmt::format("{}, losses: text to last result with machine code", what_),
                                       "s",
                                       {run.total() * scale},
                                       {},
                                       fmt::format("{} of {} expressions", count, expressions_.size()),
                                       scale > 1});
    return {{"total_seconds", run.total() * scale}, {"compile_seconds", run.compile * scale},
            {"steps_seconds", run.steps * scale},   {"kernels_seconds", run.kernels * scale},
            {"expressions_measured", count},        {"extrapolated", scale > 1}};
  }

  const BenchContext& context_;
  const ThesisShape shape_;
  const int steps_;
  const BenchData data_;  ///< first, since reading the file may fail
  const std::vector<Expression> expressions_;
  const std::string text_;
  const Engine engine_;
  const std::string what_;
  std::vector<std::vector<double>> numbers_;  ///< parameters of each step
  double frontend_seconds_ = 0;
};

}  // namespace

void benchThesis1(const BenchContext& context) { Thesis(context, {"thesis-1", 250000, 362, 0.5}).run(); }
void benchThesis2(const BenchContext& context) { Thesis(context, {"thesis-2", 10000, 362, 0.03}).run(); }
void benchThesis3(const BenchContext& context) { Thesis(context, {"thesis-3", 10000, 10860, 0.12}).run(); }

}  // namespace srjit
