#include "ir/ops.h"

#include <algorithm>
#include <array>

#include "ir/mix.h"

namespace srjit {

constexpr std::uint8_t kArities[] = {
#define SRJIT_OP(id, name, text, arity, ...) arity,
#include "ir/ops.def"
#undef SRJIT_OP
};
constexpr std::uint64_t kNameHashes[] = {
#define SRJIT_OP(id, name, ...) hashOf(name),
#include "ir/ops.def"
#undef SRJIT_OP
};

namespace {

constexpr auto kOps = [] {
  using enum OpProps;
  return std::array{
#define SRJIT_OP(id, name, text, arity, props, value, dx, dy, dz, doc) OpInfo{name, text, arity, props, #value, doc},
#include "ir/ops.def"
#undef SRJIT_OP
  };
}();

constexpr std::array kFunctions = {
#define SRJIT_FUNCTION(id, arity, code, ulp_f32, ulp_f64, fast_error) \
  FunctionInfo{#id, arity, FunctionCode::code, ulp_f32, ulp_f64},
#include "ir/functions.def"
#undef SRJIT_FUNCTION
};

// Open-addressing hash table from names and texts to rows, computed at compile time. At most a quarter of it is full.
constexpr std::size_t kIndexSize = 1024;
constexpr std::uint8_t kNoRow = 0xff;
static_assert(kOps.size() * 8 <= kIndexSize && kOps.size() < kNoRow && kNoRow < kMostOps);

constexpr auto kIndex = [] {
  std::array<std::uint8_t, kIndexSize> index{};
  index.fill(kNoRow);
  for (std::size_t i = 0; i < kOps.size(); ++i) {
    for (const std::string_view key : {kOps[i].name, kOps[i].text}) {
      std::size_t slot = hashOf(key) % kIndexSize;
      while (index[slot] != kNoRow) slot = (slot + 1) % kIndexSize;
      index[slot] = static_cast<std::uint8_t>(i);
    }
  }
  return index;
}();

constexpr bool hasOneFamily(const OpInfo& op) noexcept {
  using enum OpProps;
  const OpProps family = op.props & (kArithmetic | kCommon | kRare);
  return family == kArithmetic || family == kCommon || family == kRare;
}
static_assert(std::ranges::all_of(kOps, hasOneFamily), "a row of ops.def names no family, or several");

constexpr bool isDigit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr bool hasDigitSecond(std::string_view word) noexcept { return word.size() > 1 && isDigit(word[1]); }
// So words such as x0 and p12, which are most of a text, need no search.
static_assert(std::ranges::none_of(kOps, [](const OpInfo& op) {
  return hasDigitSecond(op.name) || hasDigitSecond(op.text);
}));

}  // namespace

std::span<const OpInfo> allOps() noexcept { return kOps; }
std::span<const FunctionInfo> allFunctions() noexcept { return kFunctions; }

std::optional<Op> findOp(std::string_view name_or_text) noexcept {
  if (hasDigitSecond(name_or_text)) return std::nullopt;
  for (std::size_t slot = hashOf(name_or_text) % kIndexSize;; slot = (slot + 1) % kIndexSize) {
    const std::uint8_t op = kIndex[slot];
    if (op == kNoRow) return std::nullopt;
    if (kOps[op].name == name_or_text || kOps[op].text == name_or_text) return static_cast<Op>(op);
  }
}

}  // namespace srjit
