#include "tools/search/evolution.h"

#include <algorithm>
#include <atomic>
#include <csignal>

#include <fmt/format.h>

#include "tools/commands.h"
#include "tools/evaluation.h"
#include "tools/files/checkpoint.h"
#include "tools/files/read.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/search/link.h"
#include "tools/search/report.h"
#include "tools/search/rows.h"

namespace srjit {
namespace {

struct SearchCommand {
  EvaluationOptions evaluation;
  search::SearchOptions search;
  std::string loss = "nmse", nesting, choose = "evidence", units, monotone;
  search::UnitConstants unit_constants = search::UnitConstants::kFree;
  search::UnitRule unit_rule = search::UnitRule::kHard;
  std::optional<std::string> operators, checkpoint, plot;
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

/// The list in the text of an option.
template <class List>
List readList(Result<List> list, const std::string& text, const char* option) {
  if (!list) throwError(showPlace(list.error(), text, option, 1));
  return *std::move(list);
}

/// Reads the options that are texts.
void readTexts(SearchCommand& options) {
  search::GrammarOptions& grammar = options.search.grammar;
  readLoss(options.loss, options.search.loss);
  options.search.choice = search::parseChoice(options.choose).value();
  if (options.operators) {
    grammar.operators = readList(search::parseOperators(*options.operators), *options.operators, "--ops");
  }
  if (!options.nesting.empty()) {
    grammar.nesting = readList(search::parseNesting(options.nesting), options.nesting, "--nesting");
  }
}

/// Reads the options that are texts about the columns.
void readTexts(SearchCommand& options, const DataView& data) {
  search::GrammarOptions& grammar = options.search.grammar;
  const std::size_t count = data.columns.size();
  grammar.trends = readList(search::parseTrends(options.monotone, data.names, count), options.monotone, "--monotone");
  if (options.units.empty()) return;
  grammar.units = readList(search::Dimensions::parse(options.units, data.names, count, options.evaluation.target),
                           options.units, "--units");
  grammar.units->constants = options.unit_constants;
  grammar.units->rule = options.unit_rule;
}

/// The plot of the chosen formula over all rows.
std::string plotText(const search::SearchResult& result, const DataView& data, std::span<const double> target,
                     const std::string& target_name) {
  const Engine& engine = result.engine;
  const search::Formula* chosen = result.state.front.chosen();
  if (chosen == nullptr) {
    return search::plotSvg({.front = result.state.front, .formula = {}, .target = {}, .prediction = {}}).value();
  }
  std::vector<double> predictions(target.size());
  const Program program = engine.compile(std::span(&chosen->expression, 1));
  engine.evaluate(program, engine.upload(data).value(), {}, std::span<double>(predictions)).value();
  return search::plotSvg({.front = result.state.front,
                          .formula = print(chosen->expression, Language::kInfix, data.names),
                          .target = target,
                          .prediction = predictions,
                          .target_name = target_name})
      .value();
}

std::string frontText(const SearchCommand& options, const search::Front& front, const ColumnNames& names) {
  if (options.latex) return search::latexTable(front, names);
  return options.evaluation.json ? search::jsonText(front, names, options.search.grammar)
                                 : search::csvText(front, names);
}

/// Rows with missing values would make the search leave out columns without a word.
void checkRows(const DataView& data, const EvaluationOptions& options) {
  const Status finite = search::checkFinite(data);
  if (finite) return;
  refuse("{}: {}{}", displayName(options.data), finite.error().message,
         options.form.missing == MissingCells::kDroppable ? "; --drop-missing leaves out rows with NaN" : "");
}

ExitStatus runSearch(SearchCommand options) {
  options.search.begun = search::Timekeeper::Clock::now();
  readTexts(options);
  const EvaluationOptions& evaluation = options.evaluation;
  const DataTable table = readTable(evaluation);
  const Roles roles = assignRoles(table, evaluation.target, evaluation.weights).value();
  const DataView data = viewOf(roles);
  checkRows(data, evaluation);
  readTexts(options, data);
  OutputFile out = OutputFile::create(evaluation.out).value();
  std::optional<OutputFile> plot;
  if (options.plot) {
    search::findGnuplot().value();  // a plot without it is refused before anything is searched
    plot = OutputFile::create(*options.plot).value();
  }
  options.search.engine = evaluation.engine;
  CheckpointFile checkpoint(options.checkpoint);
  auto resumed = checkpoint.read(search::fingerprintOf(data, options.search)).value();
  StatusLine line(evaluation.quiet);
  options.search.progress = [&](const search::SearchState& state) {
    line.show([&](std::size_t) { return progressText(state, options.search.seconds, data.names); });
  };
  options.search.stop = [] { return interrupted.load(); };
  options.search.checkpoint = [&](const search::SearchState& state, bool is_last) { checkpoint.take(state, is_last); };
  std::optional<InterruptGuard> guard(std::in_place);
  const Result<search::SearchResult> found = search::search(data, options.search, std::move(resumed));
  guard.reset();
  line.hide();
  const search::SearchResult& result = found.value();
  const search::SearchState& state = result.state;
  if (!evaluation.quiet) {
    tellNotices(result.notices);
    tell(fmt::format("sr-jit: {} formulas of {} trees and {} fits in {} generations and {:.3g} s on {}; {}\n",
                     state.front.size(), state.candidates, state.fits, state.generations, state.seconds, result.device,
                     wordsOf(result.end)));
  }
  out.write(frontText(options, state.front, data.names));
  out.publish().value();
  if (plot) {
    plot->write(plotText(result, data, roles.target, evaluation.target));
    plot->publish().value();
  }
  checkpoint.status().value();
  return kDone;
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
  const auto addComplexity = [&](const char* name, auto& value, const char* doc) {
    addCount(app, name, value, doc, 1, search::kMostComplexity);
  };
  addComplexity("--max-complexity", grammar.max_complexity, "complexity of a formula at most");
  addComplexity("--variable-complexity", grammar.variable_complexity, "complexity of a variable");
  addComplexity("--constant-complexity", grammar.constant_complexity, "complexity of a constant");
  app.add_option("--nesting", options.nesting, "how often operators may stand within others: sin:cos:0,exp:log:1")
      ->type_name("OUTER:INNER:MOST,...");
  addCount(app, "--max-columns", grammar.max_columns, "different columns of a formula at most; 0: any number");
  app.add_option("--units", options.units,
                 "units of columns and of the target, such as mass:kg,force:kg*m/s^2; a column without one is a number")
      ->type_name("NAME:UNIT,...");
  addChoice(app, "--unit-constants", options.unit_constants,
            {{"free", search::UnitConstants::kFree}, {"dimensionless", search::UnitConstants::kDimensionless}},
            "whether constants may have units");
  addChoice(app, "--unit-rule", options.unit_rule,
            {{"hard", search::UnitRule::kHard}, {"penalty", search::UnitRule::kPenalty}},
            "formulas that break units are left out, or have a handicap in selection");
  app.add_option("--monotone", options.monotone, "columns with which formulas rise or fall, over the box of the data")
      ->type_name("NAME:up,NAME:down,...");
  app.add_flag("--codata", grammar.codata, "round constants to physical ones where they are (CODATA 2022, SI units)");
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
  addNumber(app, "--seconds", options.seconds, "search for so long, the data's loading included; 0: without a limit")
      ->type_name("S");
  addCount(app, "--generations", options.generations, "and for so many generations; 0: without a limit");
  addNumber(app, "--enough", options.enough,
            "end when a formula leaves no more than this share of the target's variance; for losses other than of "
            "squared errors, when its loss is that of errors of so small a variance")
      ->type_name("SHARE");
  addCount(app, "--seed", options.seed, "of all random numbers");
  addNumber(app, "--held-out", options.held_out,
            fmt::format("keep this share of the rows for judging, 0 to {}", search::kMostHeldOut), 0,
            search::kMostHeldOut)
      ->type_name("SHARE");
  const auto addSize = [&](const char* name, auto& value, unsigned least, const char* doc) {
    addCount(app, name, value, doc, least, 10'000'000);
  };
  addSize("--islands", options.islands, 2, "populations that evolve apart");
  addSize("--population", options.island.population, 2, "trees of an island");
  addSize("--offspring", options.island.offspring, 1, "new trees of an island in a generation");
  addSize("--patience", options.island.patience, 1, "generations without progress after which an island begins anew");
  addCount(app, "--rows", options.rows, "rows by which islands select")
      ->default_str(fmt::format("{} on a CPU, {} on a GPU", search::kSelectionRowsOnCpu, search::kSelectionRowsOnGpu));
  addSize("--fit-iterations", options.fit_iterations, 1, "passes of a fit of constants");
  addNumber(app, "--fit-share", options.fit_share, "of the new trees, whose constants may be fitted", 0, 1)
      ->type_name("SHARE");
}

}  // namespace

Runner defineSearch(CLI::App& app) {
  auto options = std::make_shared<SearchCommand>();
  addDataOptions(app, options->evaluation);
  addDropMissingOption(app, options->evaluation);
  app.get_option("--target")->required();
  addLossOption(app, options->loss,
                "what is minimised, by name, with a constant as in huber:1.5, or the weighted mean of an expression "
                "over the prediction f, the target y and the weight w; links are for losses of squared errors",
                search::canMinimise);
  addGrammarOptions(app, *options);
  addEffortOptions(app, options->search);
  app.add_option(
         "--choose", options->choose,
         "the formula to show: that of the largest evidence; the simplest within 5 % of the least loss; that of "
         "the least loss, of a complexity of N at most")
      ->type_name("evidence|balance|loss|N")
      ->capture_default_str();
  addOutOption(app, options->evaluation.out);
  CLI::Option* latex = app.add_flag("--latex", options->latex, "write a table in LaTeX");
  addJsonOption(app, options->evaluation.json);
  app.get_option("--json")->excludes(latex);
  app.add_option("--plot", options->plot, "draw the front, and the chosen formula over the target, as SVG (by gnuplot)")
      ->type_name("FILE");
  app.add_option("--checkpoint", options->checkpoint,
                 "keep the search in FILE every few seconds and at the end, and go on from there if it exists; in a "
                 "folder, each search has a file of its own")
      ->type_name("FILE");
  app.footer(
      "Searches formulas for the target. Writes a line complexity,loss,held_out,evidence,bic,r2,formula for each that\n"
      "no simpler one is as good as, the simplest first. The same seed, generations and data give the same formulas, "
      "on every number\n"
      "of threads and GPUs. Ctrl-C ends the search with what it has; docs/search.md has the method.\n"
      "Examples:\n"
      "  sr-jit search --data planets.csv --target period --seconds 10\n"
      "  sr-jit search --data table.csv --target y --ops add,mul,div,exp:3 --held-out 0.2 --plot front.svg\n"
      "  sr-jit search --data table.csv --target y --seconds 3600 --checkpoint search.json --out front.csv");
  return [options] { return runSearch(*options); };
}

}  // namespace srjit
