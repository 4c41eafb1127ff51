#include "compiler/target/architecture.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace srjit {
namespace {

constexpr unsigned kNone = 0, kPtx = 1, kDirect = 2;

constexpr GenerationInfo kGenerations[] = {
#define SRJIT_GENERATION(id, parameters, descriptor, recent, reserved, flags, masks) \
  {parameters, descriptor, recent, reserved, flags, masks},
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

}  // namespace

std::span<const Architecture> allArchitectures() noexcept { return kArchitectures; }

const Architecture& architectureOf(unsigned number) noexcept {
  const auto after = std::ranges::upper_bound(kArchitectures, number, {}, &Architecture::number);
  return after == std::begin(kArchitectures) ? *after : *std::prev(after);
}

const Architecture& architectureOf(std::string_view name) noexcept {
  return *std::ranges::find(kArchitectures, name, &Architecture::name);
}

const GenerationInfo& infoOf(IsaGeneration generation) noexcept {
  return kGenerations[static_cast<std::size_t>(generation)];
}

std::span<const std::string_view> deviceArchitectures() noexcept {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> found;
    for (const Architecture& row : kArchitectures) {
      if (row.has_ptx) found.push_back(row.name);
    }
    return found;
  }();
  return names;
}

std::span<const unsigned> directArchitectures() noexcept {
  static const std::vector<unsigned> numbers = [] {
    std::vector<unsigned> found;
    for (const Architecture& row : kArchitectures) {
      if (row.has_direct_code) found.push_back(row.number);
    }
    return found;
  }();
  return numbers;
}

}  // namespace srjit
