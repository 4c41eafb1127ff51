#include "tools/search/group.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stop_token>
#include <utility>

#include "ir/mix.h"
#include "runtime/platform/deadline.h"
#include "tools/search/closing.h"

namespace srjit::search {
namespace {

constexpr std::size_t kBatchIslands = 4;  // at most: large batches for the device, several for the host's threads
constexpr double kMigration = 0.25;       // islands that a tree comes to, in a generation
constexpr std::uint64_t kAloneFor = 15;   // generations, so that a new population is not that of another island
constexpr std::uint64_t kMigrationSeed = 0x6d69;

double usable(double loss) { return std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss; }

}  // namespace

Group::Group(const GroupContext& context, std::vector<Island>& all, std::span<const std::size_t> numbers)
    : context_(&context), islands_(&all) {
  for (const std::size_t number : numbers) {
    const std::size_t link = all[number].link;
    const auto open = std::ranges::find_if(
        batches_, [&](const Batch& batch) { return batch.link == link && batch.islands.size() < kBatchIslands; });
    if (open != batches_.end()) {
      open->islands.push_back(number);
    } else {
      batches_.push_back({.link = link, .islands = {number}});
    }
  }
}

template <class Step>
void Group::forEach(const Step& step) {
  tbb::parallel_for(std::size_t{0}, batches_.size(), [&](std::size_t b) { step(batches_[b]); });
}

void Group::begin() {
  forEach([&](Batch& batch) { begin(batch); });
}

void Group::begin(Batch& batch) const {
  batch.offspring.resize(batch.islands.size());
  // Only loops of breeding are cancelled, never those of an engine. An isolated context does not take the state of the
  // context around it when it is first used, so it may be cancelled before.
  tbb::task_group_context breeding(tbb::task_group_context::isolated);
  const std::stop_callback cancel(context_->ended, [&] { breeding.cancel_group_execution(); });
  tbb::parallel_for(
      std::size_t{0}, batch.islands.size(),
      [&](std::size_t i) {
        batch.offspring[i] =
            breed((*islands_)[batch.islands[i]], context_->grammars[batch.link], context_->island, context_->seed);
      },
      breeding);
  if (context_->ended.stop_requested()) throwError(stoppedByCaller());
  batch.trees.clear();
  for (const std::vector<Individual>& children : batch.offspring) {
    for (const Individual& child : children) batch.trees.push_back(child.tree);
  }
  if (batch.trees.empty()) return;
  batch.tokens.set(batch.trees);
  batch.losses = context_->screen.submitLoss(batch.tokens, batch.link);
}

void Group::fit() {
  // One after the other, since threads that wait here would be missed where the losses are computed.
  for (Batch& batch : batches_) {
    if (!batch.losses) continue;
    const Losses losses = (*std::exchange(batch.losses, std::nullopt)).result().value();
    auto loss = losses.values.begin();
    for (std::vector<Individual>& children : batch.offspring) {
      for (Individual& child : children) child.loss = usable(*loss++);
    }
    batch.has_losses = true;
    candidates_ += losses.values.size();
  }
  forEach([&](Batch& batch) { submitFits(batch); });
}

void Group::submitFits(Batch& batch) const {
  batch.fitted.clear();
  std::vector<std::vector<std::size_t>> chosen(batch.islands.size());
  tbb::parallel_for(std::size_t{0}, batch.islands.size(), [&](std::size_t i) {
    const std::vector<Individual>& children = batch.offspring[i];
    const auto most = static_cast<std::size_t>(context_->fit_share * static_cast<double>(children.size()));
    chosen[i] = worthFitting((*islands_)[batch.islands[i]], children, context_->island, most);
  });
  FitBatch trees;
  std::vector<double> values;
  for (std::size_t i = 0; i < batch.islands.size(); ++i) {
    for (const std::size_t number : chosen[i]) {
      Individual& child = batch.offspring[i][number];
      for (const Exponents exponents : waysToFit(child.tree)) {
        if (constantsIn(child.tree, exponents) == 0) continue;
        trees.trees.add(withoutConstants(child.tree, values, exponents));
        trees.starts.insert(trees.starts.end(), values.begin(), values.end());
        batch.fitted.push_back({&child, exponents});
      }
    }
  }
  if (!batch.fitted.empty()) batch.fits = context_->screen.submitFit(trees, batch.link, context_->fit_iterations);
}

void Group::end() {
  for (Batch& batch : batches_) {
    if (!batch.fits) continue;
    takeFits(batch, (*std::exchange(batch.fits, std::nullopt)).result().value());
    fits_ += batch.fitted.size();
  }
  // Before any island changes, since trees come from others.
  for (Batch& batch : batches_) {
    for (std::size_t i = 0; i < batch.islands.size(); ++i) {
      immigrate((*islands_)[batch.islands[i]], batch.offspring[i]);
    }
  }
  forEach([&](Batch& batch) {
    batch.has_losses = false;
    tbb::parallel_for(std::size_t{0}, batch.islands.size(), [&](std::size_t i) {
      survive((*islands_)[batch.islands[i]], std::move(batch.offspring[i]), context_->island);
    });
  });
}

void Group::archiveOffspring(std::vector<std::vector<Archived>>& archives) const {
  for (const Batch& batch : batches_) {
    if (!batch.has_losses) continue;
    for (const std::vector<Individual>& children : batch.offspring) archive(archives[batch.link], children);
  }
}

void Group::takeFits(Batch& batch, const Fits& fits) const {
  std::size_t at = 0;
  for (std::size_t i = 0; i < batch.fitted.size(); ++i) {
    // That of kept whole exponents comes first, and leaves them whole.
    const auto [fitted, exponents] = batch.fitted[i];
    Individual& child = *fitted;
    const std::span<const double> values = std::span(fits.parameters).subspan(at, constantsIn(child.tree, exponents));
    at += values.size();
    const double loss = usable(fits.losses.values[i]);
    const bool is_finite = std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
    if (!is_finite || !(loss < child.loss)) continue;
    setConstants(child.tree, values, exponents);
    child.whole = canonicalOf(child.tree).whole;
    child.loss = loss;
  }
}

void Group::immigrate(const Island& island, std::vector<Individual>& offspring) const {
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
