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
#include "tools/search/group.h"
#include "tools/search/polish.h"

namespace srjit::search {
namespace {

constexpr std::uint64_t kRowsSeed = 0x726f7773, kHeldOutSeed = 0x68656c64;  // of which rows are drawn
constexpr std::size_t kCpuRows = 1024, kGpuRows = 16384, kFittedRows = 16384;
constexpr std::uint64_t kPolishEvery = 8;    // generations
constexpr std::size_t kPolishedAtOnce = 12;  // finalists
constexpr std::size_t kPolishedAtEnd = 60;
constexpr double kArchiveGain = 0.95;  // of the archived loss, which a tree must be below to take its place
constexpr double kLooksExact = 1e-9;   // a scaled nmse in f32 that may be 0 in f64: polished at once
constexpr double kMostHeldOut = 0.9;
constexpr double kFloor = 1e-22;  // the share of the target's variance that is rounding in f64

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

std::vector<std::size_t> pick(std::span<const std::size_t> rows, std::size_t most, std::uint64_t seed) {
  std::vector<std::size_t> picked;
  for (const std::size_t at : drawRows(rows.size(), std::min(rows.size(), most), seed)) picked.push_back(rows[at]);
  return picked;
}

Status checkOptions(const DataView& data, const SearchOptions& options) {
  const auto invalid = [](std::string message) { return Error{Errc::kInvalid, std::move(message), {}}; };
  if (!data.target) return invalid("a search needs a target");
  if (options.islands < 2) return invalid("a search has at least 2 islands");
  if (options.island.population < 2 || options.island.offspring < 1) return invalid("an island is too small");
  if (!(options.held_out >= 0 && options.held_out <= kMostHeldOut)) {
    return invalid(fmt::format("the share of rows that are held out is from 0 to {}", kMostHeldOut));
  }
  if (options.loss.custom) return okStatus();
  const LossInfo& loss = infoOf(options.loss.kind);
  if (loss.worst < 0 || loss.isScaled() || options.loss.kind == LossKind::kSum) {
    return invalid(
        fmt::format("a search cannot minimise {}; losses of squared errors are scaled by themselves", loss.name));
  }
  return okStatus();
}

bool isConstant(const ColumnView& column) {
  const auto same = [&](const auto* values) {
    return std::all_of(values, values + column.size, [&](auto value) { return value == values[0]; });
  };
  return column.type == Precision::kF32 ? same(static_cast<const float*>(column.data))
                                        : same(static_cast<const double*>(column.data));
}

/// What stays the same during a search.
struct SearchSetup {
  Engine engine, wide;  // in the engine's precision, and in f64
  Grammar grammar;
  std::vector<const Link*> links;
  RowSet searched, fitted, held_out;
  Screen screen;
  double floor = 0;   // a loss that is rounding
  double enough = 0;  // a loss that ends the search
};

Result<SearchSetup> setUp(const DataView& data, const SearchOptions& options) {
  if (const Status status = checkOptions(data, options); !status) return status.error();
  Result<Grammar> grammar = Grammar::create(options.grammar, data.columns.size());
  if (!grammar) return grammar.error();
  Result<Engine> engine = Engine::create(options.engine);
  if (!engine) return engine.error();
  EngineOptions wide_options = options.engine;
  wide_options.precision = Precision::kF64;
  // Few trees and many passes: on a GPU they would wait for each other, and keep the islands' work waiting.
  wide_options.device = "cpu";
  wide_options.tier = Tier::kInterpret;
  Result<Engine> wide = Engine::create(wide_options);
  if (!wide) return wide.error();
  const std::size_t all = data.target->size;
  const auto held = static_cast<std::size_t>(options.held_out * static_cast<double>(all));
  const std::vector<std::size_t> held_out = drawRows(all, held, combine(options.seed, kHeldOutSeed));
  const std::vector<std::size_t> searched = without(all, held_out);
  if (searched.empty()) return Error{Errc::kInvalid, "the data have no row to search", {}};
  const std::size_t screened = options.rows != 0 ? options.rows : isGpu(*engine) ? kGpuRows : kCpuRows;
  const std::uint64_t rows_seed = combine(options.seed, kRowsSeed);
  RowSet searched_rows = gatherRows(data, searched);
  const bool has_links = isOfSquares(options.loss);
  const std::vector<std::string> identity = {std::string(allLinks().front().name)};
  Result<std::vector<const Link*>> links =
      linksFor(has_links ? options.links : identity, *grammar, searched_rows.target);
  if (!links) return links.error();
  Result<Screen> screen =
      Screen::create(*engine, gatherRows(data, pick(searched, screened, rows_seed)), *links, options.loss);
  if (!screen) return screen.error();
  const double floor = lossOfShare(options.loss, kFloor, searched_rows.target);
  const double enough = lossOfShare(options.loss, options.enough, searched_rows.target);
  return SearchSetup{*std::move(engine),
                     *std::move(wide),
                     *std::move(grammar),
                     *std::move(links),
                     std::move(searched_rows),
                     gatherRows(data, pick(searched, kFittedRows, rows_seed)),
                     gatherRows(data, held_out),
                     *std::move(screen),
                     floor,
                     enough};
}

/// Half of the islands search for the target itself, and each other link has an equal share of the rest.
std::vector<Island> newIslands(std::size_t count, std::size_t links) {
  std::vector<Island> islands(count);
  for (std::size_t i = 0; i < count; ++i) {
    islands[i].number = i;
    if (links > 1 && i % 2 == 1) islands[i].link = 1 + i / 2 % (links - 1);
  }
  return islands;
}

void archive(std::vector<Archived>& archive, const Island& island) {
  for (const Individual& individual : island.population) {
    const auto place = std::ranges::lower_bound(archive, individual.complexity, {},
                                                [](const Archived& entry) { return entry.individual.complexity; });
    if (place == archive.end() || place->individual.complexity != individual.complexity) {
      archive.insert(place, {individual, false});
    } else if (individual.loss < place->individual.loss * kArchiveGain) {
      *place = {individual, false};
    }
  }
}

/// The archived trees that no simpler one is as good as, and that were not polished; the best `most`. Marks them, and
/// all that are not worth it.
std::vector<Finalist> takeFinalists(std::vector<std::vector<Archived>>& archives, std::size_t most) {
  struct Candidate {
    Archived* archived;
    std::size_t link;
  };
  std::vector<Candidate> candidates;
  for (std::size_t link = 0; link < archives.size(); ++link) {
    double least = std::numeric_limits<double>::infinity();
    for (Archived& archived : archives[link]) {
      const bool is_better = archived.individual.loss < least * kArchiveGain;
      least = std::min(least, archived.individual.loss);
      if (is_better && !archived.is_polished) candidates.push_back({&archived, link});
    }
  }
  std::ranges::stable_sort(candidates, {}, [](const Candidate& one) { return one.archived->individual.loss; });
  candidates.resize(std::min(candidates.size(), most));
  std::vector<Finalist> finalists;
  for (const Candidate& candidate : candidates) {
    candidate.archived->is_polished = true;
    finalists.push_back({candidate.archived->individual.tree, candidate.link});
  }
  return finalists;
}

bool looksExact(const std::vector<std::vector<Archived>>& archives) {
  return std::ranges::any_of(archives, [](const std::vector<Archived>& archive) {
    return std::ranges::any_of(archive, [](const Archived& archived) {
      return !archived.is_polished && archived.individual.loss < kLooksExact;
    });
  });
}

/// A search that runs.
class Run {
 public:
  Run(const SearchOptions& options, const SearchSetup& setup, const Polisher& polisher, SearchState& state)
      : options_(options), setup_(setup), polisher_(polisher), state_(state), seconds_before_(state.seconds) {}

