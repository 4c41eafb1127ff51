// Which formulas a search may make: operators and what they cost, and how they may be nested.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/expression.h"
#include "ir/ops.h"
#include "passes/shorten/forms.h"
#include "tools/search/formulas/dimensions.h"
#include "tools/search/trees/arrays.h"
#include "tools/search/trees/form.h"

namespace srjit::search {

/// Largest complexity of an operator.
inline constexpr unsigned kMostComplexity = 1000;

/// An operator that a search uses, and what it adds to the complexity of a tree.
struct OperatorUse {
  Op op{};
  unsigned complexity = 1;
};

/// On no path below an `outer` may there be more than `most` operators `inner`.
struct NestingLimit {
  Op outer{}, inner{};
  unsigned most = 0;
};

/// A wish: that formulas rise with a column, or fall, where the others stay.
struct Trend {
  std::uint32_t column = 0;
  bool rises = true;
};

struct GrammarOptions {
  std::vector<OperatorUse> operators = {};  ///< empty: defaultOperators()
  std::vector<NestingLimit> nesting = {};   ///< limits besides that of allow_self_nesting
  /// Expressions that new trees have as a whole. Formulas may have their operators, whether named or not.
  std::vector<Definition> definitions = {};
  std::shared_ptr<const Form> form = {};  ///< of all formulas; null: any. Its own tokens may exceed max_complexity
  unsigned variable_complexity = 1;
  unsigned constant_complexity = 1;
  std::size_t max_complexity = 40;
  bool allow_self_nesting = false;       ///< whether exp, sin and other functions may stand within one of the same name
  std::size_t max_columns = 0;           ///< different variables of a formula; 0: no limit
  std::optional<Dimensions> units = {};  ///< as trends, definitions and form: search() reads them of its options' texts
  bool codata = false;                   ///< whether rounded constants may be physical ones (formulas/rounding.h)
  std::vector<Trend> trends = {};        ///< of all formulas of the front, over the box of the data (neighbourhood.h)
};

/// + - * / square sqrt exp log sin cos, of complexity 1 each.
std::vector<OperatorUse> defaultOperators();

/// Of "add,mul,sqrt:2 sin:3": names or texts of operators, separated by commas or spaces, each with its complexity (1
/// if not given). Errors (kInvalid), with the column: an unknown operator, one that occurs twice, a complexity that is
/// no number from 1 to 1000, no operator at all.
Result<std::vector<OperatorUse>> parseOperators(std::string_view text);

/// Of `count` columns, which need no names, and "mass:up,age:down". Errors (kInvalid), with the column: an unknown
/// name, a column that occurs twice, another word.
Result<std::vector<Trend>> parseTrends(std::string_view text, const ColumnNames& columns, std::size_t count);

/// Of "sin:cos:0,exp:exp:1": at most 0 cos within a sin, and so on. Errors (kInvalid), with the column.
Result<std::vector<NestingLimit>> parseNesting(std::string_view text);

/// GrammarOptions made ready for use. Immutable; thread-safe.
///
/// Simplification may write square, cube, inv, neg and pow, which `operators` need not name: square and cube stand for
/// mul, inv for div, neg for sub or mul, pow for exp where log is named, too. A stand-in has the complexity and the
/// limits of nesting of the operator that it stands for.
class Grammar {
 public:
  /// Of trees over this number of variables. Errors (kInvalid): no variables, an operator twice, a complexity of 0, and
  /// a largest complexity that admits no operator.
  static Result<Grammar> create(GrammarOptions options, std::size_t variables);

  const GrammarOptions& options() const noexcept { return options_; }
  std::size_t variables() const noexcept { return variables_; }
  /// The operators of this arity; there may be none.
  std::span<const Op> operatorsOf(int arity) const noexcept { return by_arity_[static_cast<std::size_t>(arity)]; }
  bool has(Op op) const noexcept { return named_[static_cast<std::size_t>(op)]; }  ///< whether it is named

