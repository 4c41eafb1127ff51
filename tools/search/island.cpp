#include "tools/search/island.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>

#include <llvm/ADT/DenseSet.h>

#include "ir/mix.h"

namespace srjit::search {
namespace {

constexpr int kAttempts = 4;             // to make a child that the grammar admits
constexpr double kCrossover = 0.4;       // of the children
constexpr double kSecondMutation = 0.3;  // of those that are mutated
constexpr double kUniformParent = 0.4;   // parents that are drawn from all; others win a tournament
constexpr std::size_t kTournament = 4;
constexpr double kFreshBlood = 0.02;          // random trees among the children
constexpr std::size_t kFirstComplexity = 12;  // the most that the first trees are grown to
constexpr double kProgress = 0.01;            // of a record, that a loss must be below it
constexpr double kRoundingLoss = 1e-16;       // below it is rounding
constexpr double kSameLoss = 1e-7;            // share of a loss within which another one is of the same values

const Individual& chooseParent(const Island& island, Random& random) {
  const auto one = [&]() -> const Individual& { return island.population[random.below(island.population.size())]; };
  const Individual* best = &one();
  if (random.chance(kUniformParent)) return *best;
  for (std::size_t i = 1; i < kTournament; ++i) {
    const Individual& other = one();
    if (other.loss < best->loss) best = &other;
  }
  return *best;
}

Tree makeChild(const Island& island, const Grammar& grammar, Random& random) {
  if (island.population.empty() || random.chance(kFreshBlood)) {
    const std::size_t most = std::min(kFirstComplexity, grammar.room());
    return randomTree(grammar, 1 + random.below(most), random);
  }
  const Individual& mother = chooseParent(island, random);
  Tree child;
  if (random.chance(kCrossover)) {
    child = crossover(mother.tree, chooseParent(island, random).tree, random);
    if (!random.chance(kSecondMutation)) return child;
  } else {
    child = mother.tree;
    if (random.chance(kSecondMutation)) mutate(child, grammar, random);
  }
  mutate(child, grammar, random);
  return child;
}

struct Child {
  Individual individual;
  bool is_good = false;
};

Child breedOne(const Island& island, const Grammar& grammar, Random random) {
  Child child;
  for (int attempt = 0; attempt < kAttempts && !child.is_good; ++attempt) {
    const Tree tree = makeChild(island, grammar, random);
    if (!grammar.admits(tree)) continue;
    const Canonical form = canonicalOf(tree);
    if (form.is_constant) continue;
    // Copied, so that it takes no more memory than it needs.
    child = {{.tree = Tree(tree), .complexity = grammar.complexityOf(tree), .shape = form.shape, .whole = form.whole},
             true};
  }
  return child;
}

/// Numbers that were seen. One that is a hash of 64 bits may be taken for another by chance.
class Seen {
 public:
  explicit Seen(std::size_t most) { seen_.reserve(most); }
  /// Whether it is the first time.
  bool add(std::uint64_t hash) { return seen_.insert(std::min(hash, kLargest)).second; }

 private:
  static constexpr std::uint64_t kLargest = UINT64_MAX - 2;  // the set has a use for larger ones

  llvm::DenseSet<std::uint64_t> seen_;
};

/// What selection goes by.
struct Contender {
  double loss;
  std::uint32_t complexity, number;

