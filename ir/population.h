// Many expressions in few arrays, as GP systems hand them over: without text and without an object per expression.
//
//   // x0 * 2 + p0, and sin(x1)
//   std::int32_t codes[] = {variableCode(0), kConstantCode, codeOf(Op::kMul), parameterCode(0), codeOf(Op::kAdd),
//                           variableCode(1), codeOf(Op::kSin)};
//   double constants[] = {0, 2, 0, 0, 0, 0, 0};
//   std::int64_t offsets[] = {0, 5, 7};
//   Program program = engine.compile(PopulationView{codes, constants, offsets});
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/error.h"
#include "ir/expression.h"
#include "ir/expression_view.h"
#include "ir/numeric.h"
#include "ir/token_codes.h"

namespace srjit {

/// The order of the tokens of an expression.
enum class Notation : std::uint8_t {
  kPostfix,  ///< operands, then the operator
  kPrefix,   ///< the operator, then operands
};

/// Expressions as a caller has them. Expression e has the tokens offsets[e] to offsets[e + 1] - 1.
struct PopulationView {
  std::span<const std::int32_t> codes;
  std::span<const double>
      constants;  ///< by token: any number unless the code is kConstantCode. Empty if there are none
  std::span<const std::int64_t> offsets;  ///< one more than there are expressions, from 0 to codes.size(), ascending
  Notation notation = Notation::kPostfix;

  std::size_t size() const noexcept { return offsets.empty() ? 0 : offsets.size() - 1; }
};

/// Checks the arrays as a whole. Errors (kInvalid): offsets that do not begin with 0, descend, or do not end at
/// the last token, and another number of constants than tokens. Parts of a population need no check of their own.
Status checkArrays(const PopulationView& population);

/// Expressions that are valid. Its memory is in blocks, so that several threads fill it. Adding an expression, which
/// must not be one of this population, invalidates views of the last block. A copy shares the memory until either of
/// both is added to. One that was moved from may only be destroyed or assigned to. Const members are thread-safe.
class Population {
 public:
  static constexpr std::size_t kBlock = 1024;  ///< expressions of a block; only the last may have fewer

  /// Expressions kBlock * i and following, filled by one thread.
  class Block {
   public:
    std::size_t size() const noexcept { return entries_.size(); }
    std::size_t tokens() const noexcept { return codes_.size(); }
    std::uint32_t variableCount() const noexcept { return variables_; }  ///< the largest of its expressions
    std::size_t parameters() const noexcept { return parameters_; }      ///< of all its expressions
    ExpressionView operator[](std::size_t i) const noexcept;

    void reserve(std::size_t expressions, std::size_t tokens);
    void add(const Expression& expression);
    void add(const ExpressionView& expression);
    /// Appends expression `e` of a checked population. For one that is not valid, it appends the constant NaN and gives
    /// an error (kInvalid) as Expression::create() has it; spans count the tokens of the expression as given. It does
    /// the same for one of more than `max_nodes` tokens, if that is not 0 (kLimit).
    Status add(const PopulationView& population, std::size_t e, std::size_t max_nodes = 0);
    /// Appends the constant NaN, which stands for an expression that is not there.
    void addNone();

   private:
    friend class Population;
    struct Entry {
      std::size_t code, constant;  ///< its first
      std::uint32_t variables, parameters;
      std::size_t first_parameter;  ///< of those of the block
    };
    /// Values, behind which more may be written before it is known how many of them count. One that was moved from may
    /// only be destroyed or assigned to.
    template <class T>
    class Array {
     public:
      std::span<const T> values() const noexcept { return {memory_.data(), size_}; }
      std::size_t size() const noexcept { return size_; }
      void reserve(std::size_t count) { memory_.resize(std::max(memory_.size(), count)); }
      /// Where the next `count` values may be written.
      T* room(std::size_t count) {
        if (memory_.size() - size_ < count) memory_.resize(std::max(size_ + count, 2 * size_));
        return memory_.data() + size_;
      }
      /// The first `count` elements that were written there now belong to the array.
      void extend(std::size_t count) noexcept { size_ += count; }
      void cut(std::size_t size) noexcept { size_ = size; }
      void add(T value) {
        *room(1) = value;
        extend(1);
      }
      void add(std::span<const T> more) {
        std::ranges::copy(more, room(more.size()));
        extend(more.size());
      }

