#include "runtime/evaluation/survey.h"

#include <algorithm>
#include <array>

#include <tbb/parallel_for.h>

#include "ir/numbers/rounding.h"
#include "ir/token_codes.h"

namespace srjit {
namespace {

/// What one task finds.
struct Part {
  std::vector<std::uint32_t> left = {};
  std::array<bool, kMostOps> operators{};
  std::vector<std::uint8_t> columns = {};
  std::uint32_t most_tokens = 1;
  std::size_t parameters = 0;
};

/// An expression: whether it is valid, whether the data have its columns, and its parameters.
struct Found {
  bool is_valid = false, has_columns = true;
  std::uint32_t parameters = 0;
};

Found check(std::span<const std::int32_t> codes, Notation notation, std::size_t columns, bool has_constants) {
  const bool is_prefix = notation == Notation::kPrefix;
  Found found;
  std::size_t values = is_prefix ? 1 : 0;  // that are wanted, or that there are
  for (const std::int32_t code : codes) {
    const int operands = arityOfCode(code);
    if (operands < 0 || (code == kConstantCode && !has_constants)) return {};
    const auto arity = static_cast<std::size_t>(operands);
    if (isParameterCode(code)) {
      found.parameters = std::max(found.parameters, indexOfCode(code) + 1);
    } else if (code < 0) {
      found.has_columns &= indexOfCode(code) < columns;
    }
    if (is_prefix ? values == 0 : values < arity) return {};
    values = is_prefix ? values + arity - 1 : values - arity + 1;
  }
  found.is_valid = !codes.empty() && values == (is_prefix ? 0 : 1);
  return found;
}

std::span<const std::int32_t> codesOf(const PopulationView& population, std::size_t e) {
  const auto begin = static_cast<std::size_t>(population.offsets[e]);
  return population.codes.subspan(begin, static_cast<std::size_t>(population.offsets[e + 1]) - begin);
}

Part surveyBlock(const PopulationView& population, std::size_t columns, std::size_t max_nodes, std::size_t block,
                 PopulationSurvey& survey) {
  Part part;
  part.columns.resize(columns);
  const std::size_t first = block * PopulationSurvey::kBlock;
  const std::size_t last = std::min(first + PopulationSurvey::kBlock, population.size());
  const std::size_t most = max_nodes == 0 ? kMostDeviceTokens : std::min<std::size_t>(max_nodes, kMostDeviceTokens);
  for (std::size_t e = first; e < last; ++e) {
    const std::span<const std::int32_t> codes = codesOf(population, e);
    const bool is_allowed = max_nodes == 0 || codes.size() <= max_nodes;
    const Found found =
        is_allowed ? check(codes, population.notation, part.columns.size(), !population.constants.empty()) : Found{};
    if (found.is_valid) {
      survey.parameter_counts[e] = found.parameters;
      part.parameters += found.parameters;
    }
    if (!found.is_valid || !found.has_columns || codes.size() > most) {
      part.left.push_back(static_cast<std::uint32_t>(e));
      continue;
    }
    part.most_tokens = std::max(part.most_tokens, static_cast<std::uint32_t>(codes.size()));
    for (const std::int32_t code : codes) {
      if (code > 0) {
        part.operators[static_cast<std::size_t>(code)] = true;
      } else if (code != kConstantCode && !isParameterCode(code)) {
        part.columns[indexOfCode(code)] = 1;
      }
    }
  }
  return part;
}

}  // namespace

PopulationSurvey survey(const PopulationView& population, std::size_t columns, std::size_t max_nodes) {
  PopulationSurvey all;
  all.parameter_counts.resize(population.size());
  std::vector<Part> parts(ceilDivide(population.size(), PopulationSurvey::kBlock));
  tbb::parallel_for(std::size_t{0}, parts.size(),
                    [&](std::size_t block) { parts[block] = surveyBlock(population, columns, max_nodes, block, all); });
  std::array<bool, kMostOps> operators{};
  std::vector<std::uint8_t> used(columns);
  std::size_t parameters = 0;
  for (const Part& part : parts) {
    all.left.insert(all.left.end(), part.left.begin(), part.left.end());
    for (std::size_t code = 0; code < operators.size(); ++code) operators[code] |= part.operators[code];
    for (std::size_t c = 0; c < columns; ++c) used[c] |= part.columns[c];
    all.most_tokens = std::max(all.most_tokens, part.most_tokens);
    all.first_parameters.push_back(parameters);
    parameters += part.parameters;
  }
  all.first_parameters.push_back(parameters);
  for (std::size_t code = 1; code < operators.size(); ++code) {
    if (operators[code]) all.operators.push_back(*opOfCode(static_cast<std::int32_t>(code)));
  }
  // An interpreter has at least one of each.
  if (all.operators.empty()) all.operators.push_back(Op::kAdd);
  for (std::size_t c = 0; c < columns; ++c) {
    if (used[c] != 0) all.columns.push_back(static_cast<std::uint32_t>(c));
  }
  if (all.columns.empty() && columns > 0) all.columns.push_back(0);
  return all;
}

LeftExpressions leftOf(const PopulationView& population, const PopulationSurvey& survey,
                       std::span<const double> parameters) {
  LeftExpressions left;
  left.numbers = survey.left;
  left.notation = population.notation;
  for (const std::uint32_t e : survey.left) {
    const std::span<const std::int32_t> codes = codesOf(population, e);
    left.codes.insert(left.codes.end(), codes.begin(), codes.end());
    if (!population.constants.empty()) {
      const auto constants =
          population.constants.subspan(static_cast<std::size_t>(population.offsets[e]), codes.size());
      left.constants.insert(left.constants.end(), constants.begin(), constants.end());
    }
    left.offsets.push_back(static_cast<std::int64_t>(left.codes.size()));
    const std::size_t block = e / PopulationSurvey::kBlock;
    std::size_t first = survey.first_parameters[block];
    for (std::size_t i = block * PopulationSurvey::kBlock; i < e; ++i) first += survey.parameter_counts[i];
    const auto own = parameters.subspan(first, survey.parameter_counts[e]);
    left.parameters.insert(left.parameters.end(), own.begin(), own.end());
  }
  return left;
}

}  // namespace srjit
