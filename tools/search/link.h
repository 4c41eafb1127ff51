// Links: functions g of the target for which g(y) = a + b f(x) is searched, so y = g^-1(a + b f(x)). A law such as
// y = sqrt(u + v) is then found as the simpler f = u + v (generalized linear models, P. McCullagh, J. A. Nelder, 1989,
// 2.2; the inner functions of AI Feynman, arXiv 1905.11481, are of this kind).
//
// A formula keeps g^-1 only if it needs it: rounding tries the formula without each of its operators, and takes what
// has a loss larger by no more than a hundredth, or within rounding (Polisher::round()). So a * b / c is shown, and not
// asin(a * b / c), where the data cannot tell them apart.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/search/grammar.h"

namespace srjit::search {

struct Link {
  std::string_view name;
  double (*forward)(double y);  ///< g
  bool (*admits)(double y);     ///< whether g^-1(g(y)) is y
  std::span<const Op> inverse;  ///< the operators of g^-1, the innermost first
  /// The least difference of the target's values. Over less, sin and cos are nearly linear, and so a law f would be
  /// found as asin(f).
  double least_move = 0;

  std::vector<double> targetOf(std::span<const double> target) const;  ///< g of each
};

/// All; the first is the identity.
std::span<const Link> allLinks() noexcept;

/// What stands around a tree in a formula of the target, as tokens that follow the tree: Grammar::scaling() if
/// `is_scaled`, then g^-1.
std::vector<Token> wrapperOf(const Link& link, const Grammar& grammar, bool is_scaled);

/// The links of `names`, or all links if it is empty, that `target` and `grammar` admit: g is defined for all of
/// `target` and gives more than one value there, `target` moves by least_move, and the grammar admits g^-1 around a
/// variable, scaled if `is_scaled`. The identity needs no grammar. Errors (kInvalid): an unknown name, one that occurs
/// twice, and a named link that target or grammar does not admit.
Result<std::vector<const Link*>> linksFor(std::span<const std::string> names, const Grammar& grammar,
                                          std::span<const double> target, bool is_scaled);

}  // namespace srjit::search
