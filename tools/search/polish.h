// From trees that look good on some rows to formulas: constants fitted in f64, rounded where that does no harm, and
// simplified.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "runtime/engine.h"
#include "tools/search/front.h"
#include "tools/search/link.h"
#include "tools/search/rows.h"
#include "tools/search/tree.h"

namespace srjit::search {

/// A tree that an island found, and the link it was found for.
struct Finalist {
  Tree tree;
  std::size_t link = 0;
};

/// The rows of a Polisher. Borrowed for the time of its life.
struct PolishedData {
  const DataView& searched;  ///< all rows that are searched
  const RowSet& fitted;      ///< those of them that constants are fitted to
  const RowSet* held_out = nullptr;
};

/// Makes formulas of finalists. Not thread-safe.
class Polisher {
 public:
  /// `engine` must be of Precision::kF64. `loss` is a loss that fits minimise. Errors: those of Engine::upload().
  static Result<Polisher> create(const Engine& engine, const PolishedData& data, std::span<const Link* const> links,
                                 const Grammar& grammar, const LossOptions& loss);

  /// The same, whose calls end with an error of kLimit when `stop` is requested. Errors: those of Engine::withLimits().
  Result<Polisher> withStop(std::stop_token stop) const;

  /// Adds the best constant to `front`, which all other formulas must beat. Errors: those of Engine::fit().
  Status addConstant(Front& front) const;

  /// Adds to `front` the formulas that the finalists become, if they belong there: for losses of squares g^-1(b f) and
  /// g^-1(a + b f), else f; with the constants fitted in f64, and simplified. A finalist that cannot be fitted is left
  /// out. Errors: those of Engine::fit() as a whole.
  Status polish(std::span<const Finalist> finalists, Front& front) const;

  /// The formulas of `front` with fewer and rounder constants. One constant after another becomes 0, 1, or a simple
  /// number near it by its standard error (rounding.h), and the rest is fitted again, as long as the loss grows by a
  /// hundredth at most, or stays within the floor of the front. Errors likewise.
  Result<Front> round(const Front& front) const;

 private:
  struct Variant;

  Polisher(const Engine& engine, std::span<const Link* const> links, const Grammar& grammar, const LossOptions& loss)
      : engine_(engine), links_(links.begin(), links.end()), grammar_(&grammar), loss_(loss) {}
  Result<std::vector<Variant>> variantsOf(std::span<const Finalist> finalists) const;
  Result<Formula> formulaOf(const Variant& variant) const;
  std::pair<std::size_t, std::size_t> costOf(const Variant& variant) const;
  std::vector<Variant> rounderThan(const Variant& variant, double exact) const;
  Status fit(std::vector<Variant>& variants, unsigned passes) const;
  Status addTo(Front& front, std::span<const Variant> variants) const;

  Engine engine_;
  std::vector<const Link*> links_;
  const Grammar* grammar_;
  LossOptions loss_;
  std::optional<Dataset> searched_, fitted_, held_out_;
  const RowSet* fitted_rows_ = nullptr;
};

}  // namespace srjit::search
