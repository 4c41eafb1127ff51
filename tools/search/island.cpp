#include "tools/search/island.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/DenseSet.h>

#include "ir/mix.h"
#include "tools/search/trees/backsolver.h"
#include "tools/search/trees/variation.h"

namespace srjit::search {
namespace {

constexpr int kAttempts = 4;             // to make a child that the grammar admits
constexpr int kStrictAttempts = 24;      // the same for a grammar that admits few trees
constexpr double kCrossover = 0.4;       // of the children
constexpr double kSecondMutation = 0.3;  // of those that are mutated
constexpr double kUniformParent = 0.4;   // parents that are drawn from all; others win a tournament
constexpr double kBacksolved = 0.02;     // of the children
constexpr std::size_t kTournament = 4;
constexpr std::size_t kBlock = 64;            // children that one task breeds
constexpr double kFreshBlood = 0.02;          // random trees among the children
constexpr std::size_t kFirstComplexity = 12;  // the most that the first trees are grown to
constexpr double kProgress = 0.01;            // of a record, that a loss must be below it
constexpr double kRoundingLoss = 1e-16;       // below it is rounding
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kLossBits = 20;  // losses that agree in this number of bits of the significand are of the same values

/// The number of one of the population.
std::size_t chooseParent(const Individuals& population, Random& random) {
  std::size_t best = random.below(population.size());
  if (random.chance(kUniformParent)) return best;
  for (std::size_t i = 1; i < kTournament; ++i) {
    const std::size_t other = random.below(population.size());
    if (population.traits[other].loss < population.traits[best].loss) best = other;
  }
  return best;
}

/// Makes children of an island's population, one after another. Its memory is used again.
class Breeder {
 public:
  Breeder(const Individuals& population, const Grammar& grammar, const Backsolver* backsolver)
      : population_(population), grammar_(grammar), backsolver_(backsolver) {}

  /// Adds a child that the grammar admits, if one is found.
  void addChild(Individuals& to, Random random) {
    const Form* form = grammar_.form();
    const int most = grammar_.isStrict() ? kStrictAttempts : kAttempts;
    for (int attempt = 0; attempt < most; ++attempt) {
      putChild(to.trees, random);
      if (form != nullptr && form->repair(to.trees.openCodes())) {
        form->clamp(to.trees.openCodes(), to.trees.openConstants());
      }
      const TreeView child = to.trees.open();
      if (const std::optional<std::size_t> complexity = grammar_.admit(child)) {
        const Identity identity = identityOf(child);
        if (!identity.is_constant) {
          to.trees.close();
          to.traits.push_back({.shape = identity.shape, .whole = identity.whole, .complexity = *complexity});
          return;
        }
      }
      to.trees.drop();
    }
  }

 private:
  void putChild(Trees& to, Random& random) {
    if (population_.size() == 0 || random.chance(kFreshBlood)) {
      const std::size_t most = std::min(kFirstComplexity, grammar_.room());
      const auto put = [&](std::size_t) { putRandomTree(to, grammar_, 1 + random.below(most), random); };
      return grammar_.form() == nullptr ? put(0) : grammar_.form()->write(to, put);
    }
    const TreeView mother = population_.trees[chooseParent(population_, random)];
    if (backsolver_ != nullptr && random.chance(kBacksolved)) {
      const TreeView fathers[] = {population_.trees[chooseParent(population_, random)],
                                  population_.trees[chooseParent(population_, random)]};
      if (const std::optional<Edit> solved = backsolver_->solve(mother, fathers, random, tokens_)) {
        return to.put(mother, *solved);
      }
    }
    std::optional<Edit> first;
    if (random.chance(kCrossover)) {
      first = crossover(mother, population_.trees[chooseParent(population_, random)], random);
      if (!random.chance(kSecondMutation)) return to.put(mother, *first);
    } else if (random.chance(kSecondMutation)) {
      first = mutation(mother, grammar_, random, tokens_);
    }
    between_.drop();
    if (first) between_.put(mother, *first);
    const TreeView tree = first ? between_.open() : mother;
    to.put(tree, mutation(tree, grammar_, random, tokens_));
  }

