#include "tools/search/interface/options.h"

#include <llvm/Support/Allocator.h>
#include <llvm/Support/CommandLine.h>

#include <memory>
#include <optional>

#include "runtime/platform/guarded.h"
#include "tools/report.h"
#include "tools/search/link.h"
#include "tools/values.h"

namespace srjit::search {
namespace {

/// Options that are read when the command line is complete.
struct Texts {
  std::string loss = "nmse", nesting, choose = "evidence";
  std::optional<std::string> operators;
};

void readTexts(const Texts& texts, SearchOptions& options) {
  GrammarOptions& grammar = options.grammar;
  readLoss(texts.loss, options.loss);
  options.choice = valueOfOption(parseChoice(texts.choose), texts.choose, "--choose");
  if (texts.operators) grammar.operators = valueOfOption(parseOperators(*texts.operators), *texts.operators, "--ops");
  std::erase(options.links, "");
  if (!texts.nesting.empty()) grammar.nesting = valueOfOption(parseNesting(texts.nesting), texts.nesting, "--nesting");
}

void addGrammarOptions(CLI::App& app, SearchOptions& options, Texts& texts) {
  GrammarOptions& grammar = options.grammar;
  std::string usual;
  for (const OperatorUse& use : defaultOperators()) {
    usual += (usual.empty() ? "" : ",") + std::string(infoOf(use.op).name);
  }
  app.add_option("--ops", texts.operators,
                 "the operators, each with its complexity where that is not 1: add,mul,sqrt:2")
      ->type_name("LIST")
      ->default_str(usual);
  const auto addComplexity = [&](const char* name, auto& value, const char* doc) {
    addCount(app, name, value, doc, 1, kMostComplexity);
  };
  addComplexity("--max-complexity", grammar.max_complexity, "complexity of a formula at most");
  addComplexity("--variable-complexity", grammar.variable_complexity, "complexity of a variable");
  addComplexity("--constant-complexity", grammar.constant_complexity, "complexity of a constant");
  addCount(app, "--max-columns", grammar.max_columns, "different columns of a formula at most; 0: any number");
  app.add_flag("--codata", grammar.codata, "round constants to physical ones where they are (CODATA 2022, SI units)");
  app.add_option("--nesting", texts.nesting, "how often operators may stand within others: sin:cos:0,exp:log:1")
      ->type_name("OUTER:INNER:MOST,...");
  app.add_flag("--self-nesting", grammar.allow_self_nesting,
               "let functions such as exp and sin stand within one of the same name");
  std::string links;
  for (const Link& link : allLinks()) links += (links.empty() ? "" : ",") + std::string(link.name);
  app.add_option("--links", options.links,
                 "functions g of the target y, for which g(y) = a + b f is searched: some of " + links)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->option_text("LIST=those that the target and the operators admit");
}

void addKnowledgeOptions(CLI::App& app, SearchOptions& options) {
  const auto addTexts = [&](const char* name, std::vector<std::string>& texts, const char* doc, const char* type) {
    app.add_option(name, texts, doc)
        ->type_name(type)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  addTexts("--guess", options.guesses, "a formula to begin with; several: give the option again", "FORMULA");
  addTexts("--define", options.definitions, "an operator as an expression: 'mm(x, y) = x/(x + y)'", "DEFINITION");
  app.add_option(
         "--template", options.form,
         "the form of all formulas: functions of columns that are searched, constants p0, p1, ..., and p0[COLUMN], "
         "one for each value of a column: 'f(a, b) + p0[kind]*g(c)'")
      ->type_name("FORM");
  addBoundsOption(app, options.bounds,
                  "bounds of a template's parameters in all formulas: p0:0: for p0 of at least 0, p1:-1:1 for p1 from "
                  "-1 to 1");
  app.add_option("--units", options.units,
                 "units of columns and of the target, such as mass:kg,force:kg*m/s^2; a column without one is a number")
      ->type_name("NAME:UNIT,...");
  addChoice(app, "--unit-constants", options.unit_constants,
            {{"free", UnitConstants::kFree}, {"dimensionless", UnitConstants::kDimensionless}},
            "whether constants may have units");
  addChoice(app, "--unit-rule", options.unit_rule, {{"hard", UnitRule::kHard}, {"penalty", UnitRule::kPenalty}},
            "formulas that break units are left out, or have a handicap in selection");
  app.add_option("--monotone", options.monotone, "columns with which formulas rise or fall, over the box of the data")
      ->type_name("NAME:up,NAME:down,...");
  addCount(app, "--top", options.top, "formulas to show of each complexity, at most", 1, 1000);
}

void addEffortOptions(CLI::App& app, SearchOptions& options) {
  addNumber(app, "--seconds", options.seconds, "search for so long, the data's loading included; 0: without a limit")
      ->type_name("S");
  addCount(app, "--generations", options.generations, "and for so many generations; 0: without a limit");
  addNumber(
      app, "--enough", options.enough,
      "end when a formula leaves no more than this share of the target's variance, and is exact at half of the "
      "rows, too; for losses other than of squared errors, when its loss is that of errors of so small a variance")
      ->type_name("SHARE");
  addCount(app, "--seed", options.seed, "of all random numbers");
  addNumber(app, "--held-out", options.held_out,
            fmt::format("keep this share of the rows for judging, 0 to {}", kMostHeldOut), 0, kMostHeldOut)
      ->type_name("SHARE");
  const auto addSize = [&](const char* name, auto& value, unsigned least, const char* doc) {
    addCount(app, name, value, doc, least, 10'000'000);
  };
  addSize("--islands", options.islands, 2, "populations that evolve apart");
  addSize("--population", options.island.population, 2, "trees of an island");
  addSize("--offspring", options.island.offspring, 1, "new trees of an island in a generation");
  addSize("--patience", options.island.patience, 1, "generations without progress after which an island begins anew");
  addCount(app, "--rows", options.rows, "rows by which islands select")
      ->default_str(fmt::format("{} on a CPU, {} on a GPU", kSelectionRowsOnCpu, kSelectionRowsOnGpu));
  addSize("--fit-iterations", options.fit_iterations, 1, "passes of a fit of constants");
  addNumber(app, "--fit-share", options.fit_share, "of the new trees, whose constants may be fitted", 0, 1)
      ->type_name("SHARE");
}

}  // namespace

void addSearchOptions(CLI::App& app, SearchOptions& options) {
  const auto texts = std::make_shared<Texts>();
  addLossOption(app, texts->loss,
                "what is minimised, by name, with a constant as in huber:1.5, or the weighted mean of an expression "
                "over the prediction f, the target y and the weight w; links are for losses of squared errors",
                canMinimise);
  addGrammarOptions(app, options, *texts);
  addKnowledgeOptions(app, options);
  addEffortOptions(app, options);
  app.add_option(
         "--choose", texts->choose,
         "the formula to show: that of the largest evidence; the simplest within 5 % of the least loss; that of "
         "the least loss, of a complexity of N at most")
      ->type_name("evidence|balance|loss|N")
      ->capture_default_str();
  app.final_callback([texts, &options] { readTexts(*texts, options); });
}

Result<SearchOptions> parseSearchOptions(std::span<const std::string> words, bool with_engine) {
  return guarded([&]() -> Result<SearchOptions> {
    SearchOptions options;
    CLI::App app;
    app.set_help_flag();  // none
    addSearchOptions(app, options);
    if (with_engine) addEngineOptions(app, options.engine);
    try {
      parseWords(app, words);
    } catch (const CLI::ParseError& problem) {
      refuse("{}", text::printable(usageWords(problem)));
    }
    return options;
  });
}

Result<SearchOptions> parseSearchOptions(std::string_view text, bool with_engine) {
  llvm::BumpPtrAllocator memory;
  llvm::StringSaver saver(memory);
  llvm::SmallVector<const char*> words;
  llvm::cl::TokenizeGNUCommandLine(text, saver, words);
  return parseSearchOptions(std::vector<std::string>(words.begin(), words.end()), with_engine);
}

}  // namespace srjit::search
