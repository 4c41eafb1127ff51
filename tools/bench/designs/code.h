// The operators of the designs, and the forms that these give to expressions: programs of tokens, trees in arrays, PTX
// and CUDA C++.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/kernels/image_maker.h"
#include "ir/expression.h"
#include "ir/numeric.h"
#include "ir/ops.h"

namespace srjit {

/// Capacity of the interpreters' stacks, in values.
inline constexpr std::size_t kStackEntries = 64;

/// An operator of the designs.
struct BaselineOp {
  Op op;
  /// Instructions from {x} and {y} to {r}, which is a different register; temporaries are %ta to %tc (f32), %ia and %ib
  /// (b32), %pa and %pb (predicates).
  const char* ptx;
  const char* cuda;  ///< C++ expression of {x} and {y}, for a compiler with approximate arithmetic
};
/// All rows, in the order of the table.
std::span<const BaselineOp> allBaselineOps() noexcept;
/// The number of an operator's row. Throws BenchFailure (kUnsupported) for an operator without a row.
std::size_t baselineOpNumber(Op op);
/// A cell with operands and result filled in.
std::string fillBaselineOp(const char* cell, std::string_view x, std::string_view y, std::string_view r);

/// A token of an expression in postfix order, in 8 bytes.
struct StackToken {
  /// Codes of operands. Those of operators are kFirstOp + baselineOpNumber().
  enum Code : std::uint32_t { kConstant = 0, kVariable = 1, kParameter = 2, kCached = 3, kFirstOp = 4 };

  std::uint32_t code;
  std::uint32_t value;  ///< bits of a constant; number of a column, parameter or cached column

  friend bool operator==(const StackToken&, const StackToken&) = default;
};

/// Concatenated programs: program i has the tokens [offsets[i], offsets[i + 1]).
struct StackPrograms {
  std::vector<StackToken> tokens;
  std::vector<std::uint32_t> offsets = {0};

  void endProgram() { offsets.push_back(static_cast<std::uint32_t>(tokens.size())); }
  std::size_t size() const noexcept { return offsets.size() - 1; }
};

/// A program for each expression; parameters are numbered across expressions. Throws BenchFailure (kUnsupported) for an
/// operator that the designs lack, and for an expression that needs more than kStackEntries values at once.
StackPrograms stackPrograms(std::span<const Expression> expressions);

/// The interpreter of such programs: a stack in local memory, one row per thread, a tree of comparisons per token.
/// After the common parameters (device.h): u64 cached (cached column c starts at cached + 4 rows c), u64 tokens, u64
/// offsets (from the program of ctaid.y = 0 on).
inline constexpr const char* kStackKernel = "stack_baseline";
std::string stackInterpreterPtx();

/// Programs of a population whose common subtrees are evaluated once, into columns.
struct CachePlan {
  /// First a program for each cached column, then one for each expression, which reads them as tokens kCached.
  StackPrograms programs;
  std::size_t cached = 0;
};

/// Finds equal subtrees by hashing from the leaves up; parameters of two expressions are never equal. Caches the
/// largest subtrees that occur more than once; a subtree inside of a cached one is cached only if it also occurs
/// elsewhere. At most `max_cached`: those that save the most tokens. Linear in the tokens. Throws BenchFailure as
/// stackPrograms() does.
CachePlan planSubtreeCache(std::span<const Expression> expressions, std::size_t max_cached);

/// The nodes of all trees, three arrays of trees x length. A tree has its nodes in prefix order at the beginning of its
/// row; the rest of the row is zero.
struct TreeArrays {
  enum Type : std::int16_t { kConstant, kVariable, kParameter, kUnary, kBinary };

  std::size_t length = 0;     ///< that of a row: the nodes of the largest tree
  std::vector<float> values;  ///< a constant, or the number of a column, parameter or operator (baselineOpNumber())
  std::vector<std::int16_t> types;
  std::vector<std::int16_t> sizes;  ///< nodes of the subtree
};
inline constexpr std::size_t kTreeNodes = INT16_MAX;

/// Replaces `arrays`, and keeps their memory. Throws BenchFailure (kUnsupported) for an operator that the designs lack,
/// for more parameters than a float can number, and for a tree of more than kTreeNodes nodes or kStackEntries values at
/// once.
void fillTreeArrays(std::span<const Expression> expressions, TreeArrays& arrays);

/// The interpreter of such trees, from the last node to the first. After the common parameters (device.h): u64 values,
/// u64 types, u64 sizes (of the tree of ctaid.y = 0 on), u32 length. The rows of a thread are as far apart as the grid
/// has threads in x.
inline constexpr const char* kTreeKernel = "tree_baseline";
std::string treeKernelPtx();

/// An expression as one kernel in PTX, with constants as immediates and parameters of its own. Throws BenchFailure for
/// an operator that the designs lack.
inline constexpr const char* kExpressionKernel = "expression";
std::string transpile(const Expression& expression);

/// Expressions as one kernel in CUDA C++, population(columns, rows, parameters, target, out, first), whose block row y
/// evaluates the expression `first + y` by a switch, one row per thread; parameters are those of all these expressions,
/// `out` is for expression `first`. Throws BenchFailure for an operator that the designs lack.
inline constexpr const char* kPopulationKernel = "population";
std::string cudaSource(std::span<const Expression> expressions);

/// Compiles such a source by NVRTC, which is loaded at first use, with --use_fast_math for `arch` ("sm_90"), to machine
/// code or to PTX. Errors: kMachine without libnvrtc (or one that lacks an entry), kCompile with its log.
/// Thread-safe.
Result<KernelImage> compileCuda(const std::string& source, const std::string& arch, bool to_ptx);
/// Whether compileCuda() finds the library.
bool hasNvrtc();

}  // namespace srjit