  /// Whether it is to be kept before another, within a niche or of one shape.
  friend bool operator<(const Contender& a, const Contender& b) {
    return std::tie(a.loss, a.complexity, a.number) < std::tie(b.loss, b.complexity, b.number);
  }
};

/// Numbers of the individuals: first the best of each complexity, then the second best of each, and so on, those of one
/// rank by loss. Of equal shapes only the best one is there, and no loss that is not finite.
std::vector<std::size_t> byNicheRank(std::span<const Individual* const> individuals) {
  struct Niche {
    std::uint32_t taken = 0;
    double last_loss = -std::numeric_limits<double>::infinity();
  };
  std::vector<Contender> contenders;
  contenders.reserve(individuals.size());
  std::size_t most = 0;
  for (std::size_t i = 0; i < individuals.size(); ++i) {
    const Individual& one = *individuals[i];
    most = std::max(most, one.complexity);
    if (!std::isfinite(one.loss)) continue;
    contenders.push_back({one.loss, static_cast<std::uint32_t>(one.complexity), static_cast<std::uint32_t>(i)});
  }
  std::ranges::sort(contenders, std::less());
  Seen shapes(contenders.size());
  std::vector<Niche> niches(most + 1);
  std::vector<std::vector<std::size_t>> ranks;
  for (const Contender& one : contenders) {
    if (!shapes.add(individuals[one.number]->shape)) continue;
    Niche& niche = niches[one.complexity];
    // The same values by another formula, which no rule knows to be the same.
    if (niche.taken > 0 && one.loss <= niche.last_loss * (1 + kSameLoss)) continue;
    niche.last_loss = one.loss;
    if (niche.taken == ranks.size()) ranks.emplace_back();
    ranks[niche.taken++].push_back(one.number);
  }
  std::vector<std::size_t> order;
  for (const std::vector<std::size_t>& rank : ranks) order.insert(order.end(), rank.begin(), rank.end());
  return order;
}

/// Takes the least losses up to each complexity to the records of the island. Gives whether one of them fell by more
/// than rounding and a hundredth.
bool comesForward(Island& island) {
  bool is_better = false;
  double least = std::numeric_limits<double>::infinity();
  for (const Individual& individual : island.population) {
    least = std::min(least, individual.loss);
    if (island.records.size() <= individual.complexity) {
      island.records.resize(individual.complexity + 1, std::numeric_limits<double>::infinity());
    }
    double& record = island.records[individual.complexity];
    if (std::isfinite(record) && !(least < record - std::max(kProgress * std::fabs(record), kRoundingLoss))) continue;
    record = least;
    is_better = true;
  }
  return is_better;
}

/// The population, and behind it the offspring.
std::vector<const Individual*> pointersTo(std::span<const Individual> population,
                                          std::span<const Individual> offspring) {
  std::vector<const Individual*> all;
  for (const Individual& individual : population) all.push_back(&individual);
  for (const Individual& individual : offspring) all.push_back(&individual);
  return all;
}

}  // namespace

std::vector<Individual> breed(const Island& island, const Grammar& grammar, const IslandOptions& options,
                              std::uint64_t seed) {
  std::vector<Child> children(options.offspring);
  const std::uint64_t base = combine(combine(seed, island.number), island.generation);
  tbb::parallel_for(tbb::blocked_range<std::size_t>(0, children.size(), 16), [&](const auto& range) {
    for (std::size_t c = range.begin(); c < range.end(); ++c) {
      children[c] = breedOne(island, grammar, Random(combine(base, c)));
    }
  });
  Seen seen(island.population.size() + children.size());
  for (const Individual& individual : island.population) seen.add(individual.whole);
  std::vector<Individual> offspring;
  offspring.reserve(children.size());
  for (Child& child : children) {
    if (child.is_good && seen.add(child.individual.whole)) offspring.push_back(std::move(child.individual));
  }
  return offspring;
}

void survive(Island& island, std::vector<Individual> offspring, const IslandOptions& options) {
  std::vector<std::size_t> order = byNicheRank(pointersTo(island.population, offspring));
  order.resize(std::min(order.size(), options.population));
  std::vector<Individual> survivors;
  for (const std::size_t i : order) {
    const std::size_t old = island.population.size();
    survivors.push_back(std::move(i < old ? island.population[i] : offspring[i - old]));
  }
  std::ranges::stable_sort(survivors, {}, &Individual::complexity);
  island.population = std::move(survivors);
  ++island.generation;
  if (comesForward(island)) island.improved = island.generation;
  if (island.generation - island.improved < options.patience) return;
  island.population.clear();
  island.records.clear();
  island.born = island.generation;
  island.improved = island.generation;
}

std::vector<std::size_t> worthFitting(const Island& island, std::span<const Individual> offspring,
                                      const IslandOptions& options, std::size_t most) {
  const std::vector<const Individual*> all = pointersTo(island.population, offspring);
  std::vector<std::size_t> order = byNicheRank(all);
  order.resize(std::min(order.size(), options.population * 3 / 2));
  std::vector<std::size_t> chosen;
  for (const std::size_t i : order) {
    if (chosen.size() >= most) break;
    if (i < island.population.size()) continue;
    if (constantsIn(all[i]->tree) > 0) chosen.push_back(i - island.population.size());
  }
  return chosen;
}

}  // namespace srjit::search
