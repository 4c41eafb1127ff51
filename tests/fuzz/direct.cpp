// Decodes any bytes to options of the direct tier and a batch of expressions. Invariants: the verifier finds no hazard
// in the code, and a model of a warp runs it without a fault. Its predictions have the bits of the rows of ops.def; in
// f32 and `fast` they are within the error bound.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/reference.h"
#include "ir/text.h"
#include "tests/compiler/direct/emitted.h"
#include "tests/compiler/direct/run.h"
#include "tests/fuzz/harness/direct_input.h"
#include "tests/generators/graphs.h"

namespace {

using namespace srjit;
using fuzz::GraphInput;
using fuzz::require;

constexpr std::size_t kMostTokens = 2000;  // of an expression whose bound is computed

/// The values that parameterOf() gives.
template <class T>
const std::vector<T> kParameters = {T(0.25), T(0.75), T(1.25)};

bool isWithin(double value, const Bounded& bound) {
  if (std::isinf(bound.error)) return true;
  if (std::isnan(bound.value)) return std::isnan(value);
  return value == bound.value || std::fabs(value - bound.value) <= bound.error;
}

template <class T>
void checkRow(const Dag& dag, const DirectPart& part, const DirectOptions& options, const std::vector<T>& row,
              const DirectResults<T>& out, std::size_t r, std::size_t rows) {
  const bool is_approximate = options.math == Math::kFast && options.precision == Precision::kF32;
  const std::vector<T> wanted = evaluate<T>(dag, row, kParameters<T>);
  for (std::size_t root = 0; root < wanted.size(); ++root) {
    if (std::ranges::binary_search(part.refused, root)) continue;
    const T value = out.results[(root + 3) % wanted.size() * rows + r];
    bool is_right = sameBits(value, wanted[root]);
    if (!is_right && is_approximate) {
      const auto expression = dag.toExpression(root, kMostTokens);
      const std::vector<double> variables(row.begin(), row.end());
      is_right = !expression ||
                 isWithin(static_cast<double>(value),
                          evaluateBounded(*expression, variables, kParameters<double>, {Precision::kF32, Math::kFast}));
    }
    require(is_right, "direct code gives the values of the rows", [&] {
      return fmt::format("{:.17g}, not {:.17g}, for root {} of\n{}", static_cast<double>(value),
                         static_cast<double>(wanted[root]), root, printDag(dag));
    });
  }
}

template <class T>
void check(const std::vector<Expression>& batch, const DirectOptions& options, const std::vector<double>& numbers,
           std::uint8_t shape) {
  const Dag dag = fuzz::directGraphFrom(batch, options);
  auto emitter = DirectEmitter::create(options).value();
  const DirectPart part = emitter.emit(dag);
  const DirectImage image = joinDirect(std::span(&part, 1), options).value();
  require(image.registers <= options.registers, "no more registers than allowed");
  if (image.groups.empty()) return;  // all roots were refused
  const Emitted emitted(image, options.architecture);
  const auto found = emitted.hazards();
  require(found.empty(), "direct code has no hazards", [&] { return emitted.text(found); });
  const std::size_t rows = 1 + shape % 40, columns = GraphInput::kVariables;
  auto data = DirectData<T>::random(rows, columns, Spread::kSpecial, shape);
  for (std::size_t c = 0; c < columns; ++c) {
    data.columns[c * data.stride] = static_cast<T>(roundTo(options.precision, numbers[c]));
  }
  try {
    const DirectGrid grid{.row_blocks = 1, .warps = 1 + shape / 64U};
    const auto out = runDirect(dag, part, image, options, data, grid);
    if (options.loss) return;
    for (std::size_t r = 0; r < rows; ++r) checkRow(dag, part, options, data.row(r, columns), out, r, rows);
  } catch (const SassFault& fault) {
    require(false, fault.what(), printDag(dag));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  GraphInput input(data, size);
  const DirectOptions options = fuzz::directOptionsFrom(input.options);
  const std::uint8_t shape = input.options.byte();
  const std::vector<double> numbers = input.numbers(GraphInput::kVariables);
  const std::vector<Expression> batch = input.batch();
  if (options.precision == Precision::kF32) {
    check<float>(batch, options, numbers, shape);
  } else {
    check<double>(batch, options, numbers, shape);
  }
  return 0;
}
