#include "tools/search/evolution.h"

#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "ir/mix.h"
#include "runtime/platform/guarded.h"
#include "tools/search/formulas/polish.h"
#include "tools/search/group.h"

namespace srjit::search {
namespace {

constexpr std::uint64_t kRowsSeed = 0x726f7773, kHeldOutSeed = 0x68656c64;  // of which rows are drawn
constexpr std::size_t kFittedRows = 16384;
constexpr std::uint64_t kPolishEvery = 8;    // generations
constexpr std::size_t kPolishedAtOnce = 12;  // finalists
constexpr std::size_t kPolishedAtEnd = 60;
constexpr double kArchiveGain = 0.05;  // of the archived loss, by which a tree must be below it to take its place
constexpr double kLooksExact = 1e-9;   // a scaled nmse in f32 that may be 0 in f64: polished at once
constexpr double kFloor = 1e-22;       // the share of the target's variance that is rounding in f64

using Clock = std::chrono::steady_clock;

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

Error invalid(std::string message) { return {Errc::kInvalid, std::move(message), {}}; }

Status checkData(const DataView& data) {
  if (!data.target) return invalid("a search needs a target");
  if (data.target->size == 0) return invalid("the data have no row");
  const auto isEqual = [&](const ColumnView& column) { return column.size == data.target->size; };
  if (!std::ranges::all_of(data.columns, isEqual) || (data.weights && !isEqual(*data.weights))) {
    return invalid("columns, target and weights differ in length");
  }
  return okStatus();
}

bool areOfIdentity(std::span<const std::string> links) {
  return std::ranges::all_of(links, [](const std::string& link) { return link == allLinks().front().name; });
}

Status checkOptions(const SearchOptions& options) {
  if (options.islands < 2) return invalid("a search has at least 2 islands");
  if (options.island.population < 2 || options.island.offspring < 1) return invalid("an island is too small");
  if (options.island.patience < 1) return invalid("an island has patience for at least 1 generation");
  if (options.fit_iterations < 1) return invalid("a fit has at least 1 pass");
  if (!(options.fit_share >= 0 && options.fit_share <= 1)) return invalid("the share that is fitted is from 0 to 1");
  if (!(options.seconds >= 0)) return invalid("the time is not negative");
  if (!(options.enough >= 0)) return invalid("the share of the variance that is enough is not negative");
  if (!(options.held_out >= 0 && options.held_out <= kMostHeldOut)) {
    return invalid(fmt::format("the share of rows that are held out is from 0 to {}", kMostHeldOut));
  }
  if (!isOfSquares(options.loss) && !areOfIdentity(options.links)) {
    return invalid("links are for losses of squared errors");
  }
  if (options.loss.custom) return okStatus();
  const LossInfo& loss = infoOf(options.loss.kind);
  if (canMinimise(loss)) return okStatus();
  return invalid(fmt::format("a search cannot minimise {}{}", loss.name,
                             loss.isScaled() ? "; losses of squared errors are scaled by themselves" : ""));
}

/// What stays the same during a search.
struct SearchSetup {
  Engine engine, wide;  // in the engine's precision, and in f64
  Grammar grammar;
  LossOptions loss;
  bool is_scaled;  // islands select by the best a + b f
  std::vector<const Link*> links;
  std::vector<Grammar> grammars;  // by link: of the trees that its formulas contain
  RowSet searched, fitted, held_out;
  std::size_t rows;  // for selection
  Screen screen;
  double floor;   // a loss that is rounding
  double enough;  // a loss that ends the search
};

/// Few trees and many passes: on a GPU they would wait for each other, and keep the islands' work waiting. Strict, so
/// that a formula's loss is that of the formula as it is written.
Result<Engine> makeWideEngine(EngineOptions options) {
  options.precision = Precision::kF64;
  options.device = "cpu";
  options.tier = Tier::kInterpret;
  options.math = Math::kStrict;
  return Engine::create(options);
}

/// `rows`: those of a search that goes on; 0: as the options say.
Result<SearchSetup> setUp(const DataView& data, const SearchOptions& options, std::size_t rows) {
  if (const Status status = checkData(data); !status) return status.error();
  if (const Status status = checkOptions(options); !status) return status.error();
  Result<Grammar> grammar = Grammar::create(options.grammar, data.columns.size());
  if (!grammar) return grammar.error();
  Result<Engine> engine = options.selecting_engine ? *options.selecting_engine : Engine::create(options.engine);
  if (!engine) return engine.error();
  Result<Engine> wide = makeWideEngine(engine->options());
  if (!wide) return wide.error();
  const std::size_t all = data.target->size;
  const auto held = static_cast<std::size_t>(options.held_out * static_cast<double>(all));
  const std::vector<std::size_t> held_out = drawRows(all, held, combine(options.seed, kHeldOutSeed));
  RowSet searched = gatherRows(data, without(all, held_out));
  if (std::ranges::none_of(searched.weights, [](double weight) { return weight > 0; }) && !searched.weights.empty()) {
    return invalid("no row that is searched has a weight above 0");
  }
  LossOptions loss = options.loss;
  // Of a constant target there is no share of the variance, but errors there are.
  if (!loss.custom && loss.kind == LossKind::kNmse && searched.hasOneTarget()) loss.kind = LossKind::kMse;
  const std::vector<std::string> identity = {std::string(allLinks().front().name)};
  const bool is_scaled = isOfSquares(loss) && grammar->canScale();
  Result<std::vector<const Link*>> links =
      linksFor(isOfSquares(loss) ? options.links : identity, *grammar, searched.target, is_scaled);
  if (!links) return links.error();
  std::vector<Grammar> grammars;
  for (const Link* link : *links) grammars.push_back(grammar->within(wrapperOf(*link, *grammar, is_scaled)));
  if (rows == 0) rows = options.rows;
  if (rows == 0) rows = isGpu(*engine) ? kSelectionRowsOnGpu : kSelectionRowsOnCpu;
  const std::uint64_t rows_seed = combine(options.seed, kRowsSeed);
  Result<Screen> screen = Screen::create(*engine, pick(searched, rows, rows_seed), *links, loss, is_scaled);
  if (!screen) return screen.error();
  RowSet fitted = pick(searched, kFittedRows, rows_seed);
  const double floor = lossOfShare(loss, kFloor, searched), enough = lossOfShare(loss, options.enough, searched);
  return SearchSetup{*std::move(engine),
                     *std::move(wide),
                     *std::move(grammar),
                     loss,
                     is_scaled,
                     *std::move(links),
                     std::move(grammars),
                     std::move(searched),
                     std::move(fitted),
                     gatherRows(data, held_out),
                     rows,
                     *std::move(screen),
                     floor,
                     enough};
}

/// Whether `state` can be gone on from. One that search() gave can.
bool isSound(const SearchState& state, const SearchSetup& setup, const SearchOptions& options) {
  const auto isGood = [&](const Individual& individual, const Grammar& grammar) {
    return grammar.admits(individual.tree) && std::isfinite(individual.loss) &&
           individual.complexity == grammar.complexityOf(individual.tree) &&
           std::ranges::all_of(individual.tree, [&](const Token& token) {
             return token.kind != Token::Kind::kVariable || token.index < grammar.variables();
           });
  };
  if (state.islands.size() != options.islands || state.archives.size() != setup.links.size()) return false;
  for (std::size_t i = 0; i < state.islands.size(); ++i) {
    const Island& island = state.islands[i];
    if (island.number != i || island.link >= setup.links.size()) return false;
    if (island.born > island.improved || island.improved > island.generation) return false;
    const auto isGoodThere = [&](const Individual& one) { return isGood(one, setup.grammars[island.link]); };
    if (!std::ranges::all_of(island.population, isGoodThere)) return false;
    if (!std::ranges::is_sorted(island.population, {}, &Individual::complexity)) return false;
  }
  for (std::size_t link = 0; link < state.archives.size(); ++link) {
    const std::vector<Archived>& archive = state.archives[link];
    const auto complexityOf = [](const Archived& archived) { return archived.individual.complexity; };
    const auto isGoodThere = [&](const Archived& one) { return isGood(one.individual, setup.grammars[link]); };
    if (!std::ranges::all_of(archive, isGoodThere)) return false;
    if (std::ranges::adjacent_find(archive, std::ranges::greater_equal(), complexityOf) != archive.end()) return false;
  }
  return std::ranges::all_of(state.front.formulas(), [&](const Formula& formula) {
    return formula.expression.variableCount() <= setup.grammar.variables() &&
           setup.grammar.admits(formula.expression.tokens());
  });
}

/// Half of the islands have the first link, which is usually the target itself; the others share the rest.
std::vector<Island> newIslands(std::size_t count, std::size_t links) {
  std::vector<Island> islands(count);
  for (std::size_t i = 0; i < count; ++i) {
    islands[i].number = i;
    if (links > 1 && i % 2 == 1) islands[i].link = 1 + i / 2 % (links - 1);
  }
  return islands;
}

/// Whether a loss is below another by more than is worth a tree's polishing.
bool isGain(double loss, double than) {
  return std::isinf(than) ? loss < than : loss < than - kArchiveGain * std::fabs(than);
}

void archive(std::vector<Archived>& archive, const Island& island) {
  for (const Individual& individual : island.population) {
    const auto place = std::ranges::lower_bound(archive, individual.complexity, {},
                                                [](const Archived& entry) { return entry.individual.complexity; });
    if (place == archive.end() || place->individual.complexity != individual.complexity) {
      archive.insert(place, {individual, false});
    } else if (isGain(individual.loss, place->individual.loss)) {
      *place = {individual, false};
    }
  }
}

struct Candidate {
  Archived* archived;
  std::size_t link;
};

/// The archived trees that were not polished, the best first. Those that a simpler one is as good as are marked, and
/// left out.
std::vector<Candidate> unpolished(std::vector<std::vector<Archived>>& archives) {
  std::vector<Candidate> candidates;
  for (std::size_t link = 0; link < archives.size(); ++link) {
    double least = std::numeric_limits<double>::infinity();
    for (Archived& archived : archives[link]) {
      if (!isGain(archived.individual.loss, least)) archived.is_polished = true;
      least = std::min(least, archived.individual.loss);
      if (!archived.is_polished) candidates.push_back({&archived, link});
    }
  }
  std::ranges::stable_sort(candidates, {}, [](const Candidate& one) { return one.archived->individual.loss; });
  return candidates;
}

/// The best `most` of the candidates, which are marked.
std::vector<Finalist> takeFinalists(std::span<const Candidate> candidates, std::size_t most) {
  std::vector<Finalist> finalists;
  for (const Candidate& candidate : candidates.first(std::min(candidates.size(), most))) {
    candidate.archived->is_polished = true;
    finalists.push_back({candidate.archived->individual.tree, candidate.link});
  }
  return finalists;
}

/// A search that runs.
class Run {
 public:
  Run(const SearchOptions& options, const SearchSetup& setup, const Polisher& polisher, SearchState& state)
      : options_(options), setup_(setup), polisher_(polisher), state_(state), seconds_before_(state.seconds) {}

