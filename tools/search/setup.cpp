#include "tools/search/setup.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "ir/mix.h"
#include "tools/report.h"
#include "tools/values.h"

namespace srjit::search {
namespace {

constexpr std::uint64_t kRowsSeed = 0x726f7773, kHeldOutSeed = 0x68656c64;  // for drawing rows
constexpr std::size_t kFittedRows = 16384;
constexpr double kLooksExact = 1e-9;  // a share of the target's variance in f32 that may be 0 in f64
constexpr double kFloor = 1e-18;      // the share of the target's variance that may be rounding in f64
constexpr double kLeastNats = 4;      // of a row's half logarithm of the loss, summed: a gain that noise seldom gives
constexpr double kMostGain = 0.05;

bool isGpu(const Engine& engine) { return engine.options().device != "cpu"; }

/// The rows of `all` that are not in `some`; both ascend.
std::vector<std::size_t> without(std::size_t all, std::span<const std::size_t> some) {
  std::vector<std::size_t> rest;
  auto next = some.begin();
  for (std::size_t row = 0; row < all; ++row) {
    if (next != some.end() && *next == row) {
      ++next;
    } else {
      rest.push_back(row);
    }
  }
  return rest;
}

/// At most `most` rows of a set, of those that count.
RowSet pick(const RowSet& rows, std::size_t most, std::uint64_t seed) {
  std::vector<std::size_t> counting, picked;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (rows.weightOf(row) > 0) counting.push_back(row);
  }
  const std::size_t count = std::min(counting.size(), most);
  for (const std::size_t at : drawRows(counting.size(), count, seed)) picked.push_back(counting[at]);
  return gatherRows(rows.view(), picked);
}

void checkData(const DataView& data, const SearchOptions& options) {
  if (!data.target) refuse("a search needs a target");
  if (data.target->size == 0) refuse("the data have no row");
  const auto isEqual = [&](const ColumnView& column) { return column.size == data.target->size; };
  if (!std::ranges::all_of(data.columns, isEqual) || (data.weights && !isEqual(*data.weights))) {
    refuse("columns, target and weights differ in length");
  }
  if (options.loss.nan != NanPolicy::kSkip) checkFinite(data).value();
}

bool areOfIdentity(std::span<const std::string> links) {
  return std::ranges::all_of(links, [](const std::string& link) { return link == allLinks().front().name; });
}

void checkOptions(const SearchOptions& options) {
  if (options.islands < 2) refuse("a search has at least 2 islands");
  if (options.island.population < 2 || options.island.offspring < 1) refuse("an island is too small");
  if (options.island.patience < 1) refuse("an island has patience for at least 1 generation");
  if (options.fit_iterations < 1) refuse("a fit has at least 1 pass");
  if (!(options.fit_share >= 0 && options.fit_share <= 1)) refuse("the share that is fitted is from 0 to 1");
  if (!(options.seconds >= 0)) refuse("the time is not negative");
  if (!(options.enough >= 0)) refuse("the share of the variance that is enough is not negative");
  if (!(options.held_out >= 0 && options.held_out <= kMostHeldOut)) {
    refuse("the share of rows that are held out is from 0 to {}", kMostHeldOut);
  }
  if (!isOfSquares(options.loss) && !areOfIdentity(options.links)) {
    refuse("links are for losses of squared errors");
  }
  if (options.form && !areOfIdentity(options.links)) refuse("with a form of the formula there are no links");
  if (!options.form && !options.bounds.empty())
    refuse("bounds are of a template's parameters, but there is no template");
  if (options.top < 1) refuse("the front has at least 1 formula of a complexity");
  const LossInfo& loss = infoOf(options.loss.kind);
  if (options.loss.custom || canMinimise(loss)) return;
  refuse("a search cannot minimise {}{}", loss.name,
         loss.isScaled() ? "; losses of squared errors are scaled by themselves" : "");
}

/// The engine of the options; one of f64 in its place if f32 cannot select by these columns, or by a target that is not
/// standardised.
Engine makeEngine(const SearchOptions& options, const RowSet& rows, std::span<const Link* const> links,
                  bool is_scaled) {
  EngineOptions made = options.selecting_engine ? options.selecting_engine->options() : options.engine;
  const bool fits =
      std::ranges::all_of(rows.columns, [](const auto& column) { return fitsF32(column); }) &&
      (is_scaled || std::ranges::all_of(links, [&](const Link* link) { return fitsF32(link->targetOf(rows.target)); }));
  if (fits && options.selecting_engine) return *options.selecting_engine;
  if (!fits) made.precision = Precision::kF64;
  return Engine::create(made).value();
}

/// With what the texts of the options say.
Grammar grammarOf(const SearchOptions& options, const DataView& data) {
  GrammarOptions grammar = options.grammar;
  for (const std::string& text : options.definitions) {
    grammar.definitions.push_back(valueOfOption(parseDefinition(text), text, "--define"));
  }
  if (options.form) {
    grammar.form = std::make_shared<const Form>(
        valueOfOption(Form::parse(*options.form, data, options.bounds), *options.form, "--template"));
  }
  const std::size_t count = data.columns.size();
  if (!options.monotone.empty()) {
    grammar.trends = valueOfOption(parseTrends(options.monotone, data.names, count), options.monotone, "--monotone");
  }
  if (!options.units.empty()) {
    grammar.units = valueOfOption(Dimensions::parse(options.units, data.names, count), options.units, "--units");
    grammar.units->constants = options.unit_constants;
    grammar.units->rule = options.unit_rule;
  }
  Grammar made = Grammar::create(std::move(grammar), data.columns.size()).value();
  if (made.form() != nullptr) {
    Trees simplest;
    made.form()->write(simplest, [&](std::size_t) { simplest.put(variableCode(0)); });
    made.form()->repair(simplest.openCodes());
    if (!made.admit(simplest.open())) {
      refuse("no formula has the form {}: it breaks the units, or a limit of nesting (--nesting, --self-nesting)",
             *options.form);
    }
  }
  return made;
}

/// The start formulas, with 1 for each parameter, or the bound next to it. `grammar`: of a tree in the target itself.
std::vector<Expression> guessesOf(const SearchOptions& options, const DataView& data, const Grammar& grammar) {
  std::vector<Expression> guesses;
  for (const std::string& text : options.guesses) {
    const auto refuseAt = [&](const Error& error) { throwError(showPlace(error, text, "--guess", 1)); };
    const Expression parsed = valueOfOption(parse(text, Language::kInfix, data.names), text, "--guess");
    if (parsed.variableCount() > data.columns.size()) {
      refuseAt(failure(Errc::kInvalid, "x{} is no column", parsed.variableCount() - 1));
    }
    const std::vector<double> ones(parsed.parameterCount(), 1.0);
    Expression guess = withParameters(parsed, ones).value();
    if (grammar.form() != nullptr) {
      Trees tree;
      tree.add(guess.tokens());
      grammar.form()->clamp(tree[0].codes, tree.openConstants());
      guess = expressionOf(tree[0]);
    }
    for (const Token& token : guess.tokens()) {
      if (token.kind == Token::Kind::kOp && !grammar.writable()[static_cast<std::size_t>(token.op)]) {
        refuseAt(failure(Errc::kInvalid, "{} is no operator of the search: add it", infoOf(token.op).name));
      }
    }
    if (grammar.complexityOf(guess.tokens()) > grammar.room()) {
      refuseAt(failure(Errc::kInvalid, "its complexity is {}, and {} left for it: give a larger --max-complexity",
                       grammar.complexityOf(guess.tokens()), grammar.room()));
    }
    if (!grammar.admits(guess.tokens())) {
      refuseAt(failure(
          Errc::kInvalid,
          "the search makes no such formula: it breaks the units, the template, its bounds, or a limit of columns or "
          "nesting"));
    }
    guesses.push_back(std::move(guess));
  }
  return guesses;
}

/// The links with columns as they are, each followed by itself with columns in units, as far as they are of use.
std::vector<Frame> framesOf(std::span<const Link* const> links, const Units& units, const Grammar& grammar) {
  const bool with_units = units.areNeeded() && grammar.has(Op::kMul);
  std::vector<Frame> frames;
  for (const Link* link : links) {
    if (!with_units || !units.areBeyondF64()) frames.push_back({link, false});
    if (with_units) frames.push_back({link, true});
  }
  return frames;
}

/// Few trees and many passes: on a GPU they would wait for each other, and keep the islands' work waiting. Strict, so
/// that a formula's loss is that of the formula as it is written.
Engine makeWideEngine(EngineOptions options) {
  options.precision = Precision::kF64;
  options.device = "cpu";
  options.tier = Tier::kInterpret;
  options.math = Math::kStrict;
  return Engine::create(options).value();
}

}  // namespace

