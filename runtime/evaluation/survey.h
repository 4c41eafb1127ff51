// What a pass over the tokens of a population finds: which expressions a GPU can encode as they are written, and what
// that needs to know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/op.h"
#include "ir/population.h"

namespace srjit {

struct PopulationSurvey {
  static constexpr std::size_t kBlock = 256;  ///< expressions that one task surveys

  /// The expressions that the host evaluates, ascending: those that are not valid, lack a column of the data, or
  /// are longer than lanes or limits allow.
  std::vector<std::uint32_t> left;
  std::vector<Op> operators;                    ///< of the others
  std::vector<std::uint32_t> columns;           ///< that the others have, ascending; at least one if the data have any
  std::uint32_t most_tokens = 1;                ///< of the others
  std::vector<std::uint32_t> parameter_counts;  ///< by expression; 0 of those that are not valid
  std::vector<std::size_t> first_parameters;    ///< of the expressions of each block, and the number of all

  std::size_t parameters() const noexcept { return first_parameters.back(); }
};

/// Of a population that checkArrays() accepts, for data with these columns. `max_nodes` as Limits has it. Works in
/// parallel on the calling thread's arena.
PopulationSurvey survey(const PopulationView& population, std::size_t columns, std::size_t max_nodes);

/// The expressions that are left to the host, in arrays of their own.
struct LeftExpressions {
  std::vector<std::uint32_t> numbers;
  std::vector<std::int32_t> codes;
  std::vector<double> constants, parameters;
  std::vector<std::int64_t> offsets = {0};
  Notation notation = Notation::kPostfix;

  PopulationView view() const { return {codes, constants, offsets, notation}; }
};
LeftExpressions leftOf(const PopulationView& population, const PopulationSurvey& survey,
                       std::span<const double> parameters);

}  // namespace srjit
