#include "ir/population.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include "ir/ops.h"
#include "ir/token_errors.h"

namespace srjit {
namespace {

constexpr std::size_t kCodes = kMostOps;  // of operators, from 1 on

struct OpCode {
  Op op;
  std::int32_t code;
};
constexpr OpCode kOpCodes[] = {
#define SRJIT_OP_CODE(id, code) {Op::k##id, code},
#include "ir/op_codes.def"
#undef SRJIT_OP_CODE
};

constexpr auto kCodeOfOp = [] {
  std::array<std::int32_t, kOpCount> codes{};
  for (const OpCode& row : kOpCodes) codes[static_cast<std::size_t>(row.op)] = row.code;
  return codes;
}();
static_assert(std::ranges::all_of(kCodeOfOp, [](std::int32_t code) { return code > 0; }),
              "an operator lacks a row of op_codes.def");

constexpr auto kArityOfCode = [] {
  std::array<std::int16_t, kCodes> arities{};
  arities.fill(-1);
  arities[0] = 0;
  for (const OpCode& row : kOpCodes) {
    constexpr std::uint8_t kOpArities[] = {
#define SRJIT_OP(id, name, text, arity, ...) arity,
#include "ir/ops.def"
#undef SRJIT_OP
    };
    arities[static_cast<std::size_t>(row.code)] = kOpArities[static_cast<std::size_t>(row.op)];
  }
  return arities;
}();

static_assert(std::ranges::count_if(kArityOfCode, [](std::int16_t arity) { return arity > 0; }) == std::ssize(kOpCodes),
              "two operators have one code");

/// How many codes there are from `first` down to `code`.
constexpr std::uint32_t codesDownTo(std::int32_t code, std::int32_t first) {
  return static_cast<std::uint32_t>(first) - static_cast<std::uint32_t>(code) + 1;
}

/// All bits set, or none.
constexpr std::uint32_t maskOf(bool condition) { return 0U - static_cast<std::uint32_t>(condition); }

double oneNaN(double value) { return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value; }

Error codeError(std::size_t position, std::int32_t code) {
  if (code < 0) return indexError(position, !isParameterCode(code), indexOfCode(code));
  return tokenError(position, fmt::format("token {} has the code {}, which no operator has", position + 1, code));
}

Error noConstants(std::size_t position) {
  return tokenError(position, fmt::format("token {} is a constant, but there are no constants", position + 1));
}

// The fault of tokens that Block::appendIfValid() refuses.
Error tokensError(std::span<const std::int32_t> codes, bool has_constants) {
  if (codes.empty()) return noTokensError();
  std::size_t height = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const int arity = arityOfCode(codes[i]);
    if (arity < 0) return codeError(i, codes[i]);
    if (codes[i] == kConstantCode && !has_constants) return noConstants(i);
    const auto operands = static_cast<std::size_t>(arity);
    if (height < operands) return operandsError(i, *opOfCode(codes[i]), height, "precede");
    height = height - operands + 1;
  }
  return leftValuesError(codes.size(), height);
}

}  // namespace

constexpr std::array<Op, kMostOps> kOpsByCode = [] {
  std::array<Op, kMostOps> ops{};
  for (const OpCode& row : kOpCodes) ops[static_cast<std::size_t>(row.code)] = row.op;
  return ops;
}();

constexpr std::array<std::int16_t, kMostOps> kAritiesByCode = kArityOfCode;

std::int32_t codeOf(Op op) noexcept { return kCodeOfOp[static_cast<std::size_t>(op)]; }

std::optional<Op> opOfCode(std::int32_t code) noexcept {
  if (code <= 0 || code >= static_cast<std::int32_t>(kCodes)) return std::nullopt;
  const auto place = static_cast<std::size_t>(code);
  return kArityOfCode[place] < 0 ? std::nullopt : std::optional(kOpsByCode[place]);
}

Status checkArrays(const PopulationView& population) {
  const auto fail = [](std::string message) { return Error{Errc::kInvalid, std::move(message), {}}; };
  const std::span<const std::int64_t> offsets = population.offsets;
  const auto tokens = static_cast<std::int64_t>(population.codes.size());
  if (!population.constants.empty() && population.constants.size() != population.codes.size()) {
    return fail(
        fmt::format("{} constants for {} tokens: expected one for each, or none", population.constants.size(), tokens));
  }
  if (offsets.empty()) return tokens == 0 ? okStatus() : fail(fmt::format("{} tokens, but no offsets", tokens));
  if (offsets.front() != 0) return fail(fmt::format("offset 0 is {}, expected 0", offsets.front()));
  // Offset 0 is not negative: where one falls, it or the difference is. All are looked at, several at a time.
  std::uint64_t signs = 0;
  for (std::size_t e = 1; e < offsets.size(); ++e) {
    const auto offset = static_cast<std::uint64_t>(offsets[e]);
    signs |= offset | (offset - static_cast<std::uint64_t>(offsets[e - 1]));
  }
  if (static_cast<std::int64_t>(signs) < 0) {
    const auto fall = std::ranges::adjacent_find(offsets, std::greater<>());
    return fail(
        fmt::format("offset {} is {}, less than the one before, {}", fall - offsets.begin() + 1, fall[1], fall[0]));
  }
  if (offsets.back() == tokens) return okStatus();
  return fail(fmt::format("the last offset is {}, but there are {} tokens", offsets.back(), tokens));
}