RowSet rowsToFit(const RowSet& rows, std::uint64_t seed) { return pick(rows, kFittedRows, seed); }

SearchSetup setUp(const DataView& data, const SearchOptions& options, std::size_t rows, std::stop_token ended) {
  checkData(data, options);
  checkOptions(options);
  Grammar grammar = grammarOf(options, data);
  const std::size_t all = data.target->size;
  const auto held = static_cast<std::size_t>(options.held_out * static_cast<double>(all));
  const std::vector<std::size_t> held_out = drawRows(all, held, combine(options.seed, kHeldOutSeed));
  RowSet searched = gatherRows(data, without(all, held_out));
  if (std::ranges::none_of(searched.weights, [](double weight) { return weight > 0; }) && !searched.weights.empty()) {
    refuse("no row that is searched has a weight above 0");
  }
  LossOptions loss = options.loss;
  // Of a constant target there is no share of the variance, but errors there are.
  if (!loss.custom && loss.kind == LossKind::kNmse && searched.hasOneTarget()) loss.kind = LossKind::kRmse;
  const std::vector<std::string> identity = {std::string(allLinks().front().name)};
  const bool is_scaled = isOfSquares(loss) && grammar.canScale();
  const std::vector<const Link*> links =
      linksFor(isOfSquares(loss) && grammar.form() == nullptr ? options.links : identity, grammar, searched.target,
               is_scaled)
          .value();
  std::vector<Grammar> grammars;
  Units units = Units::of(searched);
  std::vector<Frame> frames = framesOf(links, units, grammar);
  std::vector<Handicap> handicaps;
  for (const Frame& frame : frames) {
    grammars.push_back(grammar.within(wrapperOf(*frame.link, grammar, is_scaled)));
    const RowSet some = pick(searched, Handicap::kPlaces, combine(options.seed, kRowsSeed));
    handicaps.emplace_back(grammar.options().trends, frame.in_units ? units.divide(some.columns) : some.columns);
  }
  std::vector<Expression> guesses = guessesOf(options, data, grammars.front());
  if (!guesses.empty() && (frames.front().in_units || !frames.front().link->inverse.empty())) {
    refuse("guesses need identity among --links, and columns whose squares f64 has: give these in larger units");
  }
  Engine engine = makeEngine(options, searched, links, is_scaled);
  Engine wide = makeWideEngine(engine.options());
  if (rows == 0) rows = options.rows;
  if (rows == 0) rows = isGpu(engine) ? kSelectionRowsOnGpu : kSelectionRowsOnCpu;
  const std::uint64_t rows_seed = combine(options.seed, kRowsSeed);
  Screen screen = Screen::create(withStop(engine, std::move(ended)), pick(searched, rows, rows_seed), frames, units,
                                 loss, is_scaled);
  RowSet fitted = rowsToFit(searched, rows_seed);
  const auto [floor, enough, looks_exact] = lossesOfShares(wide, loss, {kFloor, options.enough, kLooksExact}, searched);
  const double gain = std::min(2 * kLeastNats / static_cast<double>(std::min(rows, searched.size())), kMostGain);
  return {std::move(engine), std::move(wide), std::move(grammar), loss, is_scaled, std::move(frames), std::move(units),
          std::move(grammars), std::move(handicaps), std::move(guesses), std::move(searched), std::move(fitted),
          gatherRows(data, held_out), rows, std::move(screen), gain,
          // Whether a custom loss is least at 0 is not known.
          loss.custom ? -std::numeric_limits<double>::infinity() : floor, enough,
          isOfSquares(loss) ? kLooksExact : looks_exact};
}