     private:
      std::vector<T> memory_;
      std::size_t size_ = 0;
    };
    std::size_t parametersBefore(std::size_t i) const noexcept {
      return i < entries_.size() ? entries_[i].first_parameter : parameters_;
    }
    void beginEntry() { entries_.push_back({codes_.size(), constants_.size(), 0, 0, parameters_}); }
    void endEntry(std::uint32_t variables, std::uint32_t parameters);
    Status append(std::span<const std::int32_t> codes, const double* constants);
    /// Appends the tokens. False where they are not valid; the appended tokens are then useless.
    bool appendIfValid(std::span<const std::int32_t> codes, const double* constants);
    void appendConstants(std::span<const std::int32_t> codes, const double* constants);
    Status turn(std::span<const std::int32_t> codes, const double* constants);
    void replaceLast();

    std::vector<Entry> entries_;
    Array<std::int32_t> codes_;
    Array<double> constants_;  ///< of the tokens that are constants
    std::uint32_t variables_ = 0;
    std::size_t parameters_ = 0;
    // Of turn():
    std::vector<std::pair<std::size_t, int>> pending_;  ///< operators, and how many operands each still needs
    std::vector<std::int32_t> turned_codes_;
    std::vector<double> turned_constants_;
  };

  Population() = default;
  explicit Population(std::span<const Expression> expressions);

  std::size_t size() const noexcept {
    return blocks_.empty() ? 0 : kBlock * (blocks_.size() - 1) + blocks_.back().size();
  }
  ExpressionView operator[](std::size_t e) const noexcept { return blocks_[e / kBlock][e % kBlock]; }
  std::size_t tokens() const noexcept;
  std::uint32_t variableCount() const noexcept;
  /// Where the parameters of expression `e` begin, if those of all expressions are put behind one another; for
  /// e = size() their number.
  std::size_t parameterOffset(std::size_t e) const noexcept {
    const std::size_t block = e / kBlock;
    return block == blocks_.size() ? all_parameters_
                                   : block_offsets_[block] + blocks_[block].parametersBefore(e % kBlock);
  }

  void add(const Expression& expression);
  void add(const ExpressionView& expression);
  /// The blocks of an empty population that gets `expressions` expressions. The caller fills them and calls finish()
  /// before anything is copied.
  std::span<Block> makeBlocks(std::size_t expressions);
  void finish();

 private:
  /// The blocks, which no other population shares after this.
  std::vector<Block>& ownBlocks();
  Block& blockForMore();

  std::shared_ptr<std::vector<Block>> memory_;  ///< null for no expressions
  std::span<Block> blocks_;                     ///< of the memory
  std::vector<std::size_t> block_offsets_;      ///< parameterOffset() of the first expression of a block
  std::size_t all_parameters_ = 0;
};

/// Tokens of an expression at most, since a lane keeps all of them in shared memory.
inline constexpr std::uint32_t kMostDeviceTokens = 256;

/// Addresses of a GPU's memory. Nothing outside of the arrays is read, whatever they hold: expressions that are not
/// valid have a DeviceFault each.
struct DevicePopulation {
  /// int32, `tokens` of them (ir/token_codes.h).
  std::uint64_t codes = 0;
  /// `tokens` numbers: those of tokens that are constants or parameters, and any others. Equal parameters of an
  /// expression must have equal values. 0: no token is one.
  std::uint64_t values = 0;
  std::size_t tokens = 0;  ///< of the arrays; without offsets at least stride * expressions
  std::size_t expressions = 0;
  /// int64, expressions + 1, as those of PopulationView. 0: expression e begins at e * stride.
  std::uint64_t offsets = 0;
  std::size_t stride = 0;
  /// int32 by expression. 0: up to the next expression; in prefix without offsets, as long as its tokens say.
  std::uint64_t lengths = 0;
  Precision values_type = Precision::kF32;
  Notation notation = Notation::kPostfix;
};

/// Why an expression has no loss.
enum class DeviceFault : std::uint8_t {
  kNone,
  kLength,    ///< no tokens, more than the most, or outside of the arrays
  kCode,      ///< a code that no operator has, or one of a number without values
  kOperator,  ///< one that was not among the operators given
  kVariable,  ///< one that the data do not have
  kOperands,  ///< an operator lacks operands
  kRest,      ///< tokens that belong to no operator
  kSlots,     ///< more values are kept meanwhile than there is room for
};
/// A clause such as "an operator lacks operands".
std::string_view textOf(DeviceFault fault) noexcept;

}  // namespace srjit
