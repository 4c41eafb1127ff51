// Runs code of the direct tier on the model of a warp.
#pragma once

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "compiler/direct/emitter.h"
#include "ir/numbers/rounding.h"
#include "ir/reference.h"
#include "tests/generators/data.h"
#include "tests/gpu_model/sass_machine.h"

namespace srjit {

/// Data of one evaluation. Columns are adjacent, `stride` numbers apart.
template <class T>
struct DirectData {
  std::size_t rows = 0, stride = 0;
  std::vector<T> columns, target, weights;

  static DirectData random(std::size_t rows, std::size_t columns, Spread spread, std::uint64_t seed) {
    Random random(seed);
    // No padding: the machine detects accesses past the last row.
    DirectData data{.rows = rows, .stride = rows, .columns = {}, .target = {}, .weights = {}};
    for (std::size_t i = 0; i < columns * rows; ++i) {
      data.columns.push_back(static_cast<T>(randomValue(random, spread, kPrecisionOf<T>)));
    }
    for (std::size_t i = 0; i < rows; ++i) {
      data.target.push_back(static_cast<T>(randomValue(random, Spread::kTame)));
      data.weights.push_back(static_cast<T>(random.unit()));
    }
    return data;
  }

  std::vector<T> row(std::size_t r, std::size_t count) const {
    std::vector<T> row;
    for (std::size_t c = 0; c < count; ++c) row.push_back(columns[c * stride + r]);
    return row;
  }
};

template <class T>
struct DirectResults {
  /// By output; the results of the channels of moments (directItems()) one channel after another.
  std::vector<T> results, counts, kept_weights;
  std::size_t issued = 0;  ///< instructions of all warps
};

/// Of moments.
inline constexpr float kTargetCentre = 0.375;

/// The value of parameter `index` of the graph; the values of expressions' parameters are arbitrary.
template <class T>
T parameterOf(const Dag& dag, std::uint32_t index) {
  const ParameterSource& source = dag.parameters()[index];
  return source.isLiteral() ? static_cast<T>(source.literal) : T(0.25) + T(0.5) * static_cast<T>(source.index);
}

/// Runs all groups over all rows. The output of root r is (r + 3) modulo the number of roots, so that an exchange of
/// outputs is detected. Outputs of refused roots keep the value 12345.
template <class T>
DirectResults<T> runDirect(const Dag& dag, const DirectPart& part, const DirectImage& image,
                           const DirectOptions& options, DirectData<T>& data, DirectGrid grid,
                           std::uint32_t inaccuracy = 0) {
  std::vector<sass::Instruction> code;
  for (const sass::Word& word : image.words) code.push_back(sass::decode(word, options.architecture).value());
  const std::size_t roots = dag.roots().size(), row_groups = ceilDivide(data.rows, kGroupRows);
  const std::size_t per_output = options.loss ? row_groups : data.rows;
  DirectResults<T> out;
  const std::size_t items = directItems(options.loss);
  for (auto* values : {&out.results, &out.counts, &out.kept_weights}) {
    values->assign(roots * items * per_output, T(12345));
  }
  std::vector<T> numbers;
  for (const std::uint32_t index : part.parameters) numbers.push_back(parameterOf<T>(dag, index));
  std::vector<std::uint32_t> outputs;
  for (const std::uint32_t item : part.outputs) {
    const std::size_t output = (item / items + 3) % roots + roots * (item % items);
    outputs.push_back(item == DirectPart::kNoRoot ? ~0U : static_cast<std::uint32_t>(output));
  }
  std::vector<DirectGroup> groups = image.groups;
  SassMemory memory;
  DirectArguments arguments{};
  arguments.columns = memory.add(data.columns);
  arguments.target = memory.add(data.target);
  arguments.weights = memory.add(data.weights);
  arguments.results = memory.add(out.results);
  arguments.counts = memory.add(out.counts);
  arguments.kept_weights = memory.add(out.kept_weights);
  arguments.numbers = memory.add(numbers);
  arguments.outputs = memory.add(outputs);
  arguments.groups = memory.add(groups);
  arguments.rows = static_cast<std::uint32_t>(data.rows);
  arguments.column_stride = static_cast<std::uint32_t>(sizeof(T) * data.stride);
  arguments.row_stride = sizeof(T);
  arguments.output_stride = static_cast<std::uint32_t>(sizeof(T) * per_output);
  arguments.row_jump = directRowJump(grid);
  arguments.warps = grid.warps;
  if (options.loss && isOfMoments(options.loss->term)) {
    const T centre = kTargetCentre;
    std::memcpy(&arguments.kept_weights, &centre, sizeof centre);
  }
  const std::uint32_t first = architectureOf(options.architecture).parameters;
  std::vector<std::byte> bank(first + sizeof arguments);
  std::memcpy(bank.data() + first, &arguments, sizeof arguments);
  SassMachine machine(code, bank, memory, image.registers - sass::kHiddenRegisters, options.architecture);
  machine.setInaccuracy(inaccuracy);
  for (std::uint32_t y = 0; y < groups.size(); ++y) {
    for (std::uint32_t x = 0; x < grid.row_blocks; ++x) {
      for (unsigned warp = 0; warp < grid.warps; ++warp) out.issued += machine.runWarp(warp, x, y);
    }
  }
  return out;
}

/// Code of a graph.
struct Made {
  DirectPart part;
  DirectImage image;
};

inline Made make(const Dag& dag, const DirectOptions& options) {
  auto emitter = DirectEmitter::create(options);
  Made made{emitter.value().emit(dag), {}};
  made.image = joinDirect(std::span(&made.part, 1), options).value();
  EXPECT_LE(made.image.registers, options.registers);
  return made;
}

/// Every root at every row, in T.
template <class T>
std::vector<std::vector<T>> expected(const Dag& dag, const DirectData<T>& data) {
  std::vector<std::vector<T>> values(dag.roots().size());
  const std::vector<T> parameters = {T(0.25), T(0.75)};
  for (std::size_t r = 0; r < data.rows; ++r) {
    const std::vector<T> row = data.row(r, data.columns.size() / data.stride);
    const std::vector<T> roots = evaluate<T>(dag, row, parameters);
    for (std::size_t i = 0; i < roots.size(); ++i) values[i].push_back(roots[i]);
  }
  return values;
}

}  // namespace srjit
