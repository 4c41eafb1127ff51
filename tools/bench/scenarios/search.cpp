// The generations of a search, step by step: what each step costs per tree.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/work.h"
#include "tools/search/closing.h"
#include "tools/search/setup.h"

namespace srjit {
namespace {

using search::Brood;
using search::Island;

constexpr std::size_t kIslands = 16, kPolished = 12;  // those of a search by default
constexpr std::size_t kGenerations = 8;               // between two polishings

/// Islands whose steps follow one another. A search does the same with several groups of islands at once.
class Steps {
 public:
  Steps(const Bench& bench, const BenchData& data) {
    options_.engine = bench.options(Math::kPrecise);
    options_.links = {"identity"};
    const DataView view = data.view();
    setup_.emplace(search::setUp(view, options_, 0, std::stop_token()));
    const DataView searched = setup_->searched.view();
    polisher_.emplace(search::Polisher::create(setup_->wide, {searched, setup_->fitted}, setup_->frames,
                                               {setup_->grammar, setup_->loss, setup_->is_scaled}));
    islands_.resize(kIslands);
    broods_.resize(kIslands);
    for (std::size_t i = 0; i < kIslands; ++i) islands_[i].number = i;
  }

  void run() {
    for (std::size_t generation = 0; generation < kGenerations; ++generation) {
      breedAll();
      evaluate();
      time("fits", [&] { fit(); });
      time("survival",
           [&] { forEachIsland([&](Island& on, Brood& of) { survive(on, of.children, options_.island); }); });
    }
    time("polishing", [&] { polish(); });
  }

  /// Seconds of each step, in order, of this number of trees.
  const std::vector<std::pair<std::string, double>>& seconds() const { return seconds_; }
  std::size_t trees() const { return count_; }

 private:
  template <class Body>
  void forEachIsland(const Body& body) {
    for (std::size_t i = 0; i < kIslands; ++i) body(islands_[i], broods_[i]);
  }

  template <class Body>
  void time(const std::string& step, const Body& body) {
    const Stopwatch watch;
    body();
    const auto place = std::ranges::find(seconds_, step, &std::pair<std::string, double>::first);
    if (place == seconds_.end()) {
      seconds_.emplace_back(step, watch.seconds());
    } else {
      place->second += watch.seconds();
    }
  }

  void breedAll() {
    time("breeding", [&] {
      forEachIsland(
          [&](const Island& on, Brood& of) { breed(on, setup_->grammars[0], options_.island, options_.seed, of); });
    });
    std::uint64_t sum = 0;  // so that it is computed
    time("identity, a part of breeding", [&] {
      forEachIsland([&](const Island&, const Brood& of) {
        for (std::size_t i = 0; i < of.children.size(); ++i) sum += identityOf(of.children.trees[i]).whole;
      });
    });
    if (sum == 0) failBench(Errc::kMachine, "identities are all 0");
    trees_.clear();
    forEachIsland([&](const Island&, const Brood& of) { trees_.append(of.children.trees); });
    count_ += trees_.size();
  }

  void evaluate() {
    std::optional<Pending<Losses>> pending;
    time("programs", [&] { pending = setup_->screen.submitLoss(trees_, 0); });
    std::vector<double> losses;
    time("evaluation", [&] { losses = must((*std::move(pending)).result()).values; });
    auto loss = losses.begin();
    forEachIsland([&](const Island&, Brood& of) {
      for (search::Traits& child : of.children.traits) {
        child.loss = std::isnan(*loss) ? std::numeric_limits<double>::infinity() : *loss;
        ++loss;
      }
    });
  }

  void fit() {
    search::FitBatch batch;
    forEachIsland([&](const Island& on, const Brood& of) {
      const auto most = static_cast<std::size_t>(options_.fit_share * static_cast<double>(of.children.size()));
      for (const std::size_t number : worthFitting(on, of.children, options_.island, most)) {
        batch.add(of.children.trees[number], search::Exponents::kFitted);
      }
    });
    must(setup_->screen.submitFit(batch, 0, options_.fit_iterations).result());
  }

  void polish() {
    std::vector<std::vector<search::Archived>> archives(1);
    for (const Island& island : islands_) archive(archives[0], island.population, setup_->gain);
    const std::vector<search::Candidate> candidates = search::unpolished(archives, setup_->gain);
    search::Front front;
    polishCandidates(std::span(candidates).first(std::min(candidates.size(), kPolished)), *polisher_, front);
  }

  search::SearchOptions options_;
  std::optional<search::SearchSetup> setup_;
  std::optional<search::Polisher> polisher_;
  std::vector<Island> islands_;
  std::vector<Brood> broods_;
  search::Trees trees_;
  std::size_t count_ = 0;
  std::vector<std::pair<std::string, double>> seconds_;
};

}  // namespace

void benchSearch(const Bench& bench) {
  for (const std::size_t rows : {100, 1000, 10000}) {
    const std::string piece = std::to_string(rows) + " rows";
    if (!bench.mayBegin(piece)) continue;
    const BenchData data = formulaData(rows);
    Steps(bench, data).run();  // makes kernels
    Steps steps(bench, data);
    steps.run();
    const Subject subject{"generations of 16 islands, " + piece, {{"rows", rows}}};
    for (const auto& [step, seconds] : steps.seconds()) {
      bench.add(subject, step.c_str(), "ns/tree", {seconds / static_cast<double>(steps.trees())});
    }
    if (bench.quick) break;
  }
}

}  // namespace srjit
