#include "compiler/kernels/parameter_table.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "ir/numeric.h"
#include "passes/dag.h"

namespace srjit {
namespace {

ParameterSource literal(double value) { return {.literal = value}; }
/// The value is that of no entry.
ParameterSource parameter(std::uint32_t index) { return {.expression = 0, .index = index, .literal = 7.5}; }

/// About half of them literals; the others are the caller's parameters from the last one to the first.
std::vector<ParameterSource> mixedSources(std::size_t count) {
  std::mt19937 random(5);
  std::vector<ParameterSource> sources;
  for (std::size_t i = 0; i < count; ++i) {
    sources.push_back(random() % 2 == 0 ? literal(-1.0 / static_cast<double>(i + 3))
                                        : parameter(static_cast<std::uint32_t>(count - 1 - i)));
  }
  return sources;
}

template <class T>
std::vector<T> literalsOf(const ParameterTable& table) {
  std::vector<T> values(table.size(), T{99});
  table.writeLiterals(kPrecisionOf<T>, std::as_writable_bytes(std::span(values)).data());
  return values;
}

template <class T>
std::vector<T> filled(const ParameterTable& table, std::span<const double> parameters) {
  std::vector<T> values = literalsOf<T>(table);
  table.fill(parameters, kPrecisionOf<T>, std::as_writable_bytes(std::span(values)).data());
  return values;
}

template <class T>
void expectEntries(std::size_t count) {
  const std::vector<ParameterSource> sources = mixedSources(count);
  ParameterTable table;
  for (const ParameterSource& source : sources) table.add(source, 0);
  std::vector<double> parameters;
  std::vector<T> literals, all;
  for (std::size_t i = 0; i < count; ++i) parameters.push_back(0.1 * static_cast<double>(i + 1));
  for (const ParameterSource& source : sources) {
    literals.push_back(static_cast<T>(source.isLiteral() ? source.literal : 0.0));
    all.push_back(static_cast<T>(source.isLiteral() ? source.literal : parameters[source.index]));
  }
  EXPECT_EQ(literalsOf<T>(table), literals) << count;
  EXPECT_EQ(filled<T>(table, parameters), all) << count;
}

// Around the sizes from which on several threads write.
TEST(ParameterTable, HasAllEntriesWhoeverWritesThem) {
  for (const std::size_t count : {0, 1, 100, 1 << 15, (1 << 15) + 1, 1 << 16, (1 << 16) + 3, 200'001}) {
    expectEntries<float>(count);
    expectEntries<double>(count);
  }
}

}  // namespace
}  // namespace srjit