bool isSound(const SearchState& state, const SearchSetup& setup, const SearchOptions& options) {
  const auto isGood = [&](const Expression& tree, std::size_t complexity, double loss, const Grammar& grammar) {
    return grammar.admits(tree.tokens()) && complexity == grammar.complexityOf(tree.tokens()) && std::isfinite(loss) &&
           tree.variableCount() <= grammar.variables();
  };
  if (state.islands.size() != options.islands || state.archives.size() != setup.frames.size()) return false;
  for (std::size_t i = 0; i < state.islands.size(); ++i) {
    const Island& island = state.islands[i];
    if (island.number != i || island.frame >= setup.frames.size()) return false;
    if (island.born > island.improved || island.improved > island.generation) return false;
    const Individuals& population = island.population;
    if (population.trees.size() != population.traits.size()) return false;
    for (std::size_t k = 0; k < population.size(); ++k) {
      const auto& [loss, shape, whole, complexity] = population.traits[k];
      if (!isGood(expressionOf(population.trees[k]), complexity, loss, setup.grammars[island.frame])) return false;
    }
    if (!std::ranges::is_sorted(population.traits, {}, &Traits::complexity)) return false;
  }
  for (std::size_t frame = 0; frame < state.archives.size(); ++frame) {
    const std::vector<Archived>& archive = state.archives[frame];
    const auto isGoodThere = [&](const Archived& one) {
      return isGood(one.tree, one.complexity, one.loss, setup.grammars[frame]);
    };
    if (!std::ranges::all_of(archive, isGoodThere)) return false;
    if (std::ranges::adjacent_find(archive, std::ranges::greater_equal(), &Archived::complexity) != archive.end()) {
      return false;
    }
  }
  return std::ranges::all_of(state.front.formulas(), [&](const Formula& formula) {
    return formula.expression.variableCount() <= setup.grammar.variables() &&
           setup.grammar.admits(formula.expression.tokens());
  });
}

}  // namespace srjit::search
