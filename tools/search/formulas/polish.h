// From trees that look good on some rows to formulas: constants fitted in f64, rounded where that does no harm, and
// simplified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "passes/shorten/forms.h"
#include "runtime/engine.h"
#include "tools/search/formulas/front.h"
#include "tools/search/formulas/neighbourhood.h"
#include "tools/search/formulas/units.h"
#include "tools/search/formulas/variant.h"
#include "tools/search/rows.h"

namespace srjit::search {

/// A tree that an island found, and the frame it was found in.
struct Finalist {
  Expression tree;
  std::size_t frame = 0;
};

/// The rows of a Polisher. Borrowed for the time of its life.
struct PolishedData {
  const DataView& searched;  ///< all rows that are searched
  const RowSet& fitted;      ///< those of them that constants are fitted to
  const RowSet* held_out = nullptr;
};

/// How a Polisher judges. Borrowed for the time of its life.
struct PolishRules {
  const Grammar& grammar;
  LossOptions loss;        ///< one that fits minimise
  bool is_scaled = false;  ///< whether finalists were selected by the best a + b f, for a loss of squares
  Units units = {};        ///< of frames in units
};

/// Makes formulas of finalists. All of them are admitted by the grammar, and their losses are those of the formulas as
/// they are written: parsed again and evaluated by IEEE 754. Not thread-safe.
class Polisher {
 public:
  /// `engine` must be of Precision::kF64 and Math::kStrict. Throws the errors of the engine, as all of these do.
  static Polisher create(const Engine& engine, const PolishedData& data, std::span<const Frame> frames,
                         const PolishRules& rules);

  /// The same, whose calls end with an error of kLimit when `stop` is requested.
  Polisher withStop(std::stop_token stop) const;

  /// Adds the best constant to `front`, which all other formulas must beat.
  void addConstant(Front& front) const;

  /// Adds to `front` the formulas that the finalists become, if they belong there: g^-1(b f) and g^-1(a + b f) if
  /// finalists are scaled, else g^-1(f); with the constants fitted in f64, and simplified as far as that does not raise
  /// the loss. A finalist that cannot be fitted is left out. So is a formula that is not sound near the rows
  /// (neighbourhood.h), unless the front is empty or the formula is a law: its loss is rounding, or it leaves at most a
  /// hundredth of the variance of a hundred rows or more. What nearly exact formulas look like (look_alikes.h) is
  /// tried, too. If it throws, the front may have some of the formulas.
  void polish(std::span<const Finalist> finalists, Front& front) const;

  /// The formulas of `front` without what does nothing. One after another, an operator gives way to one of its
  /// operands, or a constant becomes 0, 1 or a shorter decimal; the rest is fitted again, as long as the loss grows by
  /// a hundredth at most. An exact formula, whose loss is within the floor of the front, gets the shortest constants
  /// that do not raise its loss above the rounding of its evaluation, or numbers of laws (rounding.h).
  Front round(const Front& front) const;

  /// The formulas of `front`, which other rows were searched for, with constants that are fitted to the rows of this
  /// Polisher and rounded. Their structure and what held-out rows said of them stay.
  Front refit(const Front& front) const;

  /// Whether a formula that leaves this share of the variance is exact at typical rows, too, and not only at those with
  /// the largest targets, which may have all of the variance: half of the rows have a relative error of at most 1000
  /// sqrt(share), 1e-6 for a share of 1e-18, or the target 0.
  bool isTypical(const Formula& formula, double share) const;

  /// The same formulas with their evidence, BIC and R2 on these rows.
  Front weighed(const Front& front) const;

 private:
  static constexpr double kRounding = 4e-16;  // of an operator's value: about two units in the last place
  struct Forms;
  struct Formed;
  struct Written;

  Polisher(const Engine& engine, std::span<const Frame> frames, const PolishRules& rules);
  void checkStop() const;
  std::vector<Written> writtenOf(std::span<const Finalist> finalists) const;
  Variant variantOf(const Written& written, Exponents exponents) const;
  std::vector<Variant> variantsOf(std::span<const Finalist> finalists) const;
  std::vector<Variant> scaledVariantsOf(std::span<const Written> written) const;
  Forms formsOf(const Variant& variant) const;
  Expression shortFormOf(const Expression& whole) const;
  std::pair<std::size_t, int> costOf(const Variant& variant) const;
  enum class Structure : std::uint8_t { kFree, kKept };
  Front roundAs(Structure structure, const Front& front) const;
  void roundVariants(Structure structure, std::vector<Formed>& formed, double exact) const;
  Front roundOnce(Structure structure, const Front& front, std::vector<double>& constants) const;
  static double limitOf(double loss, double rounding) noexcept;
  std::vector<double> roundingOf(std::span<const Variant> variants, double floor) const;
  std::vector<double> numbersFor(const Variant& variant, std::size_t parameter, bool is_exact) const;
  std::vector<Variant> rounderThan(Structure structure, const Variant& variant, bool is_exact) const;
  Expression closed(const Variant& variant) const;
  void fit(std::vector<Variant>& variants, unsigned passes) const;
  void judge(std::span<Formula> formulas) const;
  void boundRounding(Formula& formula) const;
  void weigh(std::span<Formula> formulas, double floor) const;
  bool isSound(const Formula& formula, double floor) const;
  std::vector<double> addTo(Front& front, std::span<const Variant> variants) const;
  std::vector<Variant> lookAlikes(const Front& front, std::span<const Formula> known) const;

  Engine engine_;
  std::stop_token stop_ = {};
  std::vector<Frame> frames_;
  PolishRules rules_;
  Writing writing_;               ///< of the grammar
  std::vector<Interval> ranges_;  ///< of the columns, over all rows searched
  std::optional<Dataset> searched_, fitted_, held_out_;
  const RowSet* fitted_rows_ = nullptr;
  std::shared_ptr<const Neighbourhood> near_;  ///< of these rows
  double rounding_ = 0;                        ///< the loss of predictions that are off by their own rounding
  double rows_ = 0;                            ///< that are searched and have a weight above 0
};

}  // namespace srjit::search
