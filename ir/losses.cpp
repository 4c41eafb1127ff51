#include "ir/losses.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace srjit {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr LossInfo kLosses[] = {
#define SRJIT_LOSS(id, name, term, value, worst, doc) {LossKind::id, name, LossTerm::term, worst, doc},
#include "ir/losses.def"
};

constexpr LossTermInfo kTerms[] = {
#define SRJIT_LOSS_TERM(id, name, value) {LossTerm::id, name},
#include "ir/losses.def"
};

static_assert(std::ranges::all_of(kTerms,
                                  [](const LossTermInfo& term) {
                                    return std::ranges::find(kLosses, term.term, &LossInfo::term) != std::end(kLosses);
                                  }),
              "a term of losses.def belongs to no loss");

}  // namespace

std::span<const LossInfo> allLosses() noexcept { return kLosses; }
std::span<const LossTermInfo> allLossTerms() noexcept { return kTerms; }
const LossInfo& infoOf(LossKind kind) noexcept { return kLosses[static_cast<std::size_t>(kind)]; }
const LossTermInfo& infoOf(LossTerm term) noexcept { return kTerms[static_cast<std::size_t>(term)]; }

}  // namespace srjit