Expression ExpressionView::expression() const {
  std::vector<Token> tokens;
  tokens.reserve(size());
  for (const Token token : *this) tokens.push_back(token);
  return Expression::create(std::move(tokens)).value();
}

ExpressionView Population::Block::operator[](std::size_t i) const noexcept {
  const Entry& entry = entries_[i];
  const bool is_last = i + 1 == entries_.size();
  const std::size_t codes_end = is_last ? codes_.size() : entries_[i + 1].code;
  const std::size_t constants_end = is_last ? constants_.size() : entries_[i + 1].constant;
  return {codes_.values().subspan(entry.code, codes_end - entry.code),
          constants_.values().subspan(entry.constant, constants_end - entry.constant), entry.variables,
          entry.parameters};
}

void Population::Block::endEntry(std::uint32_t variables, std::uint32_t parameters) {
  entries_.back().variables = variables;
  entries_.back().parameters = parameters;
  variables_ = std::max(variables_, variables);
  parameters_ += parameters;
}

void Population::Block::reserve(std::size_t expressions, std::size_t tokens) {
  entries_.reserve(expressions);
  codes_.reserve(tokens);
  constants_.reserve(tokens / 4);
}

void Population::Block::add(const Expression& expression) {
  beginEntry();
  for (const Token& token : expression.tokens()) {
    codes_.add(codeOf(token));
    if (token.kind == Token::Kind::kConstant) constants_.add(token.value);
  }
  endEntry(expression.variableCount(), expression.parameterCount());
}

void Population::Block::add(const ExpressionView& expression) {
  beginEntry();
  codes_.add(expression.codes());
  constants_.add(expression.constants());
  endEntry(expression.variableCount(), expression.parameterCount());
}

Status Population::Block::add(const PopulationView& population, std::size_t e, std::size_t max_nodes) {
  const auto first = static_cast<std::size_t>(population.offsets[e]);
  const auto count = static_cast<std::size_t>(population.offsets[e + 1]) - first;
  if (exceeds(count, max_nodes)) {
    addNone();
    return tooManyNodes(count, max_nodes);
  }
  beginEntry();
  const std::span<const std::int32_t> codes = population.codes.subspan(first, count);
  const double* const constants = population.constants.empty() ? nullptr : population.constants.data() + first;
  Status added = okStatus();
  if (population.notation == Notation::kPrefix) {
    added = turn(codes, constants);
    if (added) added = append(turned_codes_, turned_constants_.data());
  } else {
    added = append(codes, constants);
  }
  if (!added) replaceLast();
  return added;
}

// Prefix to postfix: an operator follows its last operand.
Status Population::Block::turn(std::span<const std::int32_t> codes, const double* constants) {
  turned_codes_.clear();
  turned_constants_.clear();
  pending_.clear();
  const auto put = [&](std::size_t i) {
    turned_codes_.push_back(codes[i]);
    turned_constants_.push_back(constants == nullptr ? 0 : constants[i]);
  };
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (i > 0 && pending_.empty()) {
      return tokenError(i, fmt::format("the expression ends before token {}", i + 1));
    }
    const int arity = arityOfCode(codes[i]);
    if (arity < 0) return codeError(i, codes[i]);
    if (codes[i] == kConstantCode && constants == nullptr) return noConstants(i);
    if (arity > 0) {
      pending_.emplace_back(i, arity);
      continue;
    }
    put(i);
    while (!pending_.empty() && --pending_.back().second == 0) {
      put(pending_.back().first);
      pending_.pop_back();
    }
  }
  if (pending_.empty()) return okStatus();
  const auto [token, missing] = pending_.back();
  const Op op = *opOfCode(codes[token]);
  return operandsError(token, op, static_cast<std::size_t>(arityOf(op) - missing), "follow");
}

Status Population::Block::append(std::span<const std::int32_t> codes, const double* constants) {
  if (appendIfValid(codes, constants)) return okStatus();
  return tokensError(codes, constants != nullptr);
}