  /// The operators that a formula may have: the named ones and their stand-ins.
  const OperatorSet& writable() const noexcept { return writable_; }

  /// What formulas may be shortened to.
  Writing writing() const;

  /// The grammar of trees that `wrapper` is applied to: postfix tokens that follow a tree and leave one value. Such a
  /// tree is admitted if tree and wrapper are.
  Grammar within(std::span<const Token> wrapper) const;
  const Form* form() const noexcept { return options_.form.get(); }
  /// The largest complexity of a tree: what the wrapper leaves.
  std::size_t room() const noexcept { return room_; }
  /// Whether islands may select by the best a + b f: scaling() fits around a tree wherever it stands, and takes no more
  /// than a third of the largest complexity. Limits of nesting that name add or mul, and a form, forbid it.
  bool canScale() const;
  /// b and a of a + b f as tokens that follow f; only b if there is no add.
  std::vector<Token> scaling() const;

  /// What the token of a code adds to the complexity. An operator that formulas may not have adds 1.
  std::size_t complexityOf(std::int32_t code) const noexcept {
    if (code > 0) return uses_[static_cast<std::size_t>(code)].complexity;
    return code == kConstantCode || isParameterCode(code) ? options_.constant_complexity : options_.variable_complexity;
  }
  std::size_t complexityOf(std::span<const Token> tokens) const noexcept;

  /// The complexity of a tree, if it has writable operators only, and with the wrapper is within the largest complexity
  /// and the limits of nesting and of columns, is of the form, and keeps the units unless they are a penalty. `tokens`,
  /// `tree`: valid.
  std::optional<std::size_t> admit(const TreeView& tree) const;
  /// Whether the tree with the wrapper keeps the units, if there are some. A variable that is no column has any unit.
  bool keepsUnits(const TreeView& tree) const { return !options_.units || options_.units->keep(tree, wrapper_); }
  bool hasSoftUnits() const noexcept { return options_.units && !has_hard_units_; }
  /// Whether few random trees may be admitted.
  bool isStrict() const noexcept { return has_hard_units_ || options_.max_columns > 0 || form() != nullptr; }
  bool admits(std::span<const Token> tokens) const;
  bool admitsSome() const;  ///< whether it admits a single variable, if that had the right unit

 private:
  explicit Grammar(GrammarOptions options, std::size_t variables);
  /// How formulas may use an operator.
  struct Use {
    std::uint32_t complexity = 1;
    bool is_writable = false;
    std::uint64_t inner = 0, outer = 0;  ///< bits of the limits that it is the inner, or the outer operator of
  };

  Use& useOf(Op op) noexcept { return uses_[static_cast<std::size_t>(codeOf(op))]; }
  /// Whether an operator is, or stands for, another.
  bool isOf(Op op, Op other) const noexcept { return op == other || roles_[static_cast<std::size_t>(op)] == other; }
  /// Operators of some tokens: bits of their limits, and of those that both operators of a limit are there for.
  struct Seen {
    std::uint64_t inner = 0, outer = 0, doubts = 0;
    void add(const Use& use) noexcept {
      doubts |= (inner & use.outer) | (outer & use.inner);
      inner |= use.inner;
      outer |= use.outer;
    }
  };
  bool keeps(const TreeView& tree, const NestingLimit& limit) const;

  GrammarOptions options_;
  std::size_t variables_;
  std::vector<NestingLimit> limits_;  ///< of writable operators
  std::array<std::vector<Op>, kMaxArity + 1> by_arity_;
  std::array<Op, kOpCount> roles_{};  ///< what an operator stands for: itself, or a named operator
  OperatorSet named_, writable_;
  std::array<Use, kMostOps> uses_{};   ///< by code
  std::vector<std::int32_t> wrapper_;  ///< codes
  Seen wrapped_;                       ///< of the wrapper
  bool has_hard_units_;
  std::size_t room_;
};

}  // namespace srjit::search
