// The host's part of encoding: chunks of expressions, in parallel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/code/interpreted/encode_scratch.h"
#include "runtime/code/interpreted/sections.h"
#include "runtime/code/parts.h"

namespace srjit {

/// Below it, on average, expressions are not looked up in the generation before, since a look-up in vain takes a third
/// of the time of encoding them (docs/history/experiments.md).
inline constexpr std::size_t kLeastTokensToFind = 16;

/// Of one population. Takes its scratch memory from the store. Not thread-safe; works in parallel on the calling
/// thread's arena.
class ChunkEncoder {
 public:
  /// `sections` are those of what encode() is given; all three must outlive it.
  ChunkEncoder(const CodeRequest& request, const std::vector<SectionDraft>& sections, const InterpreterLimits& limits);

  /// Adds the chunks of chosen[from] to the last, which become the members of the sections with these numbers.
  void encode(std::span<const std::uint32_t> chosen, std::size_t from);
  /// All that were added; valid until the next encode().
  std::span<EncodedChunk> chunks() { return all().from(first_); }
  /// Gives the scratch memory back for the next population. Not after an exception, which may leave work half done in
  /// it.
  void finish();

 private:
  EncodedChunks& all() { return finds_ ? scratch_->chunks : scratch_->others; }
  EncodeOptions optionsOf(const EncodedChunk& chunk) const;
  void takeNode(const Node& node, EncodedChunk& chunk) const;
  void encodeExpressions(std::span<const std::uint32_t> members, EncodedChunk& chunk, EncodeWorker& worker) const;
  Status findOrEncode(const ExpressionView& tokens, std::uint32_t expression, EncodeWorker& worker,
                      EncodedChunk& chunk) const;
  Status encodeExpression(const ExpressionView& tokens, std::uint32_t expression, EncodeWorker& worker,
                          EncodedChunk& chunk) const;
  void copyProgram(const EncodedChunk& from, std::size_t number, std::uint32_t expression, EncodedChunk& chunk) const;
  void takeToken(const DeviceToken& token, EncodedChunk& chunk) const;
  void encodeGraphs(std::span<const std::uint32_t> members, EncodedChunk& chunk, Encoder& encoder) const;
  void encodeGraph(const Dag& dag, std::span<const std::uint32_t> members, Encoder& encoder, EncodedChunk& chunk) const;

  const CodeRequest& request_;
  const ProgramSource& source_;
  const std::vector<SectionDraft>& sections_;
  const InterpreterLimits& limits_;
  const HandlerTable& table_;  ///< of all operators
  std::unique_ptr<EncodeScratch> scratch_;
  bool needs_graphs_;      ///< of whole chunks, which passes from outside of the library and filters need
  bool finds_;             ///< whether programs of the generation before are looked up
  std::size_t first_ = 0;  ///< of these chunks, in the scratch
};

}  // namespace srjit
