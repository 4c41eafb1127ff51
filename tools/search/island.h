// An island: a population that evolves by itself, but for single trees that come from others.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "tools/search/grammar.h"
#include "tools/search/trees/arrays.h"
#include "tools/search/trees/identity.h"

namespace srjit::search {

/// What selection knows of a tree.
struct Traits {
  double loss = 0;          ///< on the rows for selection, in the engine's precision; infinite if there is none
  std::uint64_t shape = 0;  ///< Identity::shape
  std::uint64_t whole = 0;  ///< Identity::whole
  std::size_t complexity = 0;
};

/// A loss of the engine as Traits have it.
inline double usable(double loss) { return std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss; }

/// Trees, and the traits of each. Plain data.
struct Individuals {
  Trees trees;
  std::vector<Traits> traits;

  std::size_t size() const noexcept { return traits.size(); }
  void clear();
  void add(const TreeView& tree, const Traits& of);
};

/// What breed() makes, and its memory.
struct Brood {
  Individuals children;
  std::vector<Individuals> blocks = {};  ///< of which `children` are copies
};

class Backsolver;

/// Plain data: a checkpoint is the islands as they are between two generations.
struct Island {
  std::size_t number = 0;
  std::size_t frame = 0;             ///< index into the frames of the search
  std::uint64_t generation = 0;      ///< bred so far
  std::uint64_t born = 0;            ///< the generation in which its population was made anew
  std::uint64_t improved = 0;        ///< the generation in which it last came forward
  std::vector<double> records = {};  ///< by complexity: the least loss up to there since `born`
  Individuals population = {};       ///< by niche: complexities ascend, and losses within one
};

/// How islands evolve.
struct IslandOptions {
  std::size_t population = 400;
  std::size_t offspring = 800;  ///< per generation
  std::uint64_t patience = 30;  ///< generations without progress after which the population is made anew
};

/// The offspring of one generation, without losses: mutants and crossings of parents from the population, or random
/// trees where it is empty. None is the same formula (identity.h) as one before it or in the population, unless it is
/// simpler, so there may be fewer than asked for. Depends on the island, the options and `seed`, and not on the number
/// of threads. With a `backsolver` of the island's frame, one of 50 children has a subtree that it solved, unless the
/// grammar has a form. They become the children of `brood`. Uses all threads of TBB's arena.
void breed(const Island& island, const Grammar& grammar, const IslandOptions& options, std::uint64_t seed, Brood& brood,
           const Backsolver* backsolver = nullptr);

/// Chooses the survivors of the population and of `newcomers`. Each complexity is a niche (J.-B. Mouret, J. Clune,
/// "Illuminating search spaces by mapping elites", arXiv 1504.04909): first the best of each niche survive, then the
/// second best of each, and so on, until the population is full. Of trees of one shape the best one survives. Losses
/// that are not finite do not.
void settle(Island& island, const Individuals& newcomers, const IslandOptions& options);

/// Settles the offspring of a generation, and counts it. A population that made no progress for `patience` generations
/// is dropped, so that the next one is bred anew.
void survive(Island& island, const Individuals& offspring, const IslandOptions& options);

/// Numbers of the offspring, best first, whose constants are worth fitting: they have some, and would survive, or
/// nearly; at most `most`.
std::vector<std::size_t> worthFitting(const Island& island, const Individuals& offspring, const IslandOptions& options,
                                      std::size_t most);

}  // namespace srjit::search
