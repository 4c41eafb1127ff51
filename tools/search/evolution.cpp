#include "tools/search/evolution.h"

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <ranges>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "ir/mix.h"
#include "runtime/platform/guarded.h"
#include "tools/report.h"
#include "tools/search/closing.h"
#include "tools/search/group.h"
#include "tools/search/setup.h"
#include "tools/search/sums.h"

namespace srjit::search {
namespace {

constexpr std::uint64_t kPolishEvery = 8;    // generations
constexpr std::size_t kPolishedAtOnce = 12;  // finalists
constexpr std::size_t kMostParts = 200;      // of trees, in sums
constexpr std::size_t kMostPartTokens = 12;

using Clock = Timekeeper::Clock;

/// Half of the islands have the first link, which is usually the target itself; the others share the rest.
std::vector<Island> newIslands(std::size_t count, std::span<const Frame> frames) {
  const auto isOther = [&](const Frame& frame) { return frame.link != frames.front().link; };
  const auto first = static_cast<std::size_t>(std::ranges::find_if(frames, isOther) - frames.begin());
  std::vector<Island> islands(count);
  for (std::size_t i = 0; i < count; ++i) {
    islands[i].number = i;
    const bool is_other = first < frames.size() && i % 2 == 1;
    islands[i].frame = is_other ? first + i / 2 % (frames.size() - first) : i / 2 % first;
  }
  return islands;
}

/// The parts of archived trees, but columns and constants, each once; those of the best trees first.
std::vector<Expression> partsOf(std::span<const Archived> archive) {
  std::vector<Expression> parts;
  for (const Archived& one : archive | std::views::reverse) {
    const std::span<const Token> tokens = one.tree.tokens();
    const std::vector<std::uint32_t> begins = subtreeStarts(tokens);
    for (std::size_t i = 0; i < tokens.size() && parts.size() < kMostParts; ++i) {
      const std::span<const Token> own = tokens.subspan(begins[i], i + 1 - begins[i]);
      const bool varies = std::ranges::find(own, Token::Kind::kVariable, &Token::kind) != own.end();
      if (own.size() < 2 || own.size() > kMostPartTokens || !varies) continue;
      Expression part = Expression::create({own.begin(), own.end()}).value();
      if (std::ranges::find(parts, part) == parts.end()) parts.push_back(std::move(part));
    }
  }
  return parts;
}

/// Copies what a generation changes, in memory that there is.
void keep(const SearchState& state, SearchState& kept) {
  std::vector<Island> islands = std::move(kept.islands);
  islands.resize(state.islands.size());
  tbb::parallel_for(std::size_t{0}, islands.size(), [&](std::size_t i) { islands[i] = state.islands[i]; });
  kept = {.fingerprint = state.fingerprint,
          .rows = state.rows,
          .seconds = state.seconds,
          .generations = state.generations,
          .candidates = state.candidates,
          .fits = state.fits,
          .exact_at = state.exact_at,
          .islands = std::move(islands),
          .archives = state.archives,
          .front = state.front};
}

/// A search that runs, until it closes.
class Run {
 public:
  /// `polisher` must end its calls when `timekeeper` ends the search.
  Run(const SearchOptions& options, const SearchSetup& setup, const Polisher& polisher, Timekeeper& timekeeper,
      SearchState& state)
      : options_(options),
        setup_(setup),
        polisher_(polisher),
        timekeeper_(timekeeper),
        state_(state),
        seconds_before_(state.seconds),
        candidates_before_(state.candidates),
        fits_before_(state.fits),
        begun_(timekeeper.begun()) {}

  SearchEnd run();
  void takeTime() { state_.seconds = seconds_before_ + std::chrono::duration<double>(Clock::now() - begun_).count(); }

 private:
  using Groups = std::array<Group, 3>;

  void addFirstSums();
  void addSums();
  void addGuesses();
  Individuals judged(std::span<const Expression> trees, std::size_t link) const;
  void generate(Groups& groups);
  void polishSome();
  std::optional<SearchEnd> reason();
  bool isEnough();
  SearchEnd dropGeneration(SearchState& complete, const Groups& groups);

