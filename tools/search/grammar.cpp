#include "tools/search/grammar.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "ir/text/lexer.h"

namespace srjit::search {
namespace {

constexpr Op kDefaultOperators[] = {Op::kAdd,  Op::kSub, Op::kMul, Op::kDiv, Op::kSquare,
                                    Op::kSqrt, Op::kExp, Op::kLog, Op::kSin, Op::kCos};
/// Laws that nest them in themselves are rare, and such trees many.
constexpr Op kSeldomNested[] = {Op::kExp,  Op::kLog,  Op::kSin,  Op::kCos,  Op::kTan,  Op::kAsin, Op::kAcos,
                                Op::kAtan, Op::kSinh, Op::kCosh, Op::kTanh, Op::kSqrt, Op::kErf,  Op::kLogistic};

/// Operators that simplification makes of others. The first source that a grammar names counts.
struct StandIn {
  Op op, source;
};
constexpr StandIn kStandIns[] = {
    {Op::kSquare, Op::kMul}, {Op::kCube, Op::kMul}, {Op::kInv, Op::kDiv}, {Op::kNeg, Op::kSub}, {Op::kNeg, Op::kMul}};

constexpr std::size_t kScalingShare = 3;  // scaling may take this part of the largest complexity, 1 / 3

constexpr std::size_t at(Op op) { return static_cast<std::size_t>(op); }

/// A word of a list, and where it is.
struct Word {
  std::string_view text;
  std::size_t column;
};

Error listError(const Word& word, std::string message) {
  return {Errc::kInvalid, std::move(message), Span{1, word.column, std::max<std::size_t>(word.text.size(), 1)}};
}

/// The words between any of `separators`, empty ones left out.
std::vector<Word> wordsOf(std::string_view text, std::string_view separators, std::size_t column = 1) {
  std::vector<Word> words;
  std::size_t begin = 0;
  while ((begin = text.find_first_not_of(separators, begin)) != std::string_view::npos) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    words.push_back({text.substr(begin, end - begin), column + begin});
    begin = end;
  }
  return words;
}

std::optional<unsigned> readCount(std::string_view text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

Result<Op> readOperator(const Word& word) {
  if (const std::optional<Op> op = findOp(word.text)) return *op;
  return listError(word, fmt::format("unknown operator {}; `sr-jit ops` lists them", text::inQuotes(word.text)));
}

}  // namespace

std::vector<OperatorUse> defaultOperators() {
  std::vector<OperatorUse> operators;
  for (const Op op : kDefaultOperators) operators.push_back({op});
  return operators;
}

Result<std::vector<OperatorUse>> parseOperators(std::string_view text) {
  std::vector<OperatorUse> operators;
  for (const Word& word : wordsOf(text, ", \t")) {
    const std::size_t colon = word.text.find(':');
    const Result<Op> op = readOperator({word.text.substr(0, colon), word.column});
    if (!op) return op.error();
    OperatorUse use{*op};
    if (colon != std::string_view::npos) {
      const Word number{word.text.substr(colon + 1), word.column + colon + 1};
      const std::optional<unsigned> complexity = readCount(number.text);
      if (!complexity || *complexity < 1 || *complexity > kMostComplexity) {
        return listError(number, fmt::format("the complexity {} is no number from 1 to {}", text::inQuotes(number.text),
                                             kMostComplexity));
      }
      use.complexity = *complexity;
    }
    if (std::ranges::find(operators, use.op, &OperatorUse::op) != operators.end()) {
      return listError(word, fmt::format("operator {} occurs twice", infoOf(use.op).name));
    }
    operators.push_back(use);
  }
  if (operators.empty()) return Error{Errc::kInvalid, "no operator is named; `sr-jit ops` lists them", {}};
  return operators;
}

Result<std::vector<NestingLimit>> parseNesting(std::string_view text) {
  std::vector<NestingLimit> limits;
  for (const Word& word : wordsOf(text, ", \t")) {
    const std::vector<Word> parts = wordsOf(word.text, ":", word.column);
    if (parts.size() != 3) return listError(word, "a limit of nesting is OUTER:INNER:MOST, such as sin:cos:0");
    const Result<Op> outer = readOperator(parts[0]), inner = readOperator(parts[1]);
    if (!outer) return outer.error();
    if (!inner) return inner.error();
    const std::optional<unsigned> most = readCount(parts[2].text);
    if (!most) return listError(parts[2], fmt::format("{} is no number", text::inQuotes(parts[2].text)));
    limits.push_back({*outer, *inner, *most});
  }
  return limits;
}

Result<Grammar> Grammar::create(GrammarOptions options, std::size_t variables) {
  if (options.operators.empty()) options.operators = defaultOperators();
  if (variables == 0) return Error{Errc::kInvalid, "the data have no column besides target and weights", {}};
  std::vector<Op> seen;
  std::size_t least = kMostComplexity;
  for (const OperatorUse& use : options.operators) {
    if (std::ranges::find(seen, use.op) != seen.end()) {
      return Error{Errc::kInvalid, fmt::format("operator {} occurs twice", infoOf(use.op).name), {}};
    }
    if (use.complexity == 0) return Error{Errc::kInvalid, "an operator's complexity is at least 1", {}};
    seen.push_back(use.op);
    least = std::min(least, use.complexity + static_cast<std::size_t>(arityOf(use.op)) *
                                                 std::min(options.variable_complexity, options.constant_complexity));
  }
  if (options.variable_complexity == 0 || options.constant_complexity == 0) {
    return Error{Errc::kInvalid, "the complexity of a variable and of a constant is at least 1", {}};
  }
  if (options.max_complexity < least) {
    return Error{Errc::kInvalid,
                 fmt::format("the largest complexity is {}, but a tree with an operator has at least {}",
                             options.max_complexity, least),
                 {}};
  }
  return Grammar(std::move(options), variables);
}

Grammar::Grammar(GrammarOptions options, std::size_t variables)
    : options_(std::move(options)), variables_(variables), room_(options_.max_complexity) {
  complexities_.fill(1);
  for (const OperatorUse& use : options_.operators) {
    by_arity_[static_cast<std::size_t>(arityOf(use.op))].push_back(use.op);
    complexities_[at(use.op)] = use.complexity;
    uses_.set(at(use.op));
  }
  for (std::size_t op = 0; op < kOpCount; ++op) roles_[op] = static_cast<Op>(op);
  writable_ = uses_;
  for (const auto& [op, source] : kStandIns) {
    if (writable_[at(op)] || !has(source)) continue;
    writable_.set(at(op));
    roles_[at(op)] = source;
    complexities_[at(op)] = complexities_[at(source)];
  }
  limits_ = options_.nesting;
  if (!options_.allow_self_nesting) {
    for (const Op op : kSeldomNested) limits_.push_back({op, op, 0});
  }
  std::erase_if(limits_,
                [&](const NestingLimit& limit) { return !writable_[at(limit.outer)] || !writable_[at(limit.inner)]; });
}

std::size_t Grammar::complexityOf(const Token& token) const noexcept {
  switch (token.kind) {
    case Token::Kind::kConstant:
    case Token::Kind::kParameter:
      return options_.constant_complexity;
    case Token::Kind::kVariable:
      return options_.variable_complexity;
    case Token::Kind::kOp:
      return complexities_[at(token.op)];
  }
  __builtin_unreachable();
}

std::size_t Grammar::complexityOf(std::span<const Token> tokens) const noexcept {
  std::size_t sum = 0;
  for (const Token& token : tokens) sum += complexityOf(token);
  return sum;
}

Grammar Grammar::within(std::span<const Token> wrapper) const {
  Grammar inner = *this;
  inner.wrapper_.insert(inner.wrapper_.begin(), wrapper.begin(), wrapper.end());
  inner.room_ -= std::min(room_, complexityOf(wrapper));
  return inner;
}

bool Grammar::canScale() const noexcept {
  const auto isOfScaling = [](Op op) { return op == Op::kAdd || op == Op::kMul; };
  const auto isLimited = [&](const NestingLimit& limit) {
    return isOfScaling(limit.outer) || isOfScaling(limit.inner);
  };
  return has(Op::kMul) && complexityOf(scaling()) <= options_.max_complexity / kScalingShare &&
         std::ranges::none_of(limits_, isLimited);
}

std::vector<Token> Grammar::scaling() const {
  std::vector<Token> tokens = {Token::constant(1), Token::operation(Op::kMul)};
  if (has(Op::kAdd)) tokens.insert(tokens.end(), {Token::constant(0), Token::operation(Op::kAdd)});
  return tokens;
}

bool Grammar::admits(std::span<const Token> tokens) const {
  const auto isWritable = [&](const Token& token) { return token.kind != Token::Kind::kOp || writable_[at(token.op)]; };
  return complexityOf(tokens) <= room_ && std::ranges::all_of(tokens, isWritable) && keepsNesting(tokens);
}

bool Grammar::keepsNesting(std::span<const Token> tokens) const {
  std::array<unsigned, kOpCount> uses{};
  const auto isOf = [&](const Token& token, Op op) { return token.op == op || roles_[at(token.op)] == op; };
  const auto forEachToken = [&](const auto& call) {
    for (const std::span<const Token> part : {tokens, std::span<const Token>(wrapper_)}) {
      for (const Token& token : part) call(token);
    }
  };
  forEachToken([&](const Token& token) {
    if (token.kind != Token::Kind::kOp) return;
    ++uses[at(token.op)];
    if (roles_[at(token.op)] != token.op) ++uses[at(roles_[at(token.op)])];
  });
  thread_local std::vector<unsigned> counts;  // by value on the stack: the most `inner` on a path of it
  for (const NestingLimit& limit : limits_) {
    const unsigned self = limit.outer == limit.inner ? 1 : 0;
    if (uses[at(limit.outer)] == 0 || uses[at(limit.inner)] <= limit.most + self) continue;
    counts.clear();
    bool is_kept = true;
    forEachToken([&](const Token& token) {
      unsigned most = 0;
      for (int i = 0; i < token.arity(); ++i) {
        most = std::max(most, counts.back());
        counts.pop_back();
      }
      if (token.kind == Token::Kind::kOp) {
        is_kept = is_kept && !(isOf(token, limit.outer) && most > limit.most);
        most += isOf(token, limit.inner) ? 1 : 0;
      }
      counts.push_back(most);
    });
    if (!is_kept) return false;
  }
  return true;
}

}  // namespace srjit::search
