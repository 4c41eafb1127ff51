#include "tools/search/formulas/handicap.h"

#include <cmath>

#include "ir/numbers/postfix.h"
#include "ir/numbers/slopes.h"

namespace srjit::search {
namespace {

constexpr double kBrokenUnits = 10;  // a factor

}  // namespace

double Handicap::of(double loss, const TreeView& tree, const Grammar& grammar) const {
  if (grammar.hasSoftUnits() && !grammar.keepsUnits(tree)) loss += (kBrokenUnits - 1) * std::fabs(loss);
  if (!trends_.empty() && !mayHaveTrends(tree)) loss += 1 + std::fabs(loss);  // above that of any tree of the trends
  return loss;
}

bool Handicap::mayHaveTrends(const TreeView& tree) const {
  const Expression expression = expressionOf(tree);
  bool may_agree = true, may_oppose = true;
  for (std::size_t row = 0; row < columns_[0].size(); ++row) {
    for (const Trend& trend : trends_) {
      const auto leaf = [&](const Token& token) {
        const bool varies = token.kind == Token::Kind::kVariable && token.index == trend.column;
        return Slope<double>{token.kind == Token::Kind::kVariable ? columns_[token.index][row] : token.value,
                             varies ? 1.0 : 0.0, varies};
      };
      const double slope = foldPostfix<Slope<double>>(expression.tokens(), leaf, slopeOf<double>).slope;
      may_agree = may_agree && !(trend.rises ? slope < 0 : slope > 0);
      may_oppose = may_oppose && !(trend.rises ? slope > 0 : slope < 0);
    }
    if (!may_agree && !may_oppose) return false;
  }
  return true;
}

}  // namespace srjit::search
