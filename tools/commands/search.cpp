#include "tools/search/evolution.h"

#include <algorithm>
#include <atomic>
#include <csignal>

#include <fmt/format.h>

#include "tools/commands.h"
#include "tools/evaluation.h"
#include "tools/files/checkpoint.h"
#include "tools/progress.h"
#include "tools/search/link.h"
#include "tools/search/report/front_text.h"
#include "tools/search/report/plot.h"
#include "tools/streams.h"

namespace srjit {
namespace {

struct SearchCommand {
  EvaluationOptions evaluation;
  search::SearchOptions search;
  std::string loss = "nmse", operators, nesting, checkpoint, plot;
  bool latex = false;
};

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler writes it

/// While this lives, the first SIGINT or SIGTERM ends the search with what it has; the second one the process.
class InterruptGuard {
 public:
  InterruptGuard() {
    interrupted = false;
    struct sigaction action{};
    action.sa_handler = [](int) { interrupted = true; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, &interrupt_before_);
    sigaction(SIGTERM, &action, &terminate_before_);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard() {
    sigaction(SIGINT, &interrupt_before_, nullptr);
    sigaction(SIGTERM, &terminate_before_, nullptr);
  }

 private:
  struct sigaction interrupt_before_{}, terminate_before_{};
};

std::string timeText(double seconds, double limit) {
  return limit > 0 ? fmt::format("{:.0f}/{:.0f} s", seconds, limit) : fmt::format("{:.0f} s", seconds);
}

std::string progressText(const search::SearchState& state, double limit, const ColumnNames& names) {
  const search::Formula* best = state.front.chosen();
  std::string text = fmt::format("{}, {:.3g} trees, {} formulas", timeText(state.seconds, limit),
                                 static_cast<double>(state.candidates), state.front.size());
  if (best == nullptr) return text;
  return text + fmt::format(", loss {:.3g}: {}", best->loss, print(best->expression, Language::kInfix, names));
}

const char* wordsOf(search::SearchEnd end) {
  switch (end) {
    case search::SearchEnd::kTime:
      return "the time is over";
    case search::SearchEnd::kGenerations:
      return "the generations are over";
    case search::SearchEnd::kEnough:
      return "a formula is exact";
    case search::SearchEnd::kStopped:
      return "stopped";
  }
  __builtin_unreachable();
}

/// What is in options as text. Throws CLI::ValidationError for a word that is no loss.
Status readTexts(SearchCommand& options) {
  if (const Status loss = readLoss(options.loss, options.search.loss); !loss) return loss;
  if (!options.operators.empty()) {
    Result<std::vector<search::OperatorUse>> operators = search::parseOperators(options.operators);
    if (!operators) return showPlace(operators.error(), options.operators, "--ops", 1);
    options.search.grammar.operators = *std::move(operators);
  }
  if (!options.nesting.empty()) {
    Result<std::vector<search::NestingLimit>> nesting = search::parseNesting(options.nesting);
    if (!nesting) return showPlace(nesting.error(), options.nesting, "--nesting", 1);
    options.search.grammar.nesting = *std::move(nesting);
  }
  return okStatus();
}

/// The plot of the chosen formula over all rows.
Result<std::string> plotText(const search::SearchResult& result, const DataView& data, std::span<const double> target,
                             const std::string& target_name) {
  const Engine& engine = result.engine;
  const search::Formula* chosen = result.state.front.chosen();
  if (chosen == nullptr) {
    return search::plotSvg({.front = result.state.front, .formula = {}, .target = {}, .prediction = {}});
  }
  std::vector<double> predictions(target.size());
  const Result<Dataset> rows = engine.upload(data);
  if (!rows) return rows.error();
  const Program program = engine.compile(std::span(&chosen->expression, 1));
  const auto evaluated = engine.evaluate(program, *rows, {}, std::span<double>(predictions));
  if (!evaluated) return evaluated.error();
  return search::plotSvg({.front = result.state.front,
                          .formula = print(chosen->expression, Language::kInfix, data.names),
                          .target = target,
                          .prediction = predictions,
                          .target_name = target_name});
}

std::string frontText(const SearchCommand& options, const search::Front& front, const ColumnNames& names) {
  if (options.latex) return search::latexTable(front, names);
  return options.evaluation.json ? search::jsonText(front, names) : search::csvText(front, names);
}

ExitStatus runSearch(SearchCommand options) {
  if (const Status read = readTexts(options); !read) return report(read.error());
  const EvaluationOptions& evaluation = options.evaluation;
  Result<DataTable> table = readData(evaluation.data);
  if (!table) return report(table.error());
  const Result<Roles> roles = assignRoles(*table, evaluation.target, evaluation.weights);
  if (!roles) return report(roles.error());
  const DataView data = viewOf(*roles);
  Result<OutputFile> out = OutputFile::create(evaluation.out);
  if (!out) return report(out.error());
  std::optional<OutputFile> plot;
  if (!options.plot.empty()) {
    Result<OutputFile> file = OutputFile::create(options.plot);
    if (!file) return report(file.error());
    plot = *std::move(file);
  }
  options.search.engine = evaluation.engine;
  CheckpointFile checkpoint(options.checkpoint);
  Result<std::optional<search::SearchState>> resumed = checkpoint.read(search::fingerprintOf(data, options.search));
  if (!resumed) return report(resumed.error());
  StatusLine line(evaluation.quiet);
  options.search.progress = [&](const search::SearchState& state) {
    line.show([&] { return progressText(state, options.search.seconds, data.names); });
  };
  options.search.stop = [] { return interrupted.load(); };
  options.search.checkpoint = [&](const search::SearchState& state, bool is_last) { checkpoint.take(state, is_last); };
  std::optional<InterruptGuard> guard(std::in_place);
  const Result<search::SearchResult> result = search::search(data, options.search, *std::move(resumed));
  guard.reset();
  line.hide();
  if (!result) return report(result.error());
  if (!evaluation.quiet) {
    for (const std::string& notice : result->notices) tell(fmt::format("sr-jit: {}\n", text::printable(notice)));
    tell(fmt::format("sr-jit: {} formulas of {} trees and {} fits in {} generations and {:.3g} s on {}; {}\n",
                     result->state.front.size(), result->state.candidates, result->state.fits,
                     result->state.generations, result->state.seconds, result->device, wordsOf(result->end)));
  }
  out->write(frontText(options, result->state.front, data.names));
  if (const Status written = out->publish(); !written) return report(written.error());
  if (plot) {
    const Result<std::string> svg = plotText(*result, data, roles->target, evaluation.target);
    if (!svg) return report(svg.error());
    plot->write(*svg);
    if (const Status written = plot->publish(); !written) return report(written.error());
  }
  return checkpoint.status() ? kDone : report(checkpoint.status().error());
}

void addGrammarOptions(CLI::App& app, SearchCommand& options) {
  search::GrammarOptions& grammar = options.search.grammar;
  std::string usual;
  for (const search::OperatorUse& use : search::defaultOperators()) {
    usual += (usual.empty() ? "" : ",") + std::string(infoOf(use.op).name);
  }
  app.add_option("--ops", options.operators,
                 "the operators, each with its complexity where that is not 1: add,mul,sqrt:2")
      ->type_name("LIST")
      ->default_str(usual);
  const auto addCount = [&](const char* name, auto& value, const char* doc) {
    app.add_option(name, value, doc)
        ->type_name("N")
        ->check(CLI::Range(1u, search::kMostComplexity).description(""))
        ->capture_default_str();
  };
  addCount("--max-complexity", grammar.max_complexity, "complexity of a formula at most");
  addCount("--variable-complexity", grammar.variable_complexity, "complexity of a variable");
  addCount("--constant-complexity", grammar.constant_complexity, "complexity of a constant");
  app.add_option("--nesting", options.nesting, "how often operators may stand within others: sin:cos:0,exp:log:1")
      ->type_name("OUTER:INNER:MOST,...");
  app.add_flag("--self-nesting", grammar.allow_self_nesting,
               "let functions such as exp and sin stand within one of the same name");
  std::string links;
  for (const search::Link& link : search::allLinks()) links += (links.empty() ? "" : ",") + std::string(link.name);
  app.add_option("--links", options.search.links,
                 "functions g of the target y, for which g(y) = a + b f is searched: some of " + links)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->option_text("LIST=those that the target and the operators admit");
}

void addEffortOptions(CLI::App& app, search::SearchOptions& options) {
  const auto add = [&](const char* name, auto& value, const char* type, const char* doc) {
    return app.add_option(name, value, doc)->type_name(type)->capture_default_str();
  };
  add("--seconds", options.seconds, "S", "search for so long; 0: without a limit")
      ->check(CLI::NonNegativeNumber.description(""));
  add("--generations", options.generations, "N", "and for so many generations; 0: without a limit");
  add("--enough", options.enough, "SHARE", "end when a formula leaves no more than this share of the target's variance")
      ->check(CLI::NonNegativeNumber.description(""));
  add("--seed", options.seed, "N", "of all random numbers");
  const std::string held_out = fmt::format("keep this share of the rows for judging, 0 to {}", search::kMostHeldOut);
  add("--held-out", options.held_out, "SHARE", held_out.c_str())
      ->check(CLI::Range(0.0, search::kMostHeldOut).description(""));
  const auto addSize = [&](const char* name, auto& value, unsigned least, const char* doc) {
    add(name, value, "N", doc)->check(CLI::Range(least, 10000000u).description(""));
  };
  addSize("--islands", options.islands, 2, "populations that evolve apart");
  addSize("--population", options.island.population, 2, "trees of an island");
  addSize("--offspring", options.island.offspring, 1, "new trees of an island in a generation");
  addSize("--patience", options.island.patience, 1, "generations without progress after which an island begins anew");
  app.add_option("--rows", options.rows, "rows by which islands select")
      ->type_name("N")
      ->default_str(fmt::format("{} on a CPU, {} on a GPU", search::kSelectionRowsOnCpu, search::kSelectionRowsOnGpu));
  addSize("--fit-iterations", options.fit_iterations, 1, "passes of a fit of constants");
  add("--fit-share", options.fit_share, "SHARE", "of the new trees, whose constants may be fitted")
      ->check(CLI::Range(0.0, 1.0).description(""));
}

}  // namespace

Runner defineSearch(CLI::App& app) {
  auto options = std::make_shared<SearchCommand>();
  addDataOptions(app, options->evaluation);
  app.get_option("--target")->required();
  addLossOption(app, options->loss,
                "what is minimised, by name, with a constant as in huber:1.5, or the weighted mean of an expression "
                "over the prediction f, the target y and the weight w; links are for losses of squared errors",
                search::canMinimise);
  addGrammarOptions(app, *options);
  addEffortOptions(app, options->search);
  app.add_option("-o,--out", options->evaluation.out, "write to FILE, which appears only when complete")
      ->type_name("FILE")
      ->default_str("standard output");
  CLI::Option* latex = app.add_flag("--latex", options->latex, "write a table in LaTeX");
  addJsonOption(app, options->evaluation.json);
  app.get_option("--json")->excludes(latex);
  app.add_option("--plot", options->plot, "draw the front, and the chosen formula over the target, as SVG (by gnuplot)")
      ->type_name("FILE");
  app.add_option("--checkpoint", options->checkpoint,
                 "keep the search in FILE every few seconds and at the end, and go on from there if it exists")
      ->type_name("FILE");
  app.footer(
      "Searches formulas for the target. Writes a line complexity,loss,held_out,formula for each that no simpler one\n"
      "is as good as, the simplest first. The same seed, generations and data give the same formulas, on every number\n"
      "of threads and GPUs. Ctrl-C ends the search with what it has; docs/search.md has the method.\n"
      "Examples:\n"
      "  sr-jit search --data planets.csv --target period --seconds 10\n"
      "  sr-jit search --data table.csv --target y --ops add,mul,div,exp:3 --held-out 0.2 --plot front.svg\n"
      "  sr-jit search --data table.csv --target y --seconds 3600 --checkpoint search.json --out front.csv");
  return [options] { return runSearch(*options); };
}

}  // namespace srjit
