#include "compiler/kernels/parameter_table.h"

#include <algorithm>

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

namespace srjit {
namespace {

// Entries that one task writes; about ten microseconds.
constexpr std::size_t kGrain = 1 << 14;

template <class T, class Patches>
void fillTable(const Patches& patches, std::span<const double> parameters, T* table) {
  const auto fillRange = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      table[patches[i].entry] = static_cast<T>(parameters[patches[i].parameter]);
    }
  };
  // Waking another thread takes longer than filling in few.
  if (patches.size() <= 2 * kGrain) return fillRange(0, patches.size());
  tbb::parallel_for(tbb::blocked_range<std::size_t>(0, patches.size(), kGrain),
                    [&](const auto& range) { fillRange(range.begin(), range.end()); });
}

}  // namespace

void ParameterTable::add(const ParameterSource& source, std::size_t parameter_offset) {
  if (!source.isLiteral()) {
    patches_.push_back(
        {static_cast<std::uint32_t>(literals_.size()), static_cast<std::uint32_t>(parameter_offset + source.index)});
  }
  literals_.push_back(source.isLiteral() ? source.literal : 0.0);
}

void ParameterTable::append(const ParameterTable& other) {
  const std::size_t entry = size(), patch = patches();
  resize(entry + other.size(), patch + other.patches());
  put(entry, patch, other);
}

void ParameterTable::append(const ParameterTable& other, std::size_t first, std::size_t last, std::size_t moved) {
  const auto here = static_cast<std::uint32_t>(size() - first);
  const auto literals = other.literals_.begin();
  literals_.insert(literals_.end(), literals + static_cast<std::ptrdiff_t>(first),
                   literals + static_cast<std::ptrdiff_t>(last));
  auto patch = std::ranges::lower_bound(other.patches_, first, {}, &Patch::entry);
  for (; patch != other.patches_.end() && patch->entry < last; ++patch) {
    patches_.push_back({patch->entry + here, patch->parameter + static_cast<std::uint32_t>(moved)});
  }
}

void ParameterTable::put(std::size_t entry, std::size_t patch, const ParameterTable& other) {
  std::ranges::copy(other.literals_, literals_.begin() + static_cast<std::ptrdiff_t>(entry));
  const auto base = static_cast<std::uint32_t>(entry);
  std::ranges::transform(other.patches_, patches_.begin() + static_cast<std::ptrdiff_t>(patch),
                         [&](const Patch& of) { return Patch{base + of.entry, of.parameter}; });
}

std::size_t ParameterTable::put(std::size_t entry, std::size_t patch, std::span<const ParameterSource> sources,
                                std::size_t parameter_offset) {
  for (const ParameterSource& source : sources) {
    if (!source.isLiteral()) {
      patches_[patch++] = {static_cast<std::uint32_t>(entry),
                           static_cast<std::uint32_t>(parameter_offset + source.index)};
    }
    literals_[entry++] = source.isLiteral() ? source.literal : 0.0;
  }
  return patch;
}

void ParameterTable::writeLiterals(Precision precision, std::byte* table) const {
  withZeroOf(precision, [&]<class T>(T) {
    std::transform(literals_.begin(), literals_.end(), reinterpret_cast<T*>(table),
                   [](double value) { return static_cast<T>(value); });
  });
}

void ParameterTable::fill(std::span<const double> parameters, Precision precision, std::byte* table) const {
  withZeroOf(precision, [&]<class T>(T) { fillTable(patches_, parameters, reinterpret_cast<T*>(table)); });
}

}  // namespace srjit
