// A search for formulas: islands of tree genetic programming on an Engine, as an example of an embedded GP system.
//
//   Result<SearchResult> found = search(data, {.seconds = 60, .seed = 1});
//   for (const Formula& formula : found->front.formulas()) ...
//
// Every island has a frame: a link of the target (link.h), and columns as they are or in units (formulas/units.h).
// Islands are in three groups; while the device evaluates the trees of two, the host breeds those of the third. Each
// generation of a group: breed (island.h), losses on some rows, short fits of the constants of promising trees
// (screen.h), survivors. The best trees of every complexity are archived, and every few generations become formulas of
// the front (formulas/polish.h).
//
// The formulas depend on the data, the options and the seed, but neither on the number of threads nor on that of
// devices; the time decides only when a search ends. It ends inside of a generation, too: that generation is dropped,
// and the search closes (closing.h) with what the generations before it have found.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "tools/search/formulas/front.h"
#include "tools/search/grammar.h"
#include "tools/search/island.h"
#include "tools/search/timekeeper.h"

namespace srjit::search {

/// Rows by which islands select, unless another number is given.
inline constexpr std::size_t kSelectionRowsOnCpu = 1024, kSelectionRowsOnGpu = 16384;
/// The most generations after a formula that is enough.
inline constexpr std::uint64_t kMostLook = 20;
/// Largest SearchOptions::held_out.
inline constexpr double kMostHeldOut = 0.9;

/// A tree that was the best of its complexity and link.
struct Archived {
  Expression tree;
  std::size_t complexity = 0;
  double loss = 0;           ///< Traits::loss
  bool is_polished = false;  ///< or a simpler one is as good
};

/// All that a search knows between two generations; a search that begins with it goes on where it was. Plain data
/// (resume/checkpoint.h writes and reads it).
struct SearchState {
  std::uint64_t fingerprint = 0;  ///< of data and options: a state is of no use for others
  std::size_t rows = 0;           ///< for selection
  double seconds = 0;             ///< of the whole search, also before it was resumed
  std::uint64_t generations = 0;  ///< that all islands have bred
  std::uint64_t candidates = 0;   ///< trees whose loss was computed
  std::uint64_t fits = 0;         ///< trees whose constants were fitted
  std::uint64_t exact_at = 0;     ///< the generation of the first formula that was enough; 0: none yet, or a constant
  std::vector<Island> islands;
  std::vector<std::vector<Archived>> archives;  ///< by frame, complexities ascend
  Front front = Front();
};

struct SearchOptions {
  GrammarOptions grammar = {};
  /// The device, threads and mathematics of the search. Precision::kF32 is only for selection, and only if f32 has the
  /// numbers of the data (fitsF32() in formulas/units.h); formulas of the front are fitted and judged in f64.
  EngineOptions engine = {};
  /// An engine to select with, instead of one that is made with these options, which are then not read. If f32 does not
  /// do, one of f64 with the engine's options is made.
  std::optional<Engine> selecting_engine = {};
  /// The loss to minimise: nmse and other losses of squared errors, by which islands select after linear scaling, or
  /// any other that fits minimise, by which they select as it is.
  LossOptions loss = {.kind = LossKind::kNmse};
  std::vector<std::string> links = {};  ///< names (link.h); empty: the usual ones
  /// Texts in infix, which are read with the names of the data: start formulas of the target, whose parameters begin
  /// as 1; definitions and a form (trees/form.h) beside those of `grammar`. With a form trees are not scaled, and there
  /// are no links.
  std::vector<std::string> guesses = {}, definitions = {};
  std::optional<std::string> form = {};
  std::vector<std::string> bounds = {};  ///< of parameters of the form (readBounds() of tools/values.h)
  /// Units of columns and target (Dimensions::parse(); `target` stands for that), and "x:up,y:down" (parseTrends()).
  std::string units = {}, monotone = {};
  UnitConstants unit_constants = UnitConstants::kFree;  ///< those of `units`, as the next
  UnitRule unit_rule = UnitRule::kHard;
  std::size_t top = 1;  ///< formulas of the front that may be as simple and as exact as another, and it (Front)
  /// Time of the search, which takes at most a fifth and a second more; 0: no limit.
  double seconds = 60;
  std::optional<Timekeeper::Clock::time_point> begun = {};  ///< from when `seconds` count; not set: from the call on
  std::uint64_t generations = 0;                            ///< 0: no limit
  /// Ends the search when a formula leaves no more than this share of the target's variance, also at typical rows
  /// (Polisher::isTypical()), and no shorter one was found in as many generations more, at most kMostLook of them;
  /// without a limit of generations, also in a tenth of the time at most. Of losses that are no function of the squared
  /// errors: lossesOfShares() of screen.h.
  double enough = 1e-18;
  std::uint64_t seed = 1;
  double held_out = 0;       ///< share of the rows that are kept for judging, at most kMostHeldOut
  Choice choice = {};        ///< of the front
  std::size_t islands = 16;  ///< at least 2
  IslandOptions island = {};
  std::size_t rows = 0;  ///< for selection, at most those with a weight; 0: kSelectionRowsOnCpu or -OnGpu
  unsigned fit_iterations = 8;
  double fit_share = 0.15;  ///< of the offspring, whose constants may be fitted
  // Callbacks are called by the thread that calls search(), while other threads search.
  /// Asked after each generation and fifty times a second: whether to end now. Then the search ends within a second.
  std::function<bool()> stop = {};
  /// Called after each generation, some times a second.
  std::function<void(const SearchState&)> progress = {};
  /// Called after each generation with the state; with `is_last` if none follows. It decides how often it writes.
  std::function<void(const SearchState&, bool is_last)> checkpoint = {};
};

struct SearchResult {
  SearchState state;  ///< with the front, whose constants are rounded (Polisher::round())
  SearchEnd end = SearchEnd::kTime;
  GrammarOptions grammar;            ///< with what the texts of the options say
  Engine engine;                     ///< of f64, on the processor, which judged the front
  std::string device;                ///< by which islands selected
  std::vector<std::string> notices;  ///< Engine::notices() of the search's engine, then those of closeSearch()
};

/// Whether a search can minimise this loss: none that is best where it is largest, nor one without a least value, nor a
/// scaled one, since those of squared errors are scaled anyway.
bool canMinimise(const LossInfo& loss) noexcept;

/// Searches until the time is over, or another limit is reached; gives the front in any case but an error. `resumed` is
/// the state to go on from. Errors: kInvalid for options and data that do not fit, for a state of others, and if no
/// formula has a finite loss; those of the engine; kMachine for what a callback throws. Uses a thread of its own and
/// TBB's.
Result<SearchResult> search(const DataView& data, const SearchOptions& options,
                            std::optional<SearchState> resumed = {});

/// What SearchState::fingerprint is for these data and options. Limits of time and generations are left out, so that a
/// search can be resumed for longer.
std::uint64_t fingerprintOf(const DataView& data, const SearchOptions& options);

}  // namespace srjit::search
