#include "ir/losses.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace srjit {
namespace {

using enum LossTuning;
using enum LossTargets;

constexpr std::optional<int> kNoUnit;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr LossInfo kLosses[] = {
#define SRJIT_LOSS(id, name, term, unit, value, worst, doc) {LossKind::id, name, LossTerm::term, unit, worst, doc},
#include "ir/losses.def"
#define SRJIT_SCALED_LOSS(id, name, term, unit, value, worst, doc) \
  {LossKind::id, name, LossTerm::term, unit, worst, doc},
#include "ir/losses.def"
};

constexpr LossTermInfo kTerms[] = {
#define SRJIT_LOSS_MOMENTS(id, name, mean, square, joint) {LossTerm::id, name},
#include "ir/losses.def"
#define SRJIT_LOSS_TERM(id, name, value) {LossTerm::id, name},
#include "ir/losses.def"
#define SRJIT_GRAPH_TERM(id, name, tuning, targets, value, reweighting) {LossTerm::id, name, tuning, targets},
#include "ir/losses.def"
};

constexpr std::size_t kKernelTerms = 0
#define SRJIT_LOSS_TERM(id, name, value) +1
#include "ir/losses.def"
#define SRJIT_LOSS_MOMENTS(id, name, mean, square, joint) +1
#include "ir/losses.def"
    ;

constexpr bool isUsed(LossTerm term) { return std::ranges::find(kLosses, term, &LossInfo::term) != std::end(kLosses); }

static_assert(std::ranges::all_of(kTerms, [](const LossTermInfo& term) { return isUsed(term.term); }),
              "a term of losses.def belongs to no loss");

}  // namespace

std::span<const LossInfo> allLosses() noexcept { return kLosses; }
std::span<const LossTermInfo> allLossTerms() noexcept { return kTerms; }
std::span<const LossTermInfo> kernelLossTerms() noexcept { return allLossTerms().first(kKernelTerms); }
const LossInfo& infoOf(LossKind kind) noexcept { return kLosses[static_cast<std::size_t>(kind)]; }
const LossTermInfo& infoOf(LossTerm term) noexcept { return kTerms[static_cast<std::size_t>(term)]; }
bool isInKernels(LossTerm term) noexcept { return static_cast<std::size_t>(term) < kKernelTerms; }

}  // namespace srjit
