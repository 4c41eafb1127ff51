#include "compiler/target/architecture.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <iterator>
#include <type_traits>

namespace srjit {
namespace {

constexpr unsigned kNone = 0, kPtx = 1, kDirect = 2;

constexpr GenerationInfo kGenerations[] = {
#define SRJIT_GENERATION(id, parameters, descriptor, split, recent, reserved, flags, masks) \
  {parameters, descriptor, split, recent, reserved, flags, masks},
#include "compiler/target/architectures.def"
};

constexpr Architecture kArchitectures[] = {
#define SRJIT_ARCHITECTURE(number, generation, tiers, copies, doubles, predicate, compatibility, workarounds) \
  {number,                                                                                                    \
   "sm_" #number,                                                                                             \
   IsaGeneration::generation,                                                                                 \
   ((tiers) & kPtx) != kNone,                                                                                 \
   ((tiers) & kDirect) != kNone,                                                                              \
   copies,                                                                                                    \
   doubles,                                                                                                   \
   predicate,                                                                                                 \
   compatibility,                                                                                             \
   workarounds},
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

const GenerationInfo& infoOf(IsaGeneration generation) noexcept {
  return kGenerations[static_cast<std::size_t>(generation)];
}

std::span<const std::string_view> ptxArchitectures() noexcept { return kPtxNames; }
std::span<const unsigned> directArchitectures() noexcept { return kDirectNumbers; }

}  // namespace srjit
