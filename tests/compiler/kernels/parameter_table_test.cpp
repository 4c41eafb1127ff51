#include "compiler/kernels/parameter_table.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <gmock/gmock.h>

#include "ir/numeric.h"
#include "passes/dag.h"

namespace srjit {
namespace {

using testing::ElementsAre;

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

// The patches that are put last come first: nothing is written behind those of the sources.
TEST(ParameterTable, PutsSourcesInAnyOrder) {
  const std::vector<ParameterSource> a = {literal(1), parameter(1), literal(2), parameter(0), literal(3)};
  const std::vector<ParameterSource> b = {parameter(0), literal(4), literal(5)};
  const std::vector<ParameterSource> c = {literal(6), literal(-0.0)};
  ParameterTable table;
  table.resize(10, 3);
  table.put(7, 2, 1, b, 2);
  table.put(0, 0, 2, a, 0);
  table.put(5, 2, 0, c, 2);
  EXPECT_EQ(table.patches(), 3U);
  const std::vector<double> parameters = {10, 20, 30};
  EXPECT_THAT(filled<double>(table, parameters), ElementsAre(1, 20, 2, 10, 3, 6, 0, 30, 4, 5));
  EXPECT_TRUE(std::signbit(literalsOf<double>(table)[6]));
}

// What literals write as patches is overwritten by the parameters behind them.
TEST(ParameterTable, PutsTheSameAsIsAdded) {
  constexpr std::size_t kOfExpression = 7;
  const std::vector<ParameterSource> sources = mixedSources(100 * kOfExpression);
  ParameterTable added, put;
  for (const ParameterSource& source : sources) added.add(source, 3);
  put.resize(added.size(), added.patches());
  std::size_t patch = 0;
  for (std::size_t first = 0; first < sources.size(); first += kOfExpression) {
    const std::span<const ParameterSource> some = std::span(sources).subspan(first, kOfExpression);
    const std::ptrdiff_t literals = std::ranges::count_if(some, &ParameterSource::isLiteral);
    const std::size_t patches = some.size() - static_cast<std::size_t>(literals);
    put.put(first, patch, patches, some, 3);
    patch += patches;
  }
  EXPECT_EQ(patch, added.patches());
  std::vector<double> parameters;
  for (std::size_t i = 0; i < sources.size() + 3; ++i) parameters.push_back(static_cast<double>(i) + 0.5);
  EXPECT_EQ(filled<double>(put, parameters), filled<double>(added, parameters));
}

}  // namespace
}  // namespace srjit
