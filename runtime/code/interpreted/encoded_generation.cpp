#include "runtime/code/interpreted/encoded_generation.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include <tbb/parallel_for.h>

#include "ir/mix.h"
#include "ir/ops.h"

namespace srjit {

void EncodedChunk::begin(std::size_t first_chosen, std::size_t last_chosen, std::size_t number_of_section) {
  first = first_chosen;
  last = last_chosen;
  section = number_of_section;
  code.tokens.clear();
  code.slots = 0;
  lengths.clear();
  slots.clear();
  parameters.clear();
  failures.clear();
  tokens = nodes = recurring = 0;
  operators.assign(kOpCount, 0);
  variables.clear();
  programs.clear();
  codes.clear();
  constants.clear();
}

void EncodedChunk::refuse(std::vector<Failure> all) {
  failures = std::move(all);
  code.tokens.clear();
  lengths.clear();
  slots.clear();
  parameters.clear();
  programs.clear();
}

void EncodedChunk::beginProgram(const ExpressionView& expression, std::uint32_t hash, std::size_t parameter_offset) {
  const std::span<const std::int32_t> own = expression.codes();
  programs.push_back({.token = code.tokens.size(),
                      .parameter = parameters.size(),
                      .code = codes.size(),
                      .constant = constants.size(),
                      .codes = own.size(),
                      .parameter_offset = parameter_offset,
                      .nodes = 0,
                      .slots = 0,
                      .hash = hash});
  codes.insert(codes.end(), own.begin(), own.end());
  constants.insert(constants.end(), expression.constants().begin(), expression.constants().end());
}

std::size_t EncodedChunk::bytes() const noexcept {
  return code.tokens.capacity() * sizeof(DeviceToken) + lengths.capacity() * sizeof(std::uint32_t) +
         slots.capacity() * sizeof(std::uint32_t) + parameters.heldBytes() + variables.capacity() +
         operators.capacity() + programs.capacity() * sizeof(EncodedProgram) + codes.capacity() * sizeof(std::int32_t) +
         constants.capacity() * sizeof(double);
}

std::uint32_t contentHash(const ExpressionView& expression) noexcept {
  std::uint64_t hash = expression.size();
  for (const std::int32_t code : expression.codes()) hash = combineFast(hash, static_cast<std::uint32_t>(code));
  for (const double constant : expression.constants()) hash = combineFast(hash, std::bit_cast<std::uint64_t>(constant));
  return static_cast<std::uint32_t>(mix(hash) >> 32);
}

void EncodedGeneration::set(std::span<const EncodedChunk> chunks) {
  chunks_ = chunks;
  programs_ = 0;
  for (const EncodedChunk& chunk : chunks) programs_ += chunk.programs.size();
  if (programs_ == 0 || chunks.size() * EncodedChunk::kMost > UINT32_MAX - 1) {
    programs_ = 0;
    return;
  }
  slots_.resize(std::bit_ceil(2 * programs_));
  tbb::parallel_for(tbb::blocked_range<std::size_t>(0, slots_.size(), std::size_t{1} << 13), [&](const auto& range) {
    std::memset(slots_.data() + range.begin(), 0, range.size() * sizeof(std::uint64_t));
  });
  tbb::parallel_for(std::size_t{0}, chunks.size(), [&](std::size_t c) {
    for (std::size_t p = 0; p < chunks[c].programs.size(); ++p) {
      insert(std::uint64_t{chunks[c].programs[p].hash} << 32 | (EncodedChunk::kMost * c + p + 1));
    }
  });
}

void EncodedGeneration::insert(std::uint64_t slot) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = slot >> 32 & mask;; at = (at + 1) & mask) {
    std::uint64_t there = 0;
    std::atomic_ref<std::uint64_t> place(slots_[at]);
    if (place.compare_exchange_strong(there, slot, std::memory_order_relaxed)) return;
    // One of many clones is enough, and all of them would take quadratic time.
    if (there >> 32 == slot >> 32) return;
  }
}

EncodedGeneration::Found EncodedGeneration::find(const ExpressionView& expression, std::uint32_t hash) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash & mask; slots_[at] != 0; at = (at + 1) & mask) {
    if (slots_[at] >> 32 != hash) continue;
    const auto place = static_cast<std::uint32_t>(slots_[at]) - 1;
    const EncodedChunk& chunk = chunks_[place / EncodedChunk::kMost];
    const EncodedProgram& program = chunk.programs[place % EncodedChunk::kMost];
    // Equal codes have equally many constants; without any, there may be no array.
    const std::span<const double> constants = expression.constants();
    const bool is_same =
        std::ranges::equal(std::span(chunk.codes).subspan(program.code, program.codes), expression.codes()) &&
        (constants.empty() ||
         std::memcmp(chunk.constants.data() + program.constant, constants.data(), constants.size_bytes()) == 0);
    if (is_same) return {&chunk, place % EncodedChunk::kMost};
  }
  return {};
}

}  // namespace srjit
