// Encoding: chunks of expressions, in parallel, by sections that are staged with the same columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compiler/interpreter/encoder.h"
#include "compiler/kernels/parameter_table.h"
#include "ir/population.h"
#include "runtime/code/parts.h"
#include "runtime/results.h"

namespace srjit {

/// Programs are encoded before it is known which operators and columns all of them need. Until then their tokens have
/// the handlers of the family of all operators; columns are variables, and slots are numbered from here on. Where there
/// are more variables, those of a section are numbered. An interpreter stages far fewer columns.
inline constexpr std::uint32_t kFirstSlot = 1U << 17;

/// What the columns and slots of a program may take of a block's shared memory: three and two parts of seven, so that
/// two are left for tokens. With four teams, which share the columns of one strip, there is room for four times as many
/// columns as with one; slots are of each team. What keeps to that can be launched so (chooseGeometry).
struct InterpreterLimits {
  std::size_t columns, slots;

  InterpreterLimits(const DeviceLimits& limits, Precision precision);
};

/// Neighbours whose programs are staged with the same columns.
struct SectionDraft {
  std::size_t first, last;                    ///< of the chosen
  std::vector<std::uint32_t> numbers = {};    ///< by variable; empty: the identity
  std::vector<std::uint32_t> variables = {};  ///< by number, unless that is the identity
  std::vector<std::uint32_t> columns = {};    ///< staged columns
  std::vector<std::uint32_t> staged_as = {};  ///< by number

  /// The variable's number where it has one; others are refused.
  std::optional<std::uint32_t> numberOf(std::uint32_t variable) const;
  /// Stages the variables that are used, by their number.
  void stage(const std::vector<bool>& uses);
  /// How many numbers there are, given the number of all variables.
  std::size_t numbered(std::uint32_t all_variables) const { return numbers.empty() ? all_variables : variables.size(); }
  std::uint32_t stagedColumns() const { return static_cast<std::uint32_t>(columns.size()); }
};

/// One section for all, unless they have too many variables. Then neighbours share one as long as their columns fit; an
/// expression of more columns is a section of its own.
std::vector<SectionDraft> findSections(const CompileOrder& order, const InterpreterLimits& limits);

struct EncodedProgram;

/// Adjacent chosen expressions, encoded by one task.
struct EncodedChunk {
  static constexpr std::size_t kMost = 1024;  ///< expressions

  std::size_t first = 0, last = 0;  ///< of the chosen
  std::size_t section = 0;
  std::size_t tokens = 0, nodes = 0;         ///< of the expressions, and of their graphs
  std::size_t recurring = 0;                 ///< programs that were found in the generation before
  std::vector<std::uint8_t> operators = {};  ///< by operator: whether a graph has it
  std::vector<std::uint8_t> variables = {};  ///< the same by number in the section
  Bytecode code = {};
  std::vector<std::uint32_t> lengths = {};  ///< of the programs
  std::vector<std::uint32_t> slots = {};    ///< of the programs
  ParameterTable parameters = {};
  std::vector<Failure> failures = {};

  // Of the programs that the next generation may take, with their expressions:
  std::vector<EncodedProgram> programs;
  std::vector<std::int32_t> codes = {};
  std::vector<double> constants = {};

  /// Makes it that of other expressions, in the same memory.
  void begin(std::size_t first_chosen, std::size_t last_chosen, std::size_t number_of_section);
  /// Leaves these failures, and no program.
  void refuse(std::vector<Failure> all);
  void takeOperator(Op op) { operators[static_cast<std::size_t>(op)] = 1; }
  void takeVariable(std::uint32_t number) {
    if (number >= variables.size()) variables.resize(number + std::size_t{1});
    variables[number] = 1;
  }
  /// Adds a program's record, before anything else of it.
  void beginProgram(const ExpressionView& expression, std::uint32_t hash, std::size_t parameter_offset);
  std::size_t bytes() const noexcept;
};

class EncodedChunks;
struct EncodeScratch;
struct EncodeWorker;

/// Of one population. Takes its scratch memory from the store. Not thread-safe; works in parallel on the calling
/// thread's arena.
class ChunkEncoder {
 public:
  /// `sections` are those of the order; all must outlive it.
  ChunkEncoder(KernelStore& store, const CompileOrder& order, const std::vector<SectionDraft>& sections,
               const InterpreterLimits& limits);

  /// Once.
  void encode();
  /// What encode() has made.
  std::span<EncodedChunk> chunks();
  /// Gives the scratch memory back for the next population. Not after an exception, which may leave work half done in
  /// it.
  void finish();

 private:
  EncodedChunks& all();
  EncodeOptions optionsOf(const EncodedChunk& chunk) const;
  void takeNode(const Node& node, EncodedChunk& chunk) const;
  void encodeExpressions(std::span<const std::uint32_t> members, EncodedChunk& chunk, EncodeWorker& worker) const;
  Status findOrEncode(const ExpressionView& tokens, std::uint32_t expression, EncodeWorker& worker,
                      EncodedChunk& chunk) const;
  Status encodeExpression(const ExpressionView& tokens, std::uint32_t expression, EncodeWorker& worker,
                          EncodedChunk& chunk) const;
  bool encodeTree(const ExpressionView& tokens, std::uint32_t expression, EncodeWorker& worker,
                  EncodedChunk& chunk) const;
  void copyProgram(const EncodedChunk& from, std::size_t number, std::uint32_t expression, EncodedChunk& chunk) const;
  void takeToken(const DeviceToken& token, EncodedChunk& chunk) const;
  void encodeGraphs(std::span<const std::uint32_t> members, EncodedChunk& chunk, Encoder& encoder) const;
  void encodeGraph(const Dag& dag, std::span<const std::uint32_t> members, Encoder& encoder, EncodedChunk& chunk) const;

  KernelStore& store_;
  const CompileOrder& order_;
  const ProgramSource& source_;
  const std::vector<SectionDraft>& sections_;
  const InterpreterLimits& limits_;
  const HandlerTable& table_;  ///< of all operators
  std::shared_ptr<EncodeScratch> scratch_;
  bool needs_graphs_;      ///< of whole chunks, which passes from outside of the library and filters need
  bool takes_trees_;       ///< whether expressions are encoded as they are written, without graphs
  bool finds_;             ///< whether programs of the generation before are looked up
  std::size_t first_ = 0;  ///< of these chunks, in the scratch
};

}  // namespace srjit
