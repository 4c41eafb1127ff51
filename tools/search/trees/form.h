// What a user knows of a formula before the search: operators of their own, and the form that the whole has. Both are
// written in infix, with calls of names that are no operators:
//
//   mm(x, y) = x / (x + y)          an operator; x and y stand for any trees
//   f(a, b) + p0[kind] * g(c)       a form; f and g stand for trees over the columns that they name, p0 for a constant,
//                                   and p0[kind] for one constant for each value of the column `kind`
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/expression.h"
#include "ir/text.h"
#include "runtime/data_view.h"
#include "runtime/fit_options.h"
#include "tools/search/trees/arrays.h"

namespace srjit::search {

/// Most values of a column that a constant of a form depends on.
inline constexpr std::size_t kMostKinds = 50;

/// An operator as an expression. Trees have the expression in its place; texts cannot call it.
struct Definition {
  std::size_t arity = 0;
  std::vector<Token> tokens;  ///< in which variable k is argument k
};

/// Errors (kSyntax, kInvalid), with the place: no NAME(WORD, ...) = EXPRESSION, a name that is an operator's, an
/// argument that occurs twice or is not used, a parameter.
Result<Definition> parseDefinition(std::string_view text);

/// The form of all formulas of a search. Immutable; thread-safe.
class Form {
 public:
  /// Of data with these names; a column's values are looked at if a constant depends on them. Errors (kSyntax,
  /// kInvalid), with the place: text that is no expression, a function or a parameter twice, no function, arguments
  /// that are not columns, a column of more than kMostKinds values, or of one. `bounds`: texts of readBounds() for
  /// parameters, and for every constant of one that depends on a column. Throws an ErrorException for texts that it
  /// refuses.
  static Result<Form> parse(std::string_view text, const DataView& data, const std::vector<std::string>& bounds = {});

  /// A part of a tree that a function stands for: tokens `begin` up to `end`.
  struct Part {
    std::size_t begin, end;
  };

  std::size_t functions() const noexcept { return columns_.size(); }
  /// The form: a variable of index `columns + k` is function k.
  std::span<const Token> tokens() const noexcept { return tokens_; }

  /// Whether a tree is of this form, whatever its columns and numbers. If so, `parts` has what functions stand for.
  bool matches(std::span<const std::int32_t> codes, std::vector<Part>& parts) const;
  /// Whether it is of this form, with functions of their columns and parameters within their bounds.
  bool admits(const TreeView& tree) const;
  /// The bounds of a tree's numbers, by token; empty if there are none, or the tree is not of this form.
  std::vector<ParameterBounds> boundsOf(std::span<const std::int32_t> codes) const;
  /// Moves the numbers of a tree to their bounds.
  void clamp(std::span<const std::int32_t> codes, std::span<double> constants) const;
  /// Gives the functions of a tree columns of their own for others. False if the tree is not of this form.
  bool repair(std::span<std::int32_t> codes) const;
  /// Puts the form to the open tree of `to`; `put(k)` puts what function k stands for.
  template <class Put>
  void write(Trees& to, const Put& put) const {
    for (const Token& token : tokens_) {
      if (token.kind == Token::Kind::kVariable && token.index >= variables_) {
        put(token.index - variables_);
      } else {
        to.put(codeOf(token), token.value);
      }
    }
  }

 private:
  template <class Use>
  bool forEachForeign(std::span<const std::int32_t> codes, const Use& use) const;

  std::size_t variables_ = 0;
  std::vector<Token> tokens_;
  std::vector<ParameterBounds> bounds_;              ///< by token; empty if there are none
  std::vector<std::vector<std::uint32_t>> columns_;  ///< by function, ascending
};

}  // namespace srjit::search
