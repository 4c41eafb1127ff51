#include "passes/gradient/linear_parameters.h"

#include <algorithm>
#include <array>
#include <optional>

#include "ir/op.h"
#include "ir/token_codes.h"
#include "passes/operator_facts.h"

namespace srjit {
namespace {

constexpr std::uint32_t kWordBits = 64;

void include(std::span<std::uint64_t> set, std::span<const std::uint64_t> other) {
  for (std::size_t k = 0; k < set.size(); ++k) set[k] |= other[k];
}

bool intersect(std::span<const std::uint64_t> x, std::span<const std::uint64_t> y) {
  for (std::size_t k = 0; k < x.size(); ++k) {
    if ((x[k] & y[k]) != 0) return true;
  }
  return false;
}

bool isOperator(std::int32_t code) { return code > kConstantCode; }

/// The tokens of an operator's operands.
using OperandTokens = std::array<std::uint32_t, kMaxArity>;
OperandTokens operandsOf(std::uint32_t token, int arity, std::span<const std::uint32_t> begins) {
  OperandTokens operands{};
  std::uint32_t last = token - 1;
  for (auto k = static_cast<std::size_t>(arity); k-- > 0;) {
    operands[k] = last;
    if (k > 0) last = begins[last] - 1;
  }
  return operands;
}

}  // namespace

std::span<const std::uint32_t> LinearParameters::find(const ExpressionView& tokens) {
  found_.clear();
  parameters_.clear();
  for (const std::int32_t code : tokens.codes()) {
    if (isParameterCode(code)) parameters_.push_back(indexOfCode(code));
  }
  if (parameters_.empty()) return found_;
  std::ranges::sort(parameters_);
  const auto repeated = std::ranges::unique(parameters_);
  parameters_.erase(repeated.begin(), repeated.end());
  words_ = (parameters_.size() + kWordBits - 1) / kWordBits;
  contained_.assign(parameters_.size() * words_, 0);
  enters_.assign(parameters_.size(), 0);
  collect(tokens.codes());
  sweep(tokens.codes());
  choose();
  return found_;
}

std::size_t LinearParameters::numberOf(std::int32_t code) const {
  return static_cast<std::size_t>(std::ranges::lower_bound(parameters_, indexOfCode(code)) - parameters_.begin());
}

void LinearParameters::collect(std::span<const std::int32_t> codes) {
  begins_.resize(codes.size());
  below_.assign(codes.size() * words_, 0);
  for (std::uint32_t token = 0; token < codes.size(); ++token) {
    const std::int32_t code = codes[token];
    begins_[token] = token;
    if (isOperator(code)) {
      const int arity = arityOf(kOpsByCode[static_cast<std::size_t>(code)]);
      const OperandTokens operands = operandsOf(token, arity, begins_);
      begins_[token] = begins_[operands[0]];
      for (int k = 0; k < arity; ++k)
        include(setIn(below_, token), setIn(below_, operands[static_cast<std::size_t>(k)]));
    } else if (isParameterCode(code)) {
      const std::size_t parameter = numberOf(code);
      setIn(below_, token)[parameter / kWordBits] = Word{1} << (parameter % kWordBits);
    }
  }
}

// The chain rule: the derivative by an operand contains that by the operator, and the operator's by the operand.
void LinearParameters::sweep(std::span<const std::int32_t> codes) {
  above_.assign(below_.size(), 0);
  reached_.assign(codes.size(), 0);
  reached_.back() = 1;
  for (auto token = static_cast<std::uint32_t>(codes.size()); token-- > 0;) {
    if (reached_[token] == 0) continue;
    const std::int32_t code = codes[token];
    if (isParameterCode(code)) {
      const std::size_t parameter = numberOf(code);
      enters_[parameter] = 1;
      include(setIn(contained_, parameter), setIn(above_, token));
    }
    if (!isOperator(code)) continue;
    const Op op = kOpsByCode[static_cast<std::size_t>(code)];
    const OperandTokens operands = operandsOf(token, arityOf(op), begins_);
    for (int k = 0; k < arityOf(op); ++k) {
      const std::optional<std::uint8_t> partial = operandsOfPartial(op, k);
      if (!partial) continue;
      const std::uint32_t operand = operands[static_cast<std::size_t>(k)];
      reached_[operand] = 1;
      include(setIn(above_, operand), setIn(above_, token));
      for (int other = 0; other < arityOf(op); ++other) {
        if ((*partial >> other & 1U) == 0) continue;
        include(setIn(above_, operand), setIn(below_, operands[static_cast<std::size_t>(other)]));
      }
    }
  }
}

void LinearParameters::choose() {
  excluded_.assign(words_, 0);
  found_set_.assign(words_, 0);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (enters_[i] == 0) continue;
    const std::span<const Word> contained = setIn(contained_, i);
    const std::size_t word = i / kWordBits;
    const Word bit = Word{1} << (i % kWordBits);
    if (((excluded_[word] | contained[word]) & bit) != 0 || intersect(contained, found_set_)) continue;
    found_.push_back(parameters_[i]);
    found_set_[word] |= bit;
    include(excluded_, contained);
  }
}

}  // namespace srjit