  const Individuals& population_;
  const Grammar& grammar_;
  const Backsolver* backsolver_;
  Trees between_, tokens_;  ///< a child between two changes; the tokens of a change
};

/// LLVM's tables have a use for the two largest hashes. One hash of 64 bits may be taken for another by chance.
std::uint64_t keyOf(std::uint64_t hash) { return std::min(hash, UINT64_MAX - 2); }

/// Formulas that were seen, with the least complexity of each.
class SimplestFormulas {
 public:
  explicit SimplestFormulas(std::size_t most) { seen_.reserve(static_cast<unsigned>(most)); }
  /// Whether it is the first of its formula, or simpler than those before.
  bool add(const Traits& traits) {
    const auto [place, is_first] = seen_.try_emplace(keyOf(traits.whole), traits.complexity);
    const bool is_simpler = is_first || traits.complexity < place->second;
    if (is_simpler) place->second = traits.complexity;
    return is_simpler;
  }

 private:
  llvm::DenseMap<std::uint64_t, std::size_t> seen_;
};

/// What selection goes by.
struct Contender {
  double loss;  ///< rounded
  std::uint32_t complexity, number;

  /// Whether it is to be kept before another, within a niche or of one shape.
  friend bool operator<(const Contender& a, const Contender& b) {
    return std::tie(a.loss, a.complexity, a.number) < std::tie(b.loss, b.complexity, b.number);
  }
};

/// Towards 0, so that of formulas of the same values, which rounding may tell apart, the simplest one comes first.
double rounded(double loss) {
  constexpr std::uint64_t kDropped = (std::uint64_t{1} << (std::numeric_limits<double>::digits - 1 - kLossBits)) - 1;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(loss) & ~kDropped);
}

/// By complexity: individuals, the best first.
using Niches = std::vector<std::vector<Contender>>;

/// Leaves the `most` that come first: the best of each niche, then the second best of each, and so on, those of one
/// rank by loss.
void cut(Niches& niches, std::size_t most) {
  std::vector<Contender> last;  // of the rank for which there is no room for all
  std::size_t rank = 0;
  for (std::size_t left = most;; ++rank) {
    last.clear();
    for (const std::vector<Contender>& niche : niches) {
      if (niche.size() > rank) last.push_back(niche[rank]);
    }
    if (last.empty()) return;
    if (last.size() > left) {
      std::ranges::sort(last, std::less());
      last.resize(left);
      break;
    }
    left -= last.size();
  }
  for (std::vector<Contender>& niche : niches) niche.resize(std::min(niche.size(), rank));
  for (const Contender& one : last) niches[one.complexity].push_back(one);
}

/// By complexity: rounded losses above which children need not be looked at, since `most` better ones are in the
/// population. A filter: an old one may yet give way to a child of its shape.
std::vector<double> barsOf(const Individuals& population, std::size_t most) {
  if (population.size() < most) return {};
  std::vector<std::size_t> sizes;
  std::vector<double> bars;
  for (const Traits& one : population.traits) {
    sizes.resize(one.complexity + 1);
    bars.resize(one.complexity + 1);
    ++sizes[one.complexity];
    bars[one.complexity] = rounded(one.loss);  // the worst of a niche comes last
  }
  const std::size_t largest = std::ranges::max(sizes);
  double worst = -kInfinity;  // of the last rank
  for (std::size_t c = 0; c < sizes.size(); ++c) {
    if (sizes[c] == largest) worst = std::max(worst, bars[c]);
  }
  for (std::size_t c = 0; c < sizes.size(); ++c) {
    if (sizes[c] < largest) bars[c] = sizes[c] + 1 == largest ? std::max(worst, bars[c]) : kInfinity;
  }
  return bars;
}

/// The best `most` of the population, which come first in numbers, and the offspring. Of equal shapes only the best one
/// is there, and no loss that is not finite.
Niches select(const Individuals& population, const Individuals& offspring, std::size_t most) {
  const std::vector<double> bars = barsOf(population, most);
  const std::size_t old = population.size();
  const auto traitsOf = [&](std::size_t number) -> const Traits& {
    return number < old ? population.traits[number] : offspring.traits[number - old];
  };
  std::vector<Contender> contenders;
  for (std::size_t i = 0; i < old + offspring.size(); ++i) {
    const Traits& one = traitsOf(i);
    const double bar = i < old || one.complexity >= bars.size() ? kInfinity : bars[one.complexity];
    if (!std::isfinite(one.loss) || rounded(one.loss) > bar) continue;
    contenders.push_back(
        {rounded(one.loss), static_cast<std::uint32_t>(one.complexity), static_cast<std::uint32_t>(i)});
  }
  std::ranges::sort(contenders, std::less());
  llvm::DenseSet<std::uint64_t> shapes;
  shapes.reserve(contenders.size());
  Niches niches;
  for (const Contender& one : contenders) {
    if (niches.size() <= one.complexity) niches.resize(one.complexity + 1);
    std::vector<Contender>& niche = niches[one.complexity];
    // Of the same values by another formula, which no rule knows to be the same.
    if (!niche.empty() && one.loss == niche.back().loss) continue;
    if (shapes.insert(keyOf(traitsOf(one.number).shape)).second) niche.push_back(one);
  }
  cut(niches, most);
  return niches;
}

/// Takes the least losses up to each complexity to the records of the island. Gives whether one of them fell by more
/// than rounding and a hundredth.
bool comesForward(Island& island) {
  bool is_better = false;
  double least = kInfinity;
  for (const Traits& one : island.population.traits) {
    least = std::min(least, one.loss);
    if (island.records.size() <= one.complexity) {
      island.records.resize(one.complexity + 1, kInfinity);
    }
    double& record = island.records[one.complexity];
    if (std::isfinite(record) && !(least < record - std::max(kProgress * std::fabs(record), kRoundingLoss))) continue;
    record = least;
    is_better = true;
  }
  return is_better;
}

}  // namespace