  Result<SearchEnd> run();

 private:
  Status polishSome(bool is_due, std::size_t most);
  double secondsNow() const { return seconds_before_ + std::chrono::duration<double>(Clock::now() - begun_).count(); }
  Status finishGeneration(const std::array<Group, 2>& groups);
  std::optional<SearchEnd> reason() const;
  Status finish(SearchEnd end);

  const SearchOptions& options_;
  const SearchSetup& setup_;
  const Polisher& polisher_;
  SearchState& state_;
  double seconds_before_;
  std::uint64_t candidates_before_ = 0, fits_before_ = 0;
  Clock::time_point begun_ = Clock::now();
};

/// Where it is not due, only if the best one looks exact.
Status Run::polishSome(bool is_due, std::size_t most) {
  const std::vector<Candidate> candidates = unpolished(state_.archives);
  if (candidates.empty()) return okStatus();
  const bool looks_exact = isOfSquares(setup_.loss) && candidates.front().archived->individual.loss < kLooksExact;
  return is_due || looks_exact ? polisher_.polish(takeFinalists(candidates, most), state_.front) : okStatus();
}

std::optional<SearchEnd> Run::reason() const {
  if (const Formula* best = state_.front.best(); best != nullptr && best->loss <= setup_.enough) {
    return SearchEnd::kEnough;
  }
  if (options_.generations != 0 && state_.generations >= options_.generations) return SearchEnd::kGenerations;
  if (options_.seconds > 0 && state_.seconds >= options_.seconds) return SearchEnd::kTime;
  if (options_.stop && options_.stop()) return SearchEnd::kStopped;
  return {};
}

Status Run::finishGeneration(const std::array<Group, 2>& groups) {
  ++state_.generations;
  state_.candidates = candidates_before_ + groups[0].candidates() + groups[1].candidates();
  state_.fits = fits_before_ + groups[0].fits() + groups[1].fits();
  for (const Island& island : state_.islands) archive(state_.archives[island.link], island);
  const bool is_due = state_.generations % kPolishEvery == 0;
  if (const Status polished = polishSome(is_due, kPolishedAtOnce); !polished) return polished;
  state_.seconds = secondsNow();
  if (options_.progress) options_.progress(state_);
  return okStatus();
}

Status Run::finish(SearchEnd end) {
  if (end != SearchEnd::kEnough) {
    if (const Status polished = polishSome(true, kPolishedAtEnd); !polished) return polished;
  }
  Result<Front> rounded = polisher_.round(state_.front);
  if (!rounded) return rounded.error();
  state_.front = *std::move(rounded);
  state_.seconds = secondsNow();
  return okStatus();
}

Result<SearchEnd> Run::run() {
  const GroupContext context{setup_.grammars, setup_.screen,           options_.island,
                             options_.seed,   options_.fit_iterations, options_.fit_share};
  std::vector<std::size_t> numbers(state_.islands.size());
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  const std::span<const std::size_t> all = numbers;
  std::array<Group, 2> groups = {Group(context, state_.islands, all.first(all.size() / 2)),
                                 Group(context, state_.islands, all.subspan(all.size() / 2))};
  candidates_before_ = state_.candidates;
  fits_before_ = state_.fits;
  // A constant may be enough, and a search that is resumed may have reached its limits.
  if (const std::optional<SearchEnd> end = reason()) {
    if (const Status finished = finish(*end); !finished) return finished.error();
    return *end;
  }
  auto& [first, second] = groups;
  struct Step {
    Group* group;
    Status (Group::*run)();
  };
  // begin() takes longest: while one group breeds, the device and the host fit for the other. After the last step both
  // have ended the same generation: what the first has begun since changes nothing of its islands.
  const Step generation[] = {{&first, &Group::fit},  {&second, &Group::begin}, {&first, &Group::end},
                             {&second, &Group::fit}, {&first, &Group::begin},  {&second, &Group::end}};
  if (const Status begun = first.begin(); !begun) return begun.error();
  while (true) {
    for (const auto& [group, run] : generation) {
      if (const Status status = (group->*run)(); !status) return status.error();
    }
    if (const Status status = finishGeneration(groups); !status) return status.error();
    const std::optional<SearchEnd> end = reason();
    if (options_.checkpoint) options_.checkpoint(state_, end.has_value());
    if (end) {
      if (const Status finished = finish(*end); !finished) return finished.error();
      return *end;
    }
  }
}

Result<SearchResult> searchFrom(const DataView& data, const SearchOptions& options,
                                std::optional<SearchState> resumed) {
  const Result<SearchSetup> setup = setUp(data, options, resumed ? resumed->rows : 0);
  if (!setup) return setup.error();
  const RowSet* held_out = setup->held_out.size() > 0 ? &setup->held_out : nullptr;
  const DataView searched = setup->searched.view();
  const Result<Polisher> polisher = Polisher::create(setup->wide, {searched, setup->fitted, held_out}, setup->links,
                                                     {setup->grammar, setup->loss, setup->is_scaled});
  if (!polisher) return polisher.error();
  SearchResult result{.state = SearchState{},
                      .end = SearchEnd::kTime,
                      .engine = setup->wide,
                      .device = setup->engine.options().device,
                      .notices = {}};
  const std::uint64_t fingerprint = fingerprintOf(data, options);
  if (resumed) {
    if (resumed->fingerprint != fingerprint) return invalid("the search to resume was of other data or options");
    if (!isSound(*resumed, *setup, options)) return invalid("the state of the search to resume is damaged");
    result.state = *std::move(resumed);
  } else {
    result.state.fingerprint = fingerprint;
    result.state.rows = setup->rows;
    result.state.islands = newIslands(options.islands, setup->links.size());
    result.state.archives.resize(setup->links.size());
    result.state.front = Front(setup->floor);
    if (const Status added = polisher->addConstant(result.state.front); !added) return added.error();
  }
  Run run(options, *setup, *polisher, result.state);
  tbb::task_arena arena(static_cast<int>(setup->engine.options().threads));
  const Result<SearchEnd> end = arena.execute([&] { return run.run(); });
  if (!end) return end.error();
  result.end = *end;
  result.notices = setup->engine.notices();
  return result;
}

}  // namespace

bool canMinimise(const LossInfo& loss) noexcept {
  return loss.worst > 0 && !loss.isScaled() && loss.kind != LossKind::kSum;
}

Result<SearchResult> search(const DataView& data, const SearchOptions& options, std::optional<SearchState> resumed) {
  return guarded([&] { return searchFrom(data, options, std::move(resumed)); });
}

std::uint64_t fingerprintOf(const DataView& data, const SearchOptions& options) {
  std::uint64_t hash = combine(data.columns.size(), data.target ? data.target->size : 0);
  const auto add = [&](std::uint64_t value) { hash = combine(hash, value); };
  const auto addColumn = [&](const ColumnView& column) {
    const std::size_t bytes = column.size * (column.type == Precision::kF32 ? sizeof(float) : sizeof(double));
    add(hashOf(std::string_view(static_cast<const char*>(column.data), bytes)));
  };
  for (const ColumnView& column : data.columns) addColumn(column);
  if (data.target) addColumn(*data.target);
  if (data.weights) addColumn(*data.weights);
  std::string text = fmt::format(
      "{} {} {} {} {} {} {} {} {} {} {} {}", options.seed, options.held_out, options.islands, options.island.population,
      options.island.offspring, options.island.patience, options.rows, options.fit_iterations, options.fit_share,
      options.grammar.max_complexity, options.grammar.variable_complexity, options.grammar.constant_complexity);
  for (const OperatorUse& use : options.grammar.operators)
    text += fmt::format(" {}:{}", infoOf(use.op).name, use.complexity);
  for (const NestingLimit& limit : options.grammar.nesting) {
    text += fmt::format(" {}:{}:{}", infoOf(limit.outer).name, infoOf(limit.inner).name, limit.most);
  }
  for (const std::string& link : options.links) text += " " + link;
  const EngineOptions& engine = options.selecting_engine ? options.selecting_engine->options() : options.engine;
  text += fmt::format(" {} {} {} {} {} {}", static_cast<int>(engine.precision), static_cast<int>(engine.math),
                      options.grammar.allow_self_nesting, static_cast<int>(options.loss.kind),
                      options.loss.tuning.value_or(-1), static_cast<int>(options.loss.nan));
  add(hashOf(text));
  if (options.loss.custom) add(hashOf(*options.loss.custom));
  return hash;
}

}  // namespace srjit::search
