#include "compiler/target/architecture.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <iterator>
#include <type_traits>

namespace srjit {
namespace {

constexpr unsigned kNone = 0, kPtx = 1, kDirect = 2;

// What the rows of a generation have in common, by its name.
#define SRJIT_GENERATION(id, parameters, descriptor, split, recent, reserved, flags, masks) \
  constexpr Architecture id = {0, {}, IsaGeneration::id, parameters, descriptor, split, recent, reserved, flags, masks};
#include "compiler/target/architectures.def"

constexpr Architecture kArchitectures[] = {
#define SRJIT_ARCHITECTURE(id, generation, tiers, copies, doubles, predicate, compatible, work) \
  [] {                                                                                          \
    Architecture row = generation;                                                              \
    row.number = id;                                                                            \
    row.name = "sm_" #id;                                                                       \
    row.has_ptx = ((tiers) & kPtx) != kNone;                                                    \
    row.has_direct_code = ((tiers) & kDirect) != kNone;                                         \
    row.has_async_copies = copies;                                                              \
    row.has_fixed_doubles = doubles;                                                            \
    row.predicate_delay = predicate;                                                            \
    row.compatibility = compatible;                                                             \
    row.workarounds = work;                                                                     \
    return row;                                                                                 \
  }(),
#include "compiler/target/architectures.def"
};
static_assert(std::ranges::is_sorted(kArchitectures, {}, &Architecture::number));

/// `kField` of the rows whose `kHas` is true. A constant, so that it lives as long as the process.
template <bool Architecture::* kHas, auto kField>
constexpr auto select() {
  constexpr auto kCount = static_cast<std::size_t>(std::ranges::count(kArchitectures, true, kHas));
  std::array<std::remove_cvref_t<decltype(kArchitectures[0].*kField)>, kCount> fields{};
  std::size_t next = 0;
  for (const Architecture& row : kArchitectures) {
    if (row.*kHas) fields[next++] = row.*kField;
  }
  return fields;
}
constexpr auto kPtxNames = select<&Architecture::has_ptx, &Architecture::name>();
constexpr auto kDirectNumbers = select<&Architecture::has_direct_code, &Architecture::number>();

}  // namespace

std::span<const Architecture> allArchitectures() noexcept { return kArchitectures; }

const Architecture& architectureOf(unsigned number) noexcept {
  const auto after = std::ranges::upper_bound(kArchitectures, number, {}, &Architecture::number);
  return after == std::begin(kArchitectures) ? *after : *std::prev(after);
}

const Architecture& architectureOf(std::string_view name) noexcept {
  const auto found = std::ranges::find(kArchitectures, name, &Architecture::name);
  assert(found != std::end(kArchitectures));
  return *found;
}

std::span<const std::string_view> ptxArchitectures() noexcept { return kPtxNames; }
std::span<const unsigned> directArchitectures() noexcept { return kDirectNumbers; }

}  // namespace srjit
