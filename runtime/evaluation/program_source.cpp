#include "runtime/evaluation/program_state.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include "ir/token_errors.h"
#include "runtime/platform/aligned_buffer.h"

namespace srjit {

ProgramSource ProgramSource::emptyLike() const {
  return {.precision = precision,
          .math = math,
          .pipeline = pipeline,
          .simplify = simplify,
          .group_by_sharing = group_by_sharing};
}

// `add(block, e)` appends expression e to the block, and gives its fault.
template <class Add>
void ProgramSource::setBlocks(std::size_t count, bool in_arena, const Add& add) {
  const std::span<Population::Block> blocks = expressions.makeBlocks(count);
  std::vector<std::vector<Failure>> failures(blocks.size());
  const auto fill = [&](std::size_t b) {
    const std::size_t first = b * Population::kBlock, last = std::min(first + Population::kBlock, count);
    for (std::size_t e = first; e < last; ++e) {
      if (Status added = add(blocks[b], e); !added) failures[b].push_back({e, std::move(added).error()});
    }
  };
  if (in_arena) {
    tbb::parallel_for(std::size_t{0}, blocks.size(), fill);
  } else {
    for (std::size_t b = 0; b < blocks.size(); ++b) fill(b);
  }
  for (std::vector<Failure>& some : failures) std::ranges::move(some, std::back_inserter(invalid));
  expressions.finish();
  variables = expressions.variableCount();
  tokens = expressions.tokens();
}

void ProgramSource::set(std::span<const Expression> all, std::size_t max_nodes, bool in_arena) {
  setBlocks(all.size(), in_arena, [&](Population::Block& block, std::size_t e) -> Status {
    if (exceeds(all[e].size(), max_nodes)) {
      block.addNone();
      return tooManyNodes(all[e].size(), max_nodes);
    }
    block.add(all[e]);
    return okStatus();
  });
}

void ProgramSource::set(const PopulationView& all, std::size_t max_nodes, bool in_arena) {
  setBlocks(all.size(), in_arena, [&](Population::Block& block, std::size_t e) {
    if (block.size() == 0) {
      const std::size_t last = std::min(e + Population::kBlock, all.size());
      block.reserve(last - e, static_cast<std::size_t>(all.offsets[last] - all.offsets[e]));
    }
    return block.add(all, e, max_nodes);
  });
}

void ProgramSource::setSelected(const ProgramSource& source, std::size_t count,
                                const std::function<std::size_t(std::size_t i)>& which) {
  setBlocks(count, true, [&](Population::Block& block, std::size_t i) {
    block.add(source.expressions[which(i)]);
    return okStatus();
  });
}

void ProgramSource::setExtended(const ProgramSource& source, std::size_t count,
                                const std::function<std::size_t(std::size_t i)>& which,
                                const std::function<std::vector<std::int32_t>(std::uint32_t k)>& tail,
                                std::string_view why) {
  constexpr std::uint32_t kMost = Expression::kMaxIndex - 1;
  setEach(count, [&](Population::Block& block, std::size_t i) -> Status {
    const ExpressionView f = source.expressions[which(i)];
    const std::uint32_t parameters = f.parameterCount();
    if (parameters > kMost) {
      block.addNone();
      return Error{
          Errc::kInvalid, fmt::format("{} parameters: expected at most {}, since {}", parameters, kMost, why), {}};
    }
    std::vector<std::int32_t> codes(f.codes().begin(), f.codes().end());
    const std::vector<std::int32_t> more = tail(parameters);
    codes.insert(codes.end(), more.begin(), more.end());
    block.add(ExpressionView(codes, f.constants(), f.variableCount(), parameters + 2));
    return okStatus();
  });
}

void ProgramSource::setEach(std::size_t count,
                            const std::function<Status(Population::Block& block, std::size_t e)>& add) {
  setBlocks(count, true, add);
}

void ProgramSource::setNone(std::size_t count) {
  setBlocks(count, false, [](Population::Block& block, std::size_t) {
    block.addNone();
    return okStatus();
  });
}

ProgramSource ProgramSource::derive(const Derivation& what) const {
  ProgramSource derived = *this;
  derived.setDerivation(what);
  return derived;
}

std::size_t ProgramSource::outputsOf(const Derivation& what) const noexcept {
  std::size_t count = 0;
  for (std::size_t e = 0; e < expressions.size(); ++e) count += what.roots(expressions[e].parameterCount());
  return count;
}

void ProgramSource::setDerivation(const Derivation& what) {
  derivation = what;
  variables = std::max(variables, what.variables());
  output_offsets.reserve(expressions.size() + 1);
  std::size_t count = 0;
  for (std::size_t e = 0; e < expressions.size(); ++e) {
    output_offsets.push_back(count);
    count += what.roots(expressions[e].parameterCount());
  }
  output_offsets.push_back(count);
}

ProgramSource ProgramSource::slice(std::size_t first, std::size_t last) const {
  ProgramSource part = emptyLike();
  part.is_continued = is_continued;
  part.setSelected(*this, last - first, [&](std::size_t e) { return first + e; });
  if (derivation) part.setDerivation(*derivation);
  return part;
}

std::vector<std::uint32_t> ProgramSource::all() const {
  std::vector<std::uint32_t> numbers(expressions.size());
  std::iota(numbers.begin(), numbers.end(), 0U);
  return numbers;
}

void ProgramSource::appendOutputs(std::size_t e, std::vector<std::uint32_t>& numbers) const {
  for (std::size_t output = outputOffset(e); output < outputOffset(e + 1); ++output) {
    numbers.push_back(static_cast<std::uint32_t>(output));
  }
}

}  // namespace srjit
