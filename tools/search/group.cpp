#include "tools/search/group.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ir/mix.h"

namespace srjit::search {
namespace {

constexpr double kMigration = 0.25;      // islands that a tree comes to, in a generation
constexpr std::uint64_t kAloneFor = 15;  // generations, so that a new population is not that of another island
constexpr std::uint64_t kMigrationSeed = 0x6d69;

double usable(double loss) { return std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss; }

}  // namespace

std::vector<std::vector<Group::Place>> Group::byLink(std::span<const std::vector<std::size_t>> children) const {
  std::vector<std::vector<Place>> places;
  for (std::size_t m = 0; m < numbers_.size(); ++m) {
    const std::size_t link = (*islands_)[numbers_[m]].link;
    if (places.size() <= link) places.resize(link + 1);
    for (const std::size_t child : children[m]) places[link].push_back({m, child});
  }
  return places;
}

Status Group::begin() {
  offspring_.resize(numbers_.size());
  tbb::parallel_for(std::size_t{0}, numbers_.size(), [&](std::size_t m) {
    offspring_[m] = breed((*islands_)[numbers_[m]], context_->grammar, context_->island, context_->seed);
  });
  std::vector<std::vector<std::size_t>> all(numbers_.size());
  for (std::size_t m = 0; m < numbers_.size(); ++m) {
    all[m].resize(offspring_[m].size());
    std::iota(all[m].begin(), all[m].end(), std::size_t{0});
  }
  std::vector<std::vector<Place>> places = byLink(all);
  for (std::size_t link = 0; link < places.size(); ++link) {
    if (places[link].empty()) continue;
    TokenBatch batch;
    for (const Place& place : places[link]) batch.add(offspring_[place.member][place.child].tree);
    Result<Pending<Losses>> pending = context_->screen.submitLoss(batch, link);
    if (!pending) return pending.error();
    losses_.push_back({std::move(places[link]), *std::move(pending)});
  }
  return okStatus();
}

Status Group::fit() {
  for (Flight<Losses>& flight : losses_) {
    const Result<Losses> losses = std::move(flight.pending).result();
    if (!losses) return losses.error();
    for (std::size_t i = 0; i < flight.places.size(); ++i) {
      const Place& place = flight.places[i];
      offspring_[place.member][place.child].loss = usable(losses->values[i]);
    }
    candidates_ += flight.places.size();
  }
  losses_.clear();
  std::vector<std::vector<std::size_t>> chosen(numbers_.size());
  tbb::parallel_for(std::size_t{0}, numbers_.size(), [&](std::size_t m) {
    const auto most = static_cast<std::size_t>(context_->fit_share * static_cast<double>(offspring_[m].size()));
    chosen[m] = worthFitting((*islands_)[numbers_[m]], offspring_[m], context_->island, most);
  });
  std::vector<std::vector<Place>> places = byLink(chosen);
  for (std::size_t link = 0; link < places.size(); ++link) {
    if (places[link].empty()) continue;
    FitBatch batch;
    std::vector<double> values;
    for (const Place& place : places[link]) {
      batch.trees.add(withoutConstants(offspring_[place.member][place.child].tree, values));
      batch.starts.insert(batch.starts.end(), values.begin(), values.end());
    }
    Result<Pending<Fits>> pending = context_->screen.submitFit(batch, link, context_->fit_iterations);
    if (!pending) return pending.error();
    fits_in_flight_.push_back({std::move(places[link]), *std::move(pending)});
  }
  return okStatus();
}

Status Group::end() {
  for (Flight<Fits>& flight : fits_in_flight_) {
    const Result<Fits> fits = std::move(flight.pending).result();
    if (!fits) return fits.error();
    std::size_t at = 0;
    for (std::size_t i = 0; i < flight.places.size(); ++i) {
      Individual& child = offspring_[flight.places[i].member][flight.places[i].child];
      const std::span<const double> values = std::span(fits->parameters).subspan(at, constantsIn(child.tree));
      at += values.size();
      const double loss = usable(fits->losses.values[i]);
      if (!(loss < child.loss) || !std::ranges::all_of(values, [](double value) { return std::isfinite(value); }))
        continue;
      std::size_t next = 0;
      for (Token& token : child.tree) {
        if (token.kind == Token::Kind::kConstant) token.value = values[next++];
      }
      child.loss = loss;
      child.is_fitted = true;
    }
    fits_ += flight.places.size();
  }
  fits_in_flight_.clear();
  for (std::size_t m = 0; m < numbers_.size(); ++m) immigrate((*islands_)[numbers_[m]], offspring_[m]);
  tbb::parallel_for(std::size_t{0}, numbers_.size(), [&](std::size_t m) {
    survive((*islands_)[numbers_[m]], std::move(offspring_[m]), context_->island);
  });
  return okStatus();
}

void Group::immigrate(Island& island, std::vector<Individual>& offspring) const {
  Random random(combine(combine(combine(context_->seed, island.number), island.generation), kMigrationSeed));
  if (island.generation < island.born + kAloneFor || !random.chance(kMigration)) return;
  std::vector<const Island*> others;
  for (const Island& other : *islands_) {
    if (other.number != island.number && other.link == island.link && !other.population.empty())
      others.push_back(&other);
  }
  if (others.empty()) return;
  const std::vector<Individual>& from = others[random.below(others.size())]->population;
  offspring.push_back(from[random.below(from.size())]);
}

}  // namespace srjit::search
