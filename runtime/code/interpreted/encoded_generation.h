// The encoded programs of a population, so that individuals that recur in the next one are not prepared again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/handler_table.h"
#include "compiler/kernels/parameter_table.h"
#include "ir/population.h"
#include "runtime/results.h"

namespace srjit {

/// A program of one expression in an EncodedChunk; where its parts begin there.
struct EncodedProgram {
  std::size_t token, parameter;  ///< the first of its tokens and of its entries of the table
  std::size_t code, constant;    ///< the first of its expression's
  std::size_t codes;             ///< of its expression
  std::size_t parameter_offset;  ///< ProgramSource::parameterOffset() of its expression
  std::uint32_t nodes, slots, hash;
};

/// Of programs that one worker has encoded: a task of the host, or the device.
struct EncodedFacts {
  std::size_t tokens = 0, nodes = 0;         ///< of the expressions, and of their graphs
  std::size_t recurring = 0;                 ///< programs that were found in the generation before
  std::vector<std::uint8_t> operators = {};  ///< by operator: whether a graph has it
  std::vector<std::uint8_t> variables = {};  ///< the same by number in the section

  void takeOperator(Op op) { operators[static_cast<std::size_t>(op)] = 1; }
  void takeVariable(std::uint32_t number) {
    if (number >= variables.size()) variables.resize(number + std::size_t{1});
    variables[number] = 1;
  }
};

/// Adjacent chosen expressions, encoded by one task.
struct EncodedChunk : EncodedFacts {
  static constexpr std::size_t kMost = 1024;  ///< expressions

  std::size_t first = 0, last = 0;  ///< of the chosen
  std::size_t section = 0;
  Bytecode code = {};
  std::vector<std::uint32_t> lengths = {};  ///< of the programs
  std::vector<std::uint32_t> slots = {};    ///< of the programs
  ParameterTable parameters = {};
  std::vector<Failure> failures = {};

  // Of the programs that the next generation may take, with their expressions:
  std::vector<EncodedProgram> programs = {};
  std::vector<std::int32_t> codes = {};
  std::vector<double> constants = {};

  /// Makes it that of other expressions, in the same memory.
  void begin(std::size_t first_chosen, std::size_t last_chosen, std::size_t number_of_section);
  /// Leaves these failures, and no program.
  void refuse(std::vector<Failure> all);
  /// Adds a program's record, before anything else of it.
  void beginProgram(const ExpressionView& expression, std::uint32_t hash, std::size_t parameter_offset);
  std::size_t bytes() const noexcept;
};

/// Of all that a program depends on; not of the place of the expression's parameters.
std::uint32_t contentHash(const ExpressionView& expression) noexcept;

/// Finds programs by the content of their expressions. Const members are thread-safe.
class EncodedGeneration {
 public:
  struct Found {
    const EncodedChunk* chunk = nullptr;  ///< null: not found
    std::size_t program = 0;
  };

  /// Has the programs of these chunks, which must not change meanwhile; in parallel on the calling thread's arena.
  void set(std::span<const EncodedChunk> chunks);
  bool isEmpty() const noexcept { return programs_ == 0; }
  Found find(const ExpressionView& expression, std::uint32_t hash) const noexcept;
  std::size_t bytes() const noexcept { return slots_.capacity() * sizeof(std::uint64_t); }

 private:
  void insert(std::uint64_t slot);

  std::span<const EncodedChunk> chunks_;
  std::size_t programs_ = 0;
  /// Open addressing, at most half full: hash << 32 | EncodedChunk::kMost * chunk + program + 1, or 0.
  std::vector<std::uint64_t> slots_;
};

}  // namespace srjit