  const SearchOptions& options_;
  const SearchSetup& setup_;
  const Polisher& polisher_;
  Timekeeper& timekeeper_;
  SearchState& state_;
  double seconds_before_;
  std::uint64_t candidates_before_, fits_before_;
  Clock::time_point begun_;
  std::optional<Clock::time_point> exact_since_;  ///< when a formula was enough
};

/// Every few generations, and at once if the best tree looks exact.
void Run::polishSome() {
  const std::vector<Candidate> candidates = unpolished(state_.archives, setup_.gain);
  if (candidates.empty()) return;
  const bool looks_exact = std::fabs(candidates.front().archived->loss) < setup_.looks_exact;
  if (state_.generations % kPolishEvery != 0 && !looks_exact) return;
  const std::span<const Candidate> all = candidates;
  polishCandidates(all.first(std::min(all.size(), kPolishedAtOnce)), polisher_, state_.front);
}

/// Whether a formula is enough, and a shorter one was looked for as long as SearchOptions::enough says.
bool Run::isEnough() {
  // Formulas with as many constants as rows are no evidence.
  const auto isExact = [&](const Formula& formula) {
    const bool interpolates = std::isinf(formula.evidence) && formula.expression.variableCount() > 0;
    return std::fabs(formula.loss) <= setup_.enough && !interpolates && polisher_.isTypical(formula, options_.enough);
  };
  if (!exact_since_) {
    bool has_exact = false;
    untilStopped(timekeeper_.ended(), [&] { has_exact = std::ranges::any_of(state_.front.formulas(), isExact); });
    if (!has_exact) return false;
    exact_since_ = Clock::now();
    if (state_.exact_at == 0) state_.exact_at = state_.generations;
  }
  const std::chrono::duration<double> looked = Clock::now() - *exact_since_;
  return state_.generations >= state_.exact_at + std::min(state_.exact_at, kMostLook) ||
         (options_.generations == 0 && options_.seconds > 0 && looked.count() > options_.seconds / 10);
}

std::optional<SearchEnd> Run::reason() {
  if (isEnough()) return SearchEnd::kEnough;
  const bool is_last = options_.generations != 0 && state_.generations >= options_.generations;
  const std::optional<SearchEnd> end = is_last ? SearchEnd::kGenerations : timekeeper_.cause();
  return end && exact_since_ && *end != SearchEnd::kStopped ? SearchEnd::kEnough : end;
}

/// The trees with their losses for selection.
Individuals Run::judged(std::span<const Expression> trees, std::size_t frame) const {
  Individuals made;
  for (const Expression& tree : trees) made.trees.add(tree.tokens());
  if (trees.empty()) return made;
  const Losses losses = setup_.screen.submitLoss(made.trees, frame).result().value();
  for (std::size_t i = 0; i < trees.size(); ++i) {
    const auto [shape, whole, is_constant] = identityOf(made.trees[i]);
    const double loss = setup_.handicaps[frame].of(usable(losses.values[i]), made.trees[i], setup_.grammars[frame]);
    made.traits.push_back({loss, shape, whole, setup_.grammar.complexityOf(trees[i].tokens())});
  }
  return made;
}

/// The sums that the columns give, of all links. No island gets them: their populations begin with random trees.
void Run::addFirstSums() {
  std::vector<std::vector<Expression>> sums(setup_.frames.size());
  tbb::parallel_for(std::size_t{0}, sums.size(), [&](std::size_t frame) { sums[frame] = sparseSums(setup_, frame); });
  for (std::size_t frame = 0; frame < sums.size(); ++frame) {
    archive(state_.archives[frame], judged(sums[frame], frame), setup_.gain);
  }
}

/// Sums of the parts of archived trees, of one frame at a time: of the first frame every other time.
void Run::addSums() {
  const std::size_t turn = state_.generations / kPolishEvery, others = setup_.frames.size() - 1;
  const std::size_t frame = others == 0 || turn % 2 == 1 ? 0 : 1 + turn / 2 % others;
  const auto island = std::ranges::find_if(
      state_.islands, [&](const Island& one) { return one.frame == frame && one.population.size() > 0; });
  const std::vector<Expression> parts = partsOf(state_.archives[frame]);
  if (island == state_.islands.end() || parts.empty()) return;
  const Individuals sums = judged(sparseSums(setup_, frame, parts), frame);
  archive(state_.archives[frame], sums, setup_.gain);
  settle(*island, sums, options_.island);
}

/// Start formulas of the target: as trees of half of its islands, once these have some of their own.
void Run::addGuesses() {
  const Individuals guesses = judged(setup_.guesses, 0);
  archive(state_.archives[0], guesses, setup_.gain);
  for (Island& island : state_.islands) {
    if (island.frame == 0 && island.number % 4 == 0) settle(island, guesses, options_.island);
  }
}

/// One generation of all islands.
void Run::generate(Groups& groups) {
  if (state_.generations > 0 && state_.generations % kPolishEvery == 0) addSums();
  if (state_.generations == 1 && !setup_.guesses.empty()) addGuesses();
  // Three times the same, a group further each time: what a step waits for was submitted before another group bred.
  // After the last step all have ended the same generation; what two of them have begun since changes no island.
  for (std::size_t first = 0; first < groups.size(); ++first) {
    groups[(first + 2) % groups.size()].begin();
    groups[(first + 1) % groups.size()].fit();
    groups[first].end();
  }
  ++state_.generations;
  state_.candidates = candidates_before_;
  state_.fits = fits_before_;
  for (const Group& group : groups) {
    state_.candidates += group.candidates();
    state_.fits += group.fits();
  }
  for (const Island& island : state_.islands) archive(state_.archives[island.frame], island.population, setup_.gain);
  polishSome();
}

/// A generation that was cut off depends on timing, so it is dropped. Its trees are used only if no generation is
/// complete.
SearchEnd Run::dropGeneration(SearchState& complete, const Groups& groups) {
  std::vector<std::vector<Archived>> first_trees = complete.archives;
  if (complete.generations == 0) {
    for (const Island& island : state_.islands) archive(first_trees[island.frame], island.population, setup_.gain);
    for (const Group& group : groups) group.archiveOffspring(first_trees, setup_.gain);
  }
  state_ = std::move(complete);
  takeTime();
  if (options_.checkpoint) timekeeper_.onCaller([&] { options_.checkpoint(state_, true); });
  if (state_.generations == 0) state_.archives = std::move(first_trees);
  const SearchEnd cause = timekeeper_.cause().value_or(SearchEnd::kStopped);
  return exact_since_ && cause != SearchEnd::kStopped ? SearchEnd::kEnough : cause;
}

SearchEnd Run::run() {
  std::vector<Backsolver> backsolvers;
  for (std::size_t frame = 0; frame < setup_.frames.size(); ++frame) backsolvers.emplace_back(setup_, frame);
  const GroupContext context{setup_.grammars,         setup_.handicaps,   backsolvers,
                             setup_.screen,           options_.island,    options_.seed,
                             options_.fit_iterations, options_.fit_share, timekeeper_.ended()};
  // A constant may be enough, and a search that is resumed may have reached its limits.
  if (const std::optional<SearchEnd> end = reason()) {
    if (options_.checkpoint) timekeeper_.onCaller([&] { options_.checkpoint(state_, true); });
    return *end;
  }
  std::vector<std::size_t> numbers(state_.islands.size());
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  const auto groupOf = [&](std::size_t third) {
    const std::size_t begin = numbers.size() * third / 3, end = numbers.size() * (third + 1) / 3;
    return Group(context, state_.islands, std::span(numbers).subspan(begin, end - begin));
  };
  Groups groups = {groupOf(0), groupOf(1), groupOf(2)};
  const std::stop_token ended = timekeeper_.ended();
  untilStopped(ended, [&] {
    if (state_.generations > 0) return;
    addFirstSums();
    if (!setup_.guesses.empty()) archive(state_.archives[0], judged(setup_.guesses, 0), setup_.gain);
  });
  SearchState complete;
  keep(state_, complete);
  untilStopped(ended, [&] {
    groups[0].begin();
    groups[1].begin();
    groups[0].fit();
  });
  while (true) {
    if (!ended.stop_requested()) untilStopped(ended, [&] { generate(groups); });
    if (ended.stop_requested()) return dropGeneration(complete, groups);
    takeTime();
    timekeeper_.onCaller([&] {
      if (options_.progress) options_.progress(state_);
    });
    const std::optional<SearchEnd> end = reason();
    if (options_.checkpoint) timekeeper_.onCaller([&] { options_.checkpoint(state_, end.has_value()); });
    if (end) {
      timekeeper_.close();  // so that nobody waits for what some groups have begun
      return *end;
    }
    keep(state_, complete);
  }
}

/// A search goes on from `resumed`, or begins with a constant. Throws kInvalid for a state of another search.
SearchState firstState(const DataView& data, const SearchOptions& options, const SearchSetup& setup,
                       const Polisher& polisher, std::optional<SearchState> resumed) {
  const std::uint64_t fingerprint = fingerprintOf(data, options);
  if (resumed) {
    if (resumed->fingerprint != fingerprint) refuse("the search to resume was of other data or options");
    if (!isSound(*resumed, setup, options)) refuse("the state of the search to resume is damaged: begin without it");
    resumed->front = polisher.weighed(resumed->front);
    resumed->front.choose(options.choice);
    return *std::move(resumed);
  }
  SearchState state{.fingerprint = fingerprint,
                    .rows = setup.rows,
                    .islands = newIslands(options.islands, setup.frames),
                    .archives = std::vector<std::vector<Archived>>(setup.frames.size()),
                    .front = Front(setup.floor, options.top)};
  state.front.choose(options.choice);
  polisher.addConstant(state.front);
  return state;
}

SearchResult searchFrom(const DataView& data, const SearchOptions& options, std::optional<SearchState> resumed,
                        Timekeeper& timekeeper) {
  const SearchSetup setup = setUp(data, options, resumed ? resumed->rows : 0, timekeeper.ended());
  const RowSet* held_out = setup.held_out.size() > 0 ? &setup.held_out : nullptr;
  const DataView searched = setup.searched.view();
  const Polisher polisher = Polisher::create(setup.wide, {searched, setup.fitted, held_out}, setup.frames,
                                             {setup.grammar, setup.loss, setup.is_scaled, setup.units});
  const Polisher in_time = polisher.withStop(timekeeper.ended());
  SearchState state = firstState(data, options, setup, polisher, std::move(resumed));
  Run run(options, setup, in_time, timekeeper, state);
  tbb::task_arena arena(static_cast<int>(setup.engine.options().threads));
  const SearchEnd end = arena.execute([&] { return run.run(); });
  timekeeper.close();
  const auto notices = arena.execute([&] { return closeSearch(state, end, setup, polisher, timekeeper); });
  run.takeTime();
  if (state.front.empty()) {
    refuse(
        "no formula has a finite loss on these data, of {} trees and the constants; {}the loss may not be defined for "
        "this target, or its values are too large",
        state.candidates,
        setup.grammar.options().units ? "perhaps no combination of columns has the target's unit, or " : "");
  }
  SearchResult result{.state = std::move(state),
                      .end = timekeeper.cause() == SearchEnd::kStopped ? SearchEnd::kStopped : end,
                      .grammar = setup.grammar.options(),
                      .engine = setup.wide,
                      .device = setup.engine.options().device,
                      .notices = setup.engine.notices()};
  result.notices.insert(result.notices.end(), notices.begin(), notices.end());
  const Formula& chosen = *result.state.front.chosen();
  if (chosen.loss <= setup.enough && !polisher.isTypical(chosen, options.enough)) {
    result.notices.push_back(
        "the chosen formula is right only for the largest targets, which have nearly all of the variance; for a "
        "formula of the other rows give weights, such as 1 / y^2, or leave the largest out");
  }
  return result;
}

}  // namespace

bool canMinimise(const LossInfo& loss) noexcept {
  return loss.worst > 0 && !loss.isScaled() && loss.kind != LossKind::kSum;
}

Result<SearchResult> search(const DataView& data, const SearchOptions& options, std::optional<SearchState> resumed) {
  return guarded([&]() -> Result<SearchResult> {
    const double seconds =
        options.seconds > 0 && resumed ? std::max(options.seconds - resumed->seconds, 1e-9) : options.seconds;
    Timekeeper timekeeper(options.stop, options.begun.value_or(Clock::now()), seconds);
    std::optional<Result<SearchResult>> result;
    timekeeper.run([&] {
      result =
          guarded([&]() -> Result<SearchResult> { return searchFrom(data, options, std::move(resumed), timekeeper); });
    });
    return *std::move(result);
  });
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
  for (const std::string& guess : options.guesses) text += "\nguess " + guess;
  for (const std::string& definition : options.definitions) text += "\ndefine " + definition;
  if (options.form) text += "\nform " + *options.form;
  for (const std::string& bound : options.bounds) text += "\nbound " + bound;
  // These texts name columns.
  if (options.form || !(options.guesses.empty() && options.units.empty() && options.monotone.empty())) {
    for (const std::string& name : data.names.names()) text += "\ncolumn " + name;
  }
  if (options.top != 1) text += fmt::format("\ntop {}", options.top);
  if (options.grammar.codata) text += " codata";
  if (options.grammar.max_columns > 0) text += fmt::format(" columns:{}", options.grammar.max_columns);
  text += fmt::format(" {} {} {} {}", options.units, static_cast<int>(options.unit_constants),
                      static_cast<int>(options.unit_rule), options.monotone);
  const EngineOptions& engine = options.selecting_engine ? options.selecting_engine->options() : options.engine;
  text += fmt::format(" {} {} {} {} {} {}", static_cast<int>(engine.precision), static_cast<int>(engine.math),
                      options.grammar.allow_self_nesting, static_cast<int>(options.loss.kind),
                      options.loss.tuning.value_or(-1), static_cast<int>(options.loss.nan));
  add(hashOf(text));
  if (options.loss.custom) add(hashOf(*options.loss.custom));
  return hash;
}

}  // namespace srjit::search
