#include "runtime/code/interpreted/sections.h"

#include <algorithm>

#include "compiler/interpreter/encoder.h"
#include "compiler/nvptx/options.h"

namespace srjit {
namespace {

/// Divides expressions by their variables.
class SectionFinder {
 public:
  SectionFinder(const CompileOrder& order, const InterpreterLimits& limits)
      : order_(order), source_(order.source), limits_(limits), seen_(source_.variables, SIZE_MAX) {}

  std::vector<SectionDraft> run() {
    for (std::size_t i = 0; i < order_.range.size(); ++i) add(i);
    for (SectionDraft& section : sections_) numberVariables(section);
    return std::move(sections_);
  }

 private:
  void add(std::size_t i) {
    findFresh(i);
    if (i == 0 || columns_ + fresh_.size() > limits_.columns) {
      sections_.push_back({i, i});
      columns_ = 0;
      findFresh(i);
    }
    for (const std::uint32_t variable : fresh_) {
      seen_[variable] = sections_.size();
      sections_.back().variables.push_back(variable);
    }
    columns_ += fresh_.size();
    sections_.back().last = i + 1;
  }

  // Its variables that the last section lacks; a derivation's variables include the target and weights.
  void findFresh(std::size_t i) {
    fresh_.clear();
    const auto take = [&](std::uint32_t variable) {
      if (seen_[variable] != sections_.size()) fresh_.push_back(variable);
    };
    for (const Token token : source_.expressions[order_.range[i]]) {
      if (token.kind == Token::Kind::kVariable) take(token.index);
    }
    if (source_.derivation) {
      for (std::uint32_t v = source_.derivation->columns; v < source_.derivation->variables(); ++v) take(v);
    }
    std::ranges::sort(fresh_);
    fresh_.erase(std::ranges::unique(fresh_).begin(), fresh_.end());
  }

  void numberVariables(SectionDraft& section) const {
    if (source_.variables <= kFirstSlot) {
      section.variables.clear();
      return;
    }
    section.numbers.assign(source_.variables, EncodeOptions::kNotStaged);
    for (std::uint32_t number = 0; number < section.variables.size(); ++number) {
      section.numbers[section.variables[number]] = number;
    }
  }

  const CompileOrder& order_;
  const ProgramSource& source_;
  const InterpreterLimits& limits_;
  std::vector<std::size_t> seen_;  ///< by variable: one more than the number of the section that has it
  std::vector<std::uint32_t> fresh_;
  std::size_t columns_ = 0;  ///< of the last section
  std::vector<SectionDraft> sections_;
};

}  // namespace

InterpreterLimits::InterpreterLimits(const DeviceLimits& limits, Precision precision) {
  const std::size_t seventh = limits.shared_bytes_per_block / 7;
  const std::size_t strip_bytes =
      std::size_t{kBlockThreads / kBlockWarps} * 4 * static_cast<std::size_t>(bytesOf(precision));
  columns = 3 * seventh / strip_bytes;
  slots = 2 * seventh / (kBlockWarps * strip_bytes);
}

std::optional<std::uint32_t> SectionDraft::numberOf(std::uint32_t variable) const {
  if (numbers.empty()) return variable;
  if (variable >= numbers.size() || numbers[variable] == EncodeOptions::kNotStaged) return std::nullopt;
  return numbers[variable];
}

void SectionDraft::stage(const std::vector<bool>& uses) {
  staged_as.assign(uses.size(), 0);
  for (std::uint32_t v = 0; v < uses.size(); ++v) {
    if (!uses[v]) continue;
    staged_as[v] = stagedColumns();
    columns.push_back(variables.empty() ? v : variables[v]);
  }
}

std::vector<SectionDraft> findSections(const CompileOrder& order, const InterpreterLimits& limits) {
  if (order.source.variables > limits.columns) return SectionFinder(order, limits).run();
  if (order.range.empty()) return {};
  return {{0, order.range.size()}};
}

}  // namespace srjit