  Result<SearchEnd> run();

 private:
  Status polishSome(std::size_t most) { return polisher_.polish(takeFinalists(state_.archives, most), state_.front); }
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
  if (state_.generations % kPolishEvery == 0 || looksExact(state_.archives)) {
    if (const Status polished = polishSome(kPolishedAtOnce); !polished) return polished;
  }
  state_.seconds = seconds_before_ + std::chrono::duration<double>(Clock::now() - begun_).count();
  if (options_.progress) {
    options_.progress({state_.seconds, state_.generations, state_.candidates, state_.fits, &state_.front});
  }
  return okStatus();
}

Status Run::finish(SearchEnd end) {
  if (end != SearchEnd::kEnough) {
    if (const Status polished = polishSome(kPolishedAtEnd); !polished) return polished;
  }
  Result<Front> rounded = polisher_.round(state_.front);
  if (!rounded) return rounded.error();
  state_.front = *std::move(rounded);
  return okStatus();
}

Result<SearchEnd> Run::run() {
  const GroupContext context{setup_.grammar, setup_.screen,           options_.island,
                             options_.seed,  options_.fit_iterations, options_.fit_share};
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
  // The device always has work of one group while the host works on the other. After second.end() both have ended the
  // same generation: what the first has begun since changes nothing of its islands.
  if (const Status status = first.begin(); !status) return status.error();
  if (const Status status = second.begin(); !status) return status.error();
  while (true) {
    for (Group* group : {&first, &second}) {
      if (const Status status = group->fit(); !status) return status.error();
    }
    for (Group* group : {&first, &second}) {
      if (const Status status = group->end(); !status) return status.error();
      if (group == &first) {
        if (const Status status = first.begin(); !status) return status.error();
      }
    }
    if (const Status status = finishGeneration(groups); !status) return status.error();
    const std::optional<SearchEnd> end = reason();
    if (options_.checkpoint) options_.checkpoint(state_, end.has_value());
    if (end) {
      if (const Status finished = finish(*end); !finished) return finished.error();
      return *end;
    }
    if (const Status status = second.begin(); !status) return status.error();
  }
}

}  // namespace

Result<SearchResult> search(const DataView& data, const SearchOptions& given, std::optional<SearchState> resumed) {
  SearchOptions options = given;
  // Of a constant target there is no share of the variance, but errors there are.
  if (options.loss.kind == LossKind::kNmse && data.target && isConstant(*data.target))
    options.loss.kind = LossKind::kMse;
  Result<SearchSetup> setup = setUp(data, options);
  if (!setup) return setup.error();
  const RowSet* held_out = setup->held_out.size() > 0 ? &setup->held_out : nullptr;
  const DataView searched = setup->searched.view();
  const Result<Polisher> polisher =
      Polisher::create(setup->wide, {searched, setup->fitted, held_out}, setup->links, setup->grammar, options.loss);
  if (!polisher) return polisher.error();
  SearchResult result{.state = SearchState{},
                      .end = SearchEnd::kTime,
                      .engine = setup->wide,
                      .device = setup->engine.options().device,
                      .notices = {}};
  const std::uint64_t fingerprint = fingerprintOf(data, given);
  if (resumed) {
    if (resumed->fingerprint != fingerprint) {
      return Error{Errc::kInvalid, "the search to resume was of other data or options", {}};
    }
    result.state = *std::move(resumed);
  } else {
    result.state.fingerprint = fingerprint;
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
  text += fmt::format(" {} {} {} {}", options.grammar.allow_self_nesting, static_cast<int>(options.loss.kind),
                      options.loss.tuning.value_or(-1), static_cast<int>(options.loss.nan));
  add(hashOf(text));
  if (options.loss.custom) add(hashOf(*options.loss.custom));
  return hash;
}

}  // namespace srjit::search