void Individuals::clear() {
  trees.clear();
  traits.clear();
}

void Individuals::add(const TreeView& tree, const Traits& of) {
  trees.add(tree);
  traits.push_back(of);
}

void breed(const Island& island, const Grammar& grammar, const IslandOptions& options, std::uint64_t seed, Brood& brood,
           const Backsolver* backsolver) {
  const std::uint64_t base = combine(combine(seed, island.number), island.generation);
  brood.blocks.resize((options.offspring + kBlock - 1) / kBlock);
  tbb::parallel_for(std::size_t{0}, brood.blocks.size(), [&](std::size_t b) {
    brood.blocks[b].clear();
    Breeder breeder(island.population, grammar, backsolver);
    const std::size_t end = std::min((b + 1) * kBlock, options.offspring);
    for (std::size_t c = b * kBlock; c < end; ++c) breeder.addChild(brood.blocks[b], Random(combine(base, c)));
  });
  brood.children.clear();
  SimplestFormulas seen(island.population.size() + options.offspring);
  for (const Traits& one : island.population.traits) seen.add(one);
  for (const Individuals& block : brood.blocks) {
    for (std::size_t i = 0; i < block.size(); ++i) {
      const Traits& child = block.traits[i];
      if (seen.add(child)) brood.children.add(block.trees[i], child);
    }
  }
}

void settle(Island& island, const Individuals& newcomers, const IslandOptions& options) {
  thread_local Individuals survivors;
  survivors.clear();
  const Individuals& old = island.population;
  for (const std::vector<Contender>& niche : select(old, newcomers, options.population)) {
    for (const Contender& one : niche) {
      const bool is_old = one.number < old.size();
      const Individuals& from = is_old ? old : newcomers;
      const std::size_t number = is_old ? one.number : one.number - old.size();
      survivors.add(from.trees[number], from.traits[number]);
    }
  }
  std::swap(island.population, survivors);
}

void survive(Island& island, const Individuals& offspring, const IslandOptions& options) {
  settle(island, offspring, options);
  ++island.generation;
  if (comesForward(island)) island.improved = island.generation;
  if (island.generation - island.improved < options.patience) return;
  island.population.clear();
  island.records.clear();
  island.born = island.generation;
  island.improved = island.generation;
}

std::vector<std::size_t> worthFitting(const Island& island, const Individuals& offspring, const IslandOptions& options,
                                      std::size_t most) {
  const std::size_t old = island.population.size();
  std::vector<std::tuple<std::size_t, double, std::size_t>> ranked;  // rank, loss, number
  for (const std::vector<Contender>& niche : select(island.population, offspring, options.population * 3 / 2)) {
    for (std::size_t rank = 0; rank < niche.size(); ++rank) {
      const auto& [loss, complexity, number] = niche[rank];
      if (number >= old && constantsIn(offspring.trees[number - old]) > 0)
        ranked.emplace_back(rank, loss, number - old);
    }
  }
  std::ranges::sort(ranked);
  ranked.resize(std::min(ranked.size(), most));
  std::vector<std::size_t> chosen;
  for (const auto& [rank, loss, number] : ranked) chosen.push_back(number);
  return chosen;
}

}  // namespace srjit::search
