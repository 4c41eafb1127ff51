// The losses of losses.def.
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <string_view>

#include "ir/real.h"

namespace srjit {

/// What a kernel adds for one row (times the row's weight).
enum class LossTerm {
#define SRJIT_LOSS_TERM(id, name, value) id,
#include "ir/losses.def"
};

/// What a loss is, by the doc column of losses.def.
enum class LossKind {
#define SRJIT_LOSS(id, name, term, value, worst, doc) id,
#include "ir/losses.def"
};

struct LossInfo {
  LossKind kind;
  std::string_view name;
  LossTerm term;
  double worst;  ///< the value under NanPolicy::kReject where a prediction is not finite
  std::string_view doc;
};

struct LossTermInfo {
  LossTerm term;
  std::string_view name;
};

/// All rows, in the order of the enumerators. Thread-safe.
std::span<const LossInfo> allLosses() noexcept;
std::span<const LossTermInfo> allLossTerms() noexcept;
const LossInfo& infoOf(LossKind kind) noexcept;
const LossTermInfo& infoOf(LossTerm term) noexcept;

/// The term of one row, before its weight, for the prediction f and the target y; generic in the domain T (rows.h).
template <class T>
T lossTerm(LossTerm term, [[maybe_unused]] const T& f, [[maybe_unused]] const T& y) {
  using namespace real;
  [[maybe_unused]] const T d = f - y;
  switch (term) {
#define SRJIT_LOSS_TERM(id, name, value) \
  case LossTerm::id:                     \
    return value;
#include "ir/losses.def"
  }
  __builtin_unreachable();
}

/// Calls `apply` with the formula of a kind, a generic function of `sum` and `mean` (losses.def), and returns what it
/// gives.
template <class Apply>
auto withLossFormula(LossKind kind, [[maybe_unused]] double variance, const Apply& apply) {
  switch (kind) {
#define SRJIT_LOSS(id, name, term, value, worst, doc)                         \
  case LossKind::id:                                                          \
    return apply([=]([[maybe_unused]] auto sum, [[maybe_unused]] auto mean) { \
      using std::sqrt;                                                        \
      return value;                                                           \
    });
#include "ir/losses.def"
  }
  __builtin_unreachable();
}

}  // namespace srjit
