#include "tools/search/group.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stop_token>
#include <utility>

#include "ir/mix.h"
#include "ir/numbers/random.h"
#include "runtime/platform/deadline.h"
#include "tools/search/closing.h"

namespace srjit::search {
namespace {

constexpr std::size_t kBatchIslands = 4;  // at most: large batches for the device, several for the host's threads
constexpr double kMigration = 0.25;       // islands that a tree comes to, in a generation
constexpr std::uint64_t kAloneFor = 15;   // generations, so that a new population is not that of another island
constexpr std::uint64_t kMigrationSeed = 0x6d69;

}  // namespace

Group::Group(const GroupContext& context, std::vector<Island>& all, std::span<const std::size_t> numbers)
    : context_(&context), islands_(&all) {
  for (const std::size_t number : numbers) {
    const std::size_t frame = all[number].frame;
    const auto open = std::ranges::find_if(
        batches_, [&](const Batch& batch) { return batch.frame == frame && batch.islands.size() < kBatchIslands; });
    if (open != batches_.end()) {
      open->islands.push_back(number);
    } else {
      batches_.push_back({.frame = frame, .islands = {number}});
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
  batch.broods.resize(batch.islands.size());
  // Only loops of breeding are cancelled, never those of an engine. An isolated context does not take the state of the
  // context around it when it is first used, so it may be cancelled before.
  tbb::task_group_context breeding(tbb::task_group_context::isolated);
  const std::stop_callback cancel(context_->ended, [&] { breeding.cancel_group_execution(); });
  tbb::parallel_for(
      std::size_t{0}, batch.islands.size(),
      [&](std::size_t i) {
        breed((*islands_)[batch.islands[i]], context_->grammars[batch.frame], context_->island, context_->seed,
              batch.broods[i], &context_->backsolvers[batch.frame]);
      },
      breeding);
  if (context_->ended.stop_requested()) throwError(stoppedByCaller());
  batch.trees.clear();
  for (const Brood& brood : batch.broods) batch.trees.append(brood.children.trees);
  if (batch.trees.size() > 0) batch.losses = context_->screen.submitLoss(batch.trees, batch.frame);
}

void Group::fit() {
  // One after the other, since threads that wait here would be missed where the losses are computed.
  for (Batch& batch : batches_) {
    if (!batch.losses) continue;
    const Losses losses = (*std::exchange(batch.losses, std::nullopt)).result().value();
    auto loss = losses.values.begin();
    for (Brood& brood : batch.broods) {
      for (Traits& child : brood.children.traits) child.loss = usable(*loss++);
    }
    batch.has_losses = true;
  }
  forEach([&](Batch& batch) { submitFits(batch); });
}

void Group::submitFits(Batch& batch) const {
  batch.fitted.clear();
  std::vector<std::vector<std::size_t>> chosen(batch.islands.size());
  tbb::parallel_for(std::size_t{0}, batch.islands.size(), [&](std::size_t i) {
    Individuals& children = batch.broods[i].children;
    for (std::size_t c = 0; c < children.size(); ++c) {
      double& loss = children.traits[c].loss;
      loss = context_->handicaps[batch.frame].of(loss, children.trees[c], context_->grammars[batch.frame]);
    }
    const auto most = static_cast<std::size_t>(context_->fit_share * static_cast<double>(children.size()));
    if (most > 0) chosen[i] = worthFitting((*islands_)[batch.islands[i]], children, context_->island, most);
  });
  FitBatch fits;
  for (std::size_t i = 0; i < batch.islands.size(); ++i) {
    for (const std::size_t number : chosen[i]) {
      const TreeView tree = batch.broods[i].children.trees[number];
      for (const Exponents exponents : waysToFit(tree)) {
        if (constantsIn(tree, exponents) == 0) continue;
        fits.add(tree, exponents, context_->grammars[batch.frame].form());
        batch.fitted.push_back({i, number, exponents});
      }
    }
  }
  if (!batch.fitted.empty()) batch.fits = context_->screen.submitFit(fits, batch.frame, context_->fit_iterations);
}

void Group::end() {
  for (Batch& batch : batches_) {
    candidates_ += batch.trees.size();
    if (!batch.fits) continue;
    takeFits(batch, (*std::exchange(batch.fits, std::nullopt)).result().value());
    fits_ += batch.fitted.size();
  }
  // Before any island changes, since trees come from others.
  for (Batch& batch : batches_) {
    for (std::size_t i = 0; i < batch.islands.size(); ++i) {
      immigrate((*islands_)[batch.islands[i]], batch.broods[i].children);
    }
  }
  forEach([&](Batch& batch) {
    batch.has_losses = false;
    tbb::parallel_for(std::size_t{0}, batch.islands.size(), [&](std::size_t i) {
      survive((*islands_)[batch.islands[i]], batch.broods[i].children, context_->island);
    });
  });
}

void Group::archiveOffspring(std::vector<std::vector<Archived>>& archives, double gain) const {
  for (const Batch& batch : batches_) {
    if (!batch.has_losses) continue;
    for (const Brood& brood : batch.broods) archive(archives[batch.frame], brood.children, gain);
  }
}

void Group::takeFits(Batch& batch, const Fits& fits) const {
  const Grammar& grammar = context_->grammars[batch.frame];
  auto value = fits.parameters.begin();
  for (std::size_t i = 0; i < batch.fitted.size(); ++i) {
    // That of kept whole exponents comes first, and leaves them whole.
    const auto [island, number, exponents] = batch.fitted[i];
    Individuals& children = batch.broods[island].children;
    const TreeView child = children.trees[number];
    const auto values = std::span(value, constantsIn(child, exponents));
    value += static_cast<std::ptrdiff_t>(values.size());
    double loss = usable(fits.losses.values[i]);
    const bool is_finite = std::ranges::all_of(values, [](double one) { return std::isfinite(one); });
    Traits& traits = children.traits[number];
    if (!is_finite || !(loss < traits.loss)) continue;
    const std::span<double> constants = children.trees.constantsOf(number);
    const std::vector<double> before(constants.begin(), constants.end());
    auto next = values.begin();
    forEachConstant(child, exponents, [&](std::size_t token) { constants[token] = *next++; });
    if (grammar.form() != nullptr) grammar.form()->clamp(child.codes, constants);  // f32 rounds
    const Identity now = identityOf(child);
    // Exponents that were fitted may break units.
    loss = context_->handicaps[batch.frame].of(loss, child, grammar);
    if (now.is_constant || !(loss < traits.loss) || (grammar.isStrict() && !grammar.admit(child))) {
      std::ranges::copy(before, constants.begin());
      continue;
    }
    traits.shape = now.shape;
    traits.whole = now.whole;
    traits.loss = loss;
  }
}

void Group::immigrate(const Island& island, Individuals& offspring) const {
  Random random(combine(combine(combine(context_->seed, island.number), island.generation), kMigrationSeed));
  if (island.generation < island.born + kAloneFor || !random.chance(kMigration)) return;
  std::vector<const Island*> others;
  for (const Island& other : *islands_) {
    if (other.number != island.number && other.frame == island.frame && other.population.size() > 0)
      others.push_back(&other);
  }
  if (others.empty()) return;
  const Individuals& from = others[random.below(others.size())]->population;
  const std::size_t number = random.below(from.size());
  offspring.add(from.trees[number], from.traits[number]);
}

}  // namespace srjit::search
