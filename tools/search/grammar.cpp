#include "tools/search/grammar.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include <fmt/format.h>

#include <llvm/ADT/SmallSet.h>

#include "ir/text/lexer.h"
#include "tools/search/trees/names.h"

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
/// Of a limit of nesting; limits may share one.
constexpr std::uint64_t bitOf(std::size_t limit) { return std::uint64_t{1} << limit % 64; }

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

Result<std::vector<Trend>> parseTrends(std::string_view text, const ColumnNames& columns, std::size_t count) {
  std::vector<Trend> trends;
  for (const auto& [begin, size] : itemsOf(text, 0, text.size())) {
    const Word word{text.substr(begin, size), begin + 1};
    const std::size_t colon = std::min(word.text.rfind(':'), word.text.size());
    const std::string_view name = word.text.substr(0, colon), way = word.text.substr(colon);
    if (way != ":up" && way != ":down") return listError(word, "a trend is COLUMN:up or COLUMN:down");
    const std::optional<std::uint32_t> column = findColumn(name, columns, count);
    if (!column) {
      return listError({name, word.column},
                       fmt::format("{} is no column{}", text::inQuotes(name),
                                   columns.empty() ? "" : "; the columns are " + text::listNames(columns.names())));
    }
    if (std::ranges::find(trends, *column, &Trend::column) != trends.end()) {
      return listError({name, word.column}, fmt::format("column {} occurs twice", text::inQuotes(name)));
    }
    trends.push_back({*column, way == ":up"});
  }
  return trends;
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
    : options_(std::move(options)),
      variables_(variables),
      has_hard_units_(options_.units && options_.units->rule == UnitRule::kHard),
      room_(options_.max_complexity) {
  for (std::size_t op = 0; op < kOpCount; ++op) roles_[op] = static_cast<Op>(op);
  for (const OperatorUse& use : options_.operators) {
    by_arity_[static_cast<std::size_t>(arityOf(use.op))].push_back(use.op);
    useOf(use.op) = {.complexity = use.complexity, .is_writable = true};
    named_.set(at(use.op));
  }
  const auto allow = [&](std::span<const Token> tokens) {
    for (const Token& token : tokens) {
      if (token.kind == Token::Kind::kOp) useOf(token.op).is_writable = true;
    }
  };
  for (const Definition& definition : options_.definitions) allow(definition.tokens);
  if (form() != nullptr) {
    allow(form()->tokens());
    room_ = options_.max_complexity += complexityOf(form()->tokens());
  }
  for (const auto& [op, source] : kStandIns) {
    if (useOf(op).is_writable || !has(source)) continue;
    useOf(op) = useOf(source);
    roles_[at(op)] = source;
  }
  if (!useOf(Op::kPow).is_writable && has(Op::kExp) && has(Op::kLog)) {
    useOf(Op::kPow) = useOf(Op::kExp);
    roles_[at(Op::kPow)] = Op::kExp;
  }
  for (std::size_t op = 0; op < kOpCount; ++op) writable_[op] = useOf(static_cast<Op>(op)).is_writable;
  limits_ = options_.nesting;
  if (!options_.allow_self_nesting) {
    for (const Op op : kSeldomNested) limits_.push_back({op, op, 0});
  }
  std::erase_if(limits_,
                [&](const NestingLimit& limit) { return !writable_[at(limit.outer)] || !writable_[at(limit.inner)]; });
  for (std::size_t i = 0; i < limits_.size(); ++i) {
    for (std::size_t op = 0; op < kOpCount; ++op) {
      if (isOf(static_cast<Op>(op), limits_[i].inner)) useOf(static_cast<Op>(op)).inner |= bitOf(i);
      if (isOf(static_cast<Op>(op), limits_[i].outer)) useOf(static_cast<Op>(op)).outer |= bitOf(i);
    }
  }
}

std::size_t Grammar::complexityOf(std::span<const Token> tokens) const noexcept {
  std::size_t sum = 0;
  for (const Token& token : tokens) sum += complexityOf(codeOf(token));
  return sum;
}

Writing Grammar::writing() const {
  Writing writing{.operators = writable_,
                  .costs = {},
                  .variable_cost = options_.variable_complexity,
                  .constant_cost = options_.constant_complexity};
  for (std::size_t op = 0; op < kOpCount; ++op) {
    writing.costs[op] = static_cast<unsigned>(complexityOf(codeOf(static_cast<Op>(op))));
  }
  return writing;
}

Grammar Grammar::within(std::span<const Token> wrapper) const {
  Grammar inner = *this;
  std::vector<std::int32_t> codes;
  for (const Token& token : wrapper) {
    codes.push_back(codeOf(token));
    if (token.kind == Token::Kind::kOp) inner.wrapped_.add(inner.useOf(token.op));
  }
  inner.wrapper_.insert(inner.wrapper_.begin(), codes.begin(), codes.end());
  inner.room_ -= std::min(room_, complexityOf(wrapper));
  return inner;
}

bool Grammar::canScale() const {
  const auto isOfScaling = [](Op op) { return op == Op::kAdd || op == Op::kMul; };
  const auto isLimited = [&](const NestingLimit& limit) {
    return isOfScaling(limit.outer) || isOfScaling(limit.inner);
  };
  return form() == nullptr && has(Op::kMul) && complexityOf(scaling()) <= options_.max_complexity / kScalingShare &&
         std::ranges::none_of(limits_, isLimited) && within(scaling()).admitsSome();
}

bool Grammar::admitsSome() const {
  const Token leaf[] = {Token::variable(static_cast<std::uint32_t>(variables_))};
  return admits(leaf);
}

std::vector<Token> Grammar::scaling() const {
  std::vector<Token> tokens = {Token::constant(1), Token::operation(Op::kMul)};
  if (has(Op::kAdd)) tokens.insert(tokens.end(), {Token::constant(0), Token::operation(Op::kAdd)});
  return tokens;
}

bool Grammar::admits(std::span<const Token> tokens) const {
  Trees tree;
  tree.add(tokens);
  return admit(tree[0]).has_value();
}

std::optional<std::size_t> Grammar::admit(const TreeView& tree) const {
  std::size_t complexity = 0;
  bool is_writable = true;
  Seen seen = wrapped_;
  for (const std::int32_t code : tree.codes) {
    if (code <= 0) {
      complexity += complexityOf(code);
      continue;
    }
    const Use& use = uses_[static_cast<std::size_t>(code)];
    complexity += use.complexity;
    is_writable = is_writable && use.is_writable;
    seen.add(use);
  }
  if (!is_writable || complexity > room_ || (form() != nullptr && !form()->admits(tree))) return {};
  for (std::size_t i = 0; seen.doubts != 0 && i < limits_.size(); ++i) {
    if ((seen.doubts & bitOf(i)) != 0 && !keeps(tree, limits_[i])) return {};
  }
  if (options_.max_columns > 0) {
    llvm::SmallSet<std::int32_t, 16> columns;
    for (const std::int32_t code : tree.codes) {
      if (code < 0 && !isParameterCode(code)) columns.insert(code);
    }
    if (columns.size() > options_.max_columns) return {};
  }
  if (has_hard_units_ && !keepsUnits(tree)) return {};
  return complexity;
}

bool Grammar::keeps(const TreeView& tree, const NestingLimit& limit) const {
  thread_local std::vector<unsigned> memory;  // by value on the stack: the most `inner` on a path of it
  if (memory.size() < tree.size() + wrapper_.size()) memory.resize(2 * (tree.size() + wrapper_.size()));
  unsigned* end = memory.data();
  bool is_kept = true;
  for (const std::span<const std::int32_t> part : {tree.codes, std::span<const std::int32_t>(wrapper_)}) {
    for (const std::int32_t code : part) {
      unsigned most = 0;
      for (int i = arityOf(code); i > 0; --i) most = std::max(most, *--end);
      if (code > 0) {
        const Op op = kOpsByCode[static_cast<std::size_t>(code)];
        is_kept = is_kept && !(isOf(op, limit.outer) && most > limit.most);
        most += isOf(op, limit.inner) ? 1 : 0;
      }
      *end++ = most;
    }
  }
  return is_kept;
}

}  // namespace srjit::search