// No branch here depends on the kind of a token: kinds follow each other as if at random, and a branch that is
// predicted wrongly takes longer than all the rest. Indices are looked at apart, several at a time.
bool Population::Block::appendIfValid(std::span<const std::int32_t> codes, const double* constants) {
  // The codes of the largest indices are the least.
  std::int32_t last_variable = 0, last_parameter = 0;
  for (const std::int32_t code : codes) {
    last_variable = std::min(last_variable, code > kFirstParameterCode ? code : 0);
    last_parameter = std::min(last_parameter, code);
  }
  const std::uint32_t variables = last_variable < 0 ? codesDownTo(last_variable, variableCode(0)) : 0;
  const std::uint32_t parameters =
      isParameterCode(last_parameter) ? codesDownTo(last_parameter, kFirstParameterCode) : 0;
  std::uint32_t faults = maskOf(constants == nullptr && std::ranges::find(codes, kConstantCode) != codes.end());
  std::int64_t height = 0, least_height = 0;
  for (const std::int32_t code : codes) {
    const auto number = static_cast<std::uint32_t>(std::max(code, 0));  // of an operator; else 0
    const std::int32_t arity = kArityOfCode[number % kCodes];
    faults |= static_cast<std::uint32_t>(number / kCodes) | maskOf(arity < 0);
    height -= arity;
    least_height = std::min(least_height, height);
    ++height;
  }
  std::ranges::copy(codes, codes_.room(codes.size()));
  codes_.extend(codes.size());
  if (constants != nullptr) appendConstants(codes, constants);
  constexpr std::uint32_t kMostIndices = Expression::kMaxIndex + 1;
  if (height != 1 || least_height < 0 || faults != 0 || variables > kMostIndices || parameters > kMostIndices) {
    return false;
  }
  endEntry(variables, parameters);
  return true;
}

void Population::Block::appendConstants(std::span<const std::int32_t> codes, const double* constants) {
  double* const first = constants_.room(codes.size());
  double* next = first;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    *next = constants[i];
    next += codes[i] == kConstantCode ? 1 : 0;
  }
  for (double* constant = first; constant < next; ++constant) *constant = oneNaN(*constant);
  constants_.extend(static_cast<std::size_t>(next - first));
}

void Population::Block::addNone() {
  beginEntry();
  replaceLast();
}

void Population::Block::replaceLast() {
  const Entry& entry = entries_.back();
  codes_.cut(entry.code);
  codes_.add(kConstantCode);
  constants_.cut(entry.constant);
  constants_.add(std::numeric_limits<double>::quiet_NaN());
}

Population::Population(std::span<const Expression> expressions) {
  for (const Expression& expression : expressions) add(expression);
}

std::size_t Population::tokens() const noexcept {
  std::size_t all = 0;
  for (const Block& block : blocks_) all += block.tokens();
  return all;
}

std::uint32_t Population::variableCount() const noexcept {
  std::uint32_t most = 0;
  for (const Block& block : blocks_) most = std::max(most, block.variableCount());
  return most;
}

void Population::add(const Expression& expression) {
  blockForMore().add(expression);
  all_parameters_ += expression.parameterCount();
}

void Population::add(const ExpressionView& expression) {
  blockForMore().add(expression);
  all_parameters_ += expression.parameterCount();
}

std::span<Population::Block> Population::makeBlocks(std::size_t expressions) {
  ownBlocks().resize((expressions + kBlock - 1) / kBlock);
  blocks_ = *memory_;
  return blocks_;
}

void Population::finish() {
  block_offsets_.clear();
  all_parameters_ = 0;
  for (const Block& block : blocks_) {
    block_offsets_.push_back(all_parameters_);
    all_parameters_ += block.parameters();
  }
}

std::vector<Population::Block>& Population::ownBlocks() {
  if (memory_ == nullptr || memory_.use_count() > 1) {
    memory_ = std::make_shared<std::vector<Block>>(blocks_.begin(), blocks_.end());
  }
  return *memory_;
}

Population::Block& Population::blockForMore() {
  std::vector<Block>& own = ownBlocks();
  if (own.empty() || own.back().size() == kBlock) {
    own.emplace_back();
    block_offsets_.push_back(all_parameters_);
  }
  blocks_ = own;
  return own.back();
}

std::string_view textOf(DeviceFault fault) noexcept {
  switch (fault) {
    case DeviceFault::kNone:
      return "nothing is wrong";
    case DeviceFault::kLength:
      return "it has no tokens, too many, or tokens outside of the arrays";
    case DeviceFault::kCode:
      return "a token has a code that no operator has, or is a number without a value";
    case DeviceFault::kOperator:
      return "it has an operator that was not announced";
    case DeviceFault::kVariable:
      return "it has a variable that the data do not have";
    case DeviceFault::kOperands:
      return "an operator lacks operands";
    case DeviceFault::kRest:
      return "it has tokens that belong to no operator";
    case DeviceFault::kSlots:
      return "it keeps more values at once than there is room for";
  }
  return "the fault is unknown";
}

}  // namespace srjit
