#include "tools/search/island.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

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
    const std::size_t most = std::min(kFirstComplexity, grammar.options().max_complexity);
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
    child.individual.tree = makeChild(island, grammar, random);
    if (!grammar.admits(child.individual.tree)) continue;
    const Canonical form = canonicalOf(child.individual.tree);
    child.individual.shape = form.shape;
    child.individual.whole = form.whole;
    child.is_good = !form.is_constant;
  }
  child.individual.complexity = grammar.complexityOf(child.individual.tree);
  return child;
}

/// Whether `a` is to be kept before `b`, within a niche or of one shape.
bool isBetter(const Individual& a, const Individual& b) {
  if (a.loss != b.loss) return a.loss < b.loss;
  return a.complexity < b.complexity;
}

/// Numbers of the individuals: first the best of each complexity, then the second best of each, and so on, those of one
/// rank by loss. Of equal shapes only the best one is there, and no loss that is not finite.
std::vector<std::size_t> byNicheRank(std::span<const Individual* const> individuals) {
  struct Ranked {
    std::size_t number, rank;
  };
  struct Niche {
    std::size_t taken = 0;
    double last_loss = -std::numeric_limits<double>::infinity();
  };
  std::vector<std::size_t> order(individuals.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return isBetter(*individuals[a], *individuals[b]); });
  std::unordered_set<std::uint64_t> shapes;
  std::unordered_map<std::size_t, Niche> niches;  // by complexity
  std::vector<Ranked> ranked;
  for (const std::size_t number : order) {
    const Individual& one = *individuals[number];
    if (!std::isfinite(one.loss) || !shapes.insert(one.shape).second) continue;
    Niche& niche = niches[one.complexity];
    // The same values by another formula, which no rule knows to be the same.
    if (niche.taken > 0 && one.loss <= niche.last_loss * (1 + kSameLoss)) continue;
    niche.last_loss = one.loss;
    ranked.push_back({number, niche.taken++});
  }
  std::ranges::stable_sort(ranked, {}, &Ranked::rank);
  order.clear();
  for (const Ranked& one : ranked) order.push_back(one.number);
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
  std::unordered_set<std::uint64_t> seen;
  for (const Individual& individual : island.population) seen.insert(individual.whole);
  std::vector<Individual> offspring;
  for (Child& child : children) {
    if (child.is_good && seen.insert(child.individual.whole).second) offspring.push_back(std::move(child.individual));
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
