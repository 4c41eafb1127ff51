#include "tools/search/evolution.h"

#include <algorithm>
#include <atomic>
#include <csignal>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/commands.h"
#include "tools/evaluation.h"
#include "tools/files/checkpoint.h"
#include "tools/files/read.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/search/interface/options.h"
#include "tools/search/page/report_data.h"
#include "tools/search/report.h"
#include "tools/search/rows.h"

namespace srjit {
namespace {

struct SearchCommand {
  EvaluationOptions evaluation;
  search::SearchOptions search;
  std::optional<std::string> checkpoint, report;
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
  const auto trees = static_cast<double>(state.candidates);
  std::string text = fmt::format("{}, {:.3g} trees, {:.3g}/s, {} formulas", timeText(state.seconds, limit), trees,
                                 trees / std::max(state.seconds, 1e-3), state.front.size());
  if (best == nullptr) return text;
  return text + fmt::format(", loss {:.3g}: {}", best->loss, print(best->expression, Language::kInfix, names));
}

const char* wordsOf(search::SearchEnd end) {
  constexpr const char* kWords[] = {"the time is over", "the generations are over", "a formula is exact", "stopped"};
  return kWords[static_cast<std::size_t>(end)];
}

/// `word` as a shell reads it back.
std::string shellWord(std::string_view word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,=+@%-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + '\'';
}

/// The command line with the options that were given.
std::string commandText(const CLI::App& app) {
  std::string text = "sr-jit " + app.get_name();
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    std::vector<std::string> values = option->results();
    if (option->get_delimiter() != '\0') values = {fmt::format("{}", fmt::join(values, ","))};
    for (const std::string& value : values) {
      if (option->get_items_expected_max() == 0 && value == "false") continue;
      text += ' ' + option->get_name();
      if (option->get_items_expected_max() == 0) continue;  // a flag
      text += (value.starts_with('-') ? '=' : ' ') + shellWord(value);
    }
  }
  return text;
}

Json frontJson(const search::SearchResult& found, const DataView& data) {
  const Expression& chosen = found.state.front.chosen()->expression;
  const search::ChosenDetails details{search::uncertaintyOf(found.engine, chosen, data),
                                      search::importancesOf(found.engine, chosen, data)};
  return search::frontJson(found.state.front, data.names, &details, found.grammar);
}

std::string pageText(const SearchCommand& options, const search::SearchResult& result, const DataView& data,
                     const CLI::App& app) {
  const search::SearchState& state = result.state;
  const std::vector<std::string> facts = {result.device, fmt::format("{:.3g} s", state.seconds),
                                          fmt::format("{} generations", state.generations),
                                          fmt::format("{:.3g} trees", static_cast<double>(state.candidates))};
  return search::reportPage(result.engine, {.front = frontJson(result, data),
                                            .data = data,
                                            .target_name = options.evaluation.target,
                                            .loss_name = app.get_option("--loss")->as<std::string>(),
                                            .command = commandText(app),
                                            .facts = facts})
      .value();
}

std::string frontText(const SearchCommand& options, const search::SearchResult& found, const DataView& data) {
  const search::Front& front = found.state.front;
  if (options.latex) return search::latexTable(front, data.names);
  if (!options.evaluation.json) return search::csvText(front, data.names);
  return dump(frontJson(found, data));
}

/// Rows with missing values would make the search leave out columns without a word.
void checkRows(const DataView& data, const EvaluationOptions& options) {
  const Status finite = search::checkFinite(data);
  if (finite) return;
  refuse("{}: {}{}", displayName(options.data), finite.error().message,
         options.form.missing == MissingCells::kDroppable ? "; --drop-missing leaves out rows with NaN" : "");
}

ExitStatus runSearch(SearchCommand options, const CLI::App& app) {
  options.search.begun = search::Timekeeper::Clock::now();
  const EvaluationOptions& evaluation = options.evaluation;
  const DataTable table = readTable(evaluation);
  const Roles roles = assignRoles(table, evaluation.target, evaluation.weights).value();
  const DataView data = viewOf(roles);
  checkRows(data, evaluation);
  OutputFile out = OutputFile::create(evaluation.out).value();
  std::optional<OutputFile> page;
  if (options.report) page = OutputFile::create(*options.report).value();
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
  out.write(frontText(options, result, data));
  out.publish().value();
  if (page) {
    page->write(pageText(options, result, data, app));
    page->publish().value();
  }
  checkpoint.status().value();
  return kDone;
}

}  // namespace

Runner defineSearch(CLI::App& app) {
  auto options = std::make_shared<SearchCommand>();
  addDataOptions(app, options->evaluation);
  addDropMissingOption(app, options->evaluation);
  app.get_option("--target")->required();
  search::addSearchOptions(app, options->search);
  addOutOption(app, options->evaluation.out);
  CLI::Option* latex = app.add_flag("--latex", options->latex, "write a table in LaTeX");
  addJsonOption(app, options->evaluation.json);
  app.get_option("--json")->excludes(latex);
  app.add_option("--report", options->report,
                 "a page of HTML, for a browser: the formulas, their losses, predictions and residuals")
      ->type_name("FILE");
  app.add_option("--checkpoint", options->checkpoint,
                 "keep the search in FILE every few seconds and at the end, and go on from there if it exists; in a "
                 "folder, each search has a file of its own")
      ->type_name("FILE");
  app.footer(
      "Searches formulas for the target. Writes a line complexity,loss,held_out,evidence,bic,r2,formula for each that\n"
      "no simpler one is as good as, the simplest first. The same seed, generations and data give the same formulas, "
      "on every number\n"
      "of threads and GPUs. Ctrl-C ends the search with what it has; docs/internals/search.md has the method.\n"
      "Examples:\n"
      "  sr-jit search --data planets.csv --target period --seconds 10\n"
      "  sr-jit search --data table.csv --target y --ops add,mul,div,exp:3 --held-out 0.2 --report page.html\n"
      "  sr-jit search --data table.csv --target y --seconds 3600 --checkpoint search.json --out front.csv");
  return [options, &app] { return runSearch(*options, app); };
}

}  // namespace srjit
