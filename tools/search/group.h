// Islands that breed, are evaluated and select together, so that the device gets large batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tools/search/island.h"
#include "tools/search/screen.h"

namespace srjit::search {

/// What all groups of a search share. Borrowed; must not change.
struct GroupContext {
  const Grammar& grammar;
  const Screen& screen;
  IslandOptions island;
  std::uint64_t seed = 1;
  unsigned fit_iterations = 8;
  double fit_share = 0.15;
};

/// One generation of some islands in three steps, each of which leaves work on the device, or takes its results. Call
/// them in this order, again and again; between end() and begin() the islands are consistent. Not thread-safe.
class Group {
 public:
  /// Of islands of `all` with these numbers; both are borrowed.
  Group(const GroupContext& context, std::vector<Island>& all, std::vector<std::size_t> numbers)
      : context_(&context), islands_(&all), numbers_(std::move(numbers)) {}

  /// Breeds, and submits the losses of the offspring.
  Status begin();
  /// Waits for the losses, and submits fits of what is worth it.
  Status fit();
  /// Waits for the fits, lets single trees migrate, and selects.
  Status end();

  std::uint64_t candidates() const noexcept { return candidates_; }  ///< since this was made
  std::uint64_t fits() const noexcept { return fits_; }

 private:
  /// Where a tree of a batch comes from.
  struct Place {
    std::size_t member;  ///< of numbers_
    std::size_t child;
  };
  template <class Value>
  struct Flight {
    std::vector<Place> places;
    Pending<Value> pending;
  };
  /// The trees that were chosen, by link.
  std::vector<std::vector<Place>> byLink(std::span<const std::vector<std::size_t>> children) const;
  void immigrate(Island& island, std::vector<Individual>& offspring) const;

  const GroupContext* context_;
  std::vector<Island>* islands_;
  std::vector<std::size_t> numbers_;
  std::vector<std::vector<Individual>> offspring_;  ///< by member
  std::vector<Flight<Losses>> losses_;
  std::vector<Flight<Fits>> fits_in_flight_;
  std::uint64_t candidates_ = 0, fits_ = 0;
};

}  // namespace srjit::search
