// The arguments and results of the front end's kernels. They encode a population for the interpreter on the device: the
// same walk as on the host (passes/expression_optimizer.h, compiler/interpreter/encoder.h), compiled for both.
//
// Kernel `srjit_encode`: EncodeArguments. Each thread is a worker with memory of its own, and encodes the expressions
// whose numbers are its own plus a multiple of the number of threads. Blocks of kEncodeThreads threads; a grid in x
// only. Launches of one module must be in one stream, since they have the address of the workers' memory in one place.
// Kernel `srjit_link`: LinkArguments. Threads put programs where they are linked to, and divide the expressions
// as srjit_encode does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "compiler/interpreter/encoder.h"
#include "ir/numeric.h"
#include "ir/op.h"
#include "passes/rules/tables.h"

namespace srjit {

inline constexpr const char* kEncodeKernel = "srjit_encode";
inline constexpr const char* kLinkKernel = "srjit_link";
inline constexpr unsigned kEncodeThreads = 64;

/// Longer expressions are left to the host. Up to this length a worker's vectors as a rule fit into kWorkerBytes
/// (tests/compiler/interpreter/front_end_test.cpp).
inline constexpr std::size_t kMostCodesOnDevice = 24;

/// The memory of one worker: its vectors at their largest, with the blocks that they leave behind. Not a power of two:
/// workers use the beginning of their memory most, and with such a stride these share few places of the caches (12.7
/// instead of 6.2 ms on an H200).
inline constexpr std::size_t kWorkerBytes = (std::size_t{20} << 10) + 128;
/// A worker's operator new gives multiples of this number; it skips as many bytes at the beginning of its memory.
inline constexpr std::size_t kWorkerAlignment = 16;

/// Room for the programs of `expressions` expressions with `codes` tokens together: linear, so the room of several is
/// the sum of theirs. A program that needs more than its own room is left to the host.
constexpr std::size_t roomForTokens(std::size_t codes, std::size_t expressions = 1) noexcept {
  return 4 * (codes + expressions);
}
constexpr std::size_t roomForParameters(std::size_t codes, std::size_t expressions = 1) noexcept {
  return codes + 4 * expressions;
}

/// The result of encoding one expression.
struct EncodedSize {
  std::uint16_t tokens = 0;     ///< of its program; 0: it is left to the host
  std::uint16_t nodes = 0;      ///< of its graph
  std::uint8_t parameters = 0;  ///< entries of the table of parameters
  std::uint8_t patches = 0;     ///< of these, those that are no literals
  std::uint8_t slots = 0;
};

/// Tokens and parameters of a program are linked: they get the handlers of the family in use, the numbers of staged
/// columns, and their places in the table of parameters.
struct TokenLinks {
  std::span<const std::uint16_t> handlers;   ///< by the number in the family of all operators
  std::span<const std::uint32_t> staged_as;  ///< by variable
  std::uint32_t staged_columns;
  std::uint32_t first_slot;  ///< the number of slot 0 in tokens that are not linked

  std::uint32_t columnOf(std::uint32_t column) const {
    return column < first_slot ? staged_as[column] : column - first_slot + staged_columns;
  }
  DeviceToken linked(DeviceToken token, std::uint32_t first_parameter) const {
    const std::uint32_t kind = token.code >> DeviceToken::kArgumentShift;
    const std::uint32_t column = token.code >> DeviceToken::kColumnShift & DeviceToken::kColumnMask;
    token.code = handlers[token.code & DeviceToken::kHandlerMask] | columnOf(column) << DeviceToken::kColumnShift |
                 kind << DeviceToken::kArgumentShift;
    if (kind == DeviceToken::kParameter) token.argument += first_parameter;
    if (kind == DeviceToken::kColumn) token.argument = columnOf(token.argument);
    return token;
  }
};

/// A population on the device. Expression e has the codes first_codes[e] to first_codes[e + 1] - 1, and its
/// constants follow from first_constants in the same way.
struct UploadedPopulation {
  const std::int32_t* codes;
  const double* constants;
  const std::uint32_t* first_codes;
  const std::uint32_t* first_constants;
  std::uint32_t expressions;
};

/// Programs that are not linked. That of expression e is behind the room for all before it.
struct EncodedPrograms {
  EncodedSize* sizes;  ///< by expression
  DeviceToken* tokens;
  ParameterSource* parameters;  ///< `expression` is 0 unless it is a literal

  std::size_t firstToken(const UploadedPopulation& of, std::uint32_t e) const {
    return roomForTokens(of.first_codes[e], e);
  }
  std::size_t firstParameter(const UploadedPopulation& of, std::uint32_t e) const {
    return roomForParameters(of.first_codes[e], e);
  }
};

struct EncodeArguments {
  UploadedPopulation population;
  EncodedPrograms programs;
  std::uint32_t* operators;  ///< 1 for those that a graph has, by operator; cleared before
  std::uint32_t* variables;  ///< 1 for those that a graph reads, by variable; cleared before
  std::byte* memory;         ///< kWorkerBytes of each worker
  Precision precision;
  Math math;
  std::uint32_t first_slot, max_slots;
  std::uint32_t few_slots;  ///< programs of more are left to the host, which has them launched apart
  RuleTables rules;
  HandlerNumbers handlers;
};

/// Where a program is linked to: its first token, and its first entry of the table of parameters.
struct ProgramPlace {
  std::uint32_t token, parameter;
};

struct LinkArguments {
  UploadedPopulation population;
  EncodedPrograms programs;
  TokenLinks links;
  const ProgramPlace* places;  ///< by expression
  DeviceToken* tokens;
  ParameterSource* parameters;
};

// One compiler writes them, and another one's code reads them.
static_assert(sizeof(void*) == 8 && sizeof(std::span<const double>) == 16);
static_assert(std::is_trivially_copyable_v<EncodeArguments> && std::is_trivially_copyable_v<LinkArguments>);
static_assert(sizeof(EncodedSize) == 8 && sizeof(DeviceToken) == 8 && sizeof(ParameterSource) == 16);
static_assert(sizeof(UploadedPopulation) == 40 && sizeof(EncodedPrograms) == 24 && sizeof(TokenLinks) == 40);
static_assert(sizeof(LinkArguments) == 128);

}  // namespace srjit
