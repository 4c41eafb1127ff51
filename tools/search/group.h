// Islands that breed, are evaluated and select at the same time, so that the device gets large batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "tools/search/evolution.h"
#include "tools/search/formulas/handicap.h"
#include "tools/search/island.h"
#include "tools/search/screen.h"
#include "tools/search/trees/backsolver.h"

namespace srjit::search {

/// What all groups of a search share. Borrowed; must not change.
struct GroupContext {
  std::span<const Grammar> grammars;        ///< by frame, within its wrapper
  std::span<const Handicap> handicaps;      ///< by frame
  std::span<const Backsolver> backsolvers;  ///< by frame
  const Screen& screen;
  IslandOptions island;
  std::uint64_t seed;
  unsigned fit_iterations;
  double fit_share;
  std::stop_token ended;  ///< ends a step with an error of kLimit
};

/// One generation of some islands in three steps. Each leaves work on the device, or takes its results. Call
/// them in this order, again and again; between end() and begin() the islands are consistent. After a step that threw
/// an ErrorException, a group can only be destroyed. Not thread-safe; uses the threads of TBB's arena.
class Group {
 public:
  /// Of the islands of `all` with these numbers; `context` and `all` are borrowed.
  Group(const GroupContext& context, std::vector<Island>& all, std::span<const std::size_t> numbers);

  /// Breeds, and submits the losses of the offspring.
  void begin();
  /// Waits for the losses, and submits fits of promising trees.
  void fit();
  /// Waits for the fits, lets single trees migrate, and selects.
  void end();

  /// Takes the offspring whose losses are known to the archives of their frames, even after an error.
  void archiveOffspring(std::vector<std::vector<Archived>>& archives, double gain) const;

  std::uint64_t candidates() const noexcept { return candidates_; }  ///< since this was made
  std::uint64_t fits() const noexcept { return fits_; }

 private:
  /// A child whose constants are fitted: its island's place in the batch, and its number there.
  struct Fitted {
    std::size_t island, number;
    Exponents exponents;
  };
  /// Some islands of one frame, whose trees are evaluated together.
  struct Batch {
    std::size_t frame;
    std::vector<std::size_t> islands;
    std::vector<Brood> broods = {};              ///< by island
    Trees trees = {};                            ///< of all their children; kept for its memory
    std::optional<Pending<Losses>> losses = {};  ///< of all children, in order
    bool has_losses = false;                     ///< of the children, which are there
    std::vector<Fitted> fitted = {};             ///< the children that `fits` are of
    std::optional<Pending<Fits>> fits = {};
  };
  void begin(Batch& batch) const;
  void submitFits(Batch& batch) const;
  void takeFits(Batch& batch, const Fits& fits) const;
  void immigrate(const Island& island, Individuals& offspring) const;
  /// Calls `step` for every batch, on several threads.
  template <class Step>
  void forEach(const Step& step);

  const GroupContext* context_;
  std::vector<Island>* islands_;
  std::vector<Batch> batches_;
  std::uint64_t candidates_ = 0, fits_ = 0;
};

}  // namespace srjit::search
