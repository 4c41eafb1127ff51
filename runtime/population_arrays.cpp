#include "runtime/population_arrays.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "passes/simplify_expression.h"
#include "runtime/platform/deadline.h"

namespace srjit {
namespace {

const Failure* findFailure(std::span<const Failure> failures, std::size_t expression) {
  const auto found = std::ranges::lower_bound(failures, expression, {}, &Failure::expression);
  return found != failures.end() && found->expression == expression ? &*found : nullptr;
}

}  // namespace

PopulationArrays PopulationArrays::parse(std::span<const std::string> texts, Language language,
                                         const ColumnNames& columns, std::size_t max_nodes) {
  PopulationArrays arrays;
  std::vector<Token> tokens;
  for (const std::string& text : texts) {
    tokens.clear();
    if (auto parsed = parseTokens(text, language, columns, tokens, max_nodes)) {
      arrays.add(tokens);
    } else {
      arrays.addFailure(std::move(parsed).error());
    }
  }
  return arrays;
}

PopulationArrays PopulationArrays::copy(const PopulationView& population, std::size_t max_nodes) {
  PopulationArrays arrays;
  for (std::size_t e = 0; e < population.size(); ++e) {
    Population::Block block;
    if (Status valid = block.add(population, e, max_nodes)) {
      arrays.add(block[0].expression().tokens());
    } else {
      arrays.addFailure(std::move(valid).error());
    }
  }
  return arrays;
}

Result<Expression> PopulationArrays::expression(std::size_t e) const {
  if (e >= size()) return Error{Errc::kInvalid, fmt::format("expression {} of {}", e, size()), {}};
  if (const Failure* const failure = findFailure(failures, e)) return failure->error;
  Population::Block block;
  if (Status valid = block.add(view(), e); !valid) return std::move(valid).error();
  return block[0].expression();
}

PopulationArrays PopulationArrays::simplified(Math math) const { return simplified(math, Deadline()); }

PopulationArrays PopulationArrays::simplified(Math math, const Deadline& deadline) const {
  PopulationArrays made;
  for (std::size_t e = 0; e < size(); ++e) {
    deadline.check();
    Result<Expression> simple = expression(e);
    if (simple) {
      made.add(simplify(*simple, math).tokens());
    } else {
      made.addFailure(std::move(simple).error());
    }
  }
  return made;
}

void PopulationArrays::add(std::span<const Token> tokens) {
  for (const Token& token : tokens) {
    codes.push_back(codeOf(token));
    constants.push_back(token.value);
  }
  offsets.push_back(static_cast<std::int64_t>(codes.size()));
}

void PopulationArrays::addFailure(Error error) {
  failures.push_back({size(), std::move(error)});
  offsets.push_back(static_cast<std::int64_t>(codes.size()));
}

std::vector<Failure> explainFailures(std::vector<Failure> of_program, std::size_t expressions,
                                     std::span<const Failure> of_reading) {
  for (Failure& failure : of_program) {
    failure.expression %= expressions;
    if (const Failure* const read = findFailure(of_reading, failure.expression)) failure.error = read->error;
  }
  std::ranges::stable_sort(of_program, {}, &Failure::expression);
  const auto repeated = std::ranges::unique(of_program, {}, &Failure::expression);
  of_program.erase(repeated.begin(), repeated.end());
  return of_program;
}

}  // namespace srjit
