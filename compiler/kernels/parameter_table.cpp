#include "compiler/kernels/parameter_table.h"

#include <algorithm>

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

namespace srjit {
namespace {

// Entries that one task writes; about ten microseconds.
constexpr std::size_t kGrain = 1 << 14;

/// body(begin, end) of ranges that together are 0 to count - 1.
template <class Body>
void inRanges(std::size_t count, const Body& body) {
  // Waking another thread takes longer than writing few.
  if (count <= 2 * kGrain) return body(std::size_t{0}, count);
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(tbb::blocked_range<std::size_t>(0, count, kGrain),
                      [&](const auto& range) { body(range.begin(), range.end()); });
  });
}

}  // namespace

void ParameterTable::add(const ParameterSource& source, std::size_t parameter_offset) {
  source.isLiteral() ? addLiteral(source.literal) : addParameter(parameter_offset + source.index);
}

void ParameterTable::add(const Tree& tree, std::span<const NodeId> leaves, std::size_t parameter_offset) {
  for (const NodeId leaf : leaves) {
    const TreeNode& node = tree.nodes[leaf];
    if (node.kind == Token::Kind::kConstant) {
      addLiteral(tree.values[leaf]);
    } else {
      addParameter(parameter_offset + node.index());
    }
  }
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

void ParameterTable::writeLiterals(Precision precision, std::byte* table) const {
  withZeroOf(precision, [&]<class T>(T) {
    T* const entries = reinterpret_cast<T*>(table);
    inRanges(size(), [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) entries[i] = static_cast<T>(literals_[i]);
    });
  });
}

void ParameterTable::fill(std::span<const double> parameters, Precision precision, std::byte* table) const {
  withZeroOf(precision, [&]<class T>(T) {
    T* const entries = reinterpret_cast<T*>(table);
    inRanges(patches_.size(), [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        entries[patches_[i].entry] = static_cast<T>(parameters[patches_[i].parameter]);
      }
    });
  });
}

}  // namespace srjit
