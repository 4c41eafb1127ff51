// Trees as arrays of one length for all, and a kernel that evaluates them from the last node to the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/expression.h"

namespace srjit {

/// The nodes of all trees, three arrays of trees x length. A tree has its nodes in prefix order at the beginning of its
/// row; the rest of the row is zero.
struct TreeArrays {
  enum Type : std::int16_t { kConstant, kVariable, kParameter, kUnary, kBinary };

  std::size_t length = 0;     ///< that of a row: the nodes of the largest tree
  std::vector<float> values;  ///< a constant, or the number of a column, parameter or operator (baselineOpNumber())
  std::vector<std::int16_t> types;
  std::vector<std::int16_t> sizes;  ///< nodes of the subtree
};

/// Replaces `arrays`, and keeps their memory. Throws BenchFailure (kUnsupported) for an operator that the baselines
/// lack, for more parameters than a float can number, and for a tree of more than kTreeNodes nodes or kStackEntries
/// values at once.
void fillTreeArrays(std::span<const Expression> expressions, TreeArrays& arrays);

inline constexpr std::size_t kTreeNodes = INT16_MAX;
/// Rows of one thread.
inline constexpr std::size_t kTreeStripRows = 4;
inline constexpr const char* kTreeKernel = "tree_baseline";

/// The kernel (see ../ptx.h), with these parameters after the common ones: u64 values, u64 types, u64 sizes (of the
/// tree of ctaid.y = 0 on), u32 length. The rows of a thread are as far apart as the grid has threads in x.
std::string treeKernelPtx();

}  // namespace srjit
