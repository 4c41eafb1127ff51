#include "passes/pass.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "ir/ops.h"
#include "ir/text/lexer.h"
#include "ir/text/words.h"
#include "passes/working_dag.h"

namespace srjit {

#define SRJIT_PASS(name, function, exactness, modes, doc) void function(WorkingDag& work, const PassContext& context);
#include "passes/passes.def"
#undef SRJIT_PASS

namespace {

enum Modes { kNoMode, kNotStrict, kAllModes };

constexpr Modes kModes[] = {
#define SRJIT_PASS(name, function, exactness, modes, doc) modes,
#include "passes/passes.def"
#undef SRJIT_PASS
};

template <void (*rewrite)(WorkingDag&, const PassContext&)>
Dag rewritten(const Dag& dag, const PassContext& context) {
  WorkingDag work(dag);
  rewrite(work, context);
  return work.result();
}

const std::vector<Pass>& standardPasses() {
  static const std::vector<Pass> passes = {
#define SRJIT_PASS(name, function, exactness, modes, doc) \
  {name, rewritten<function>, Exactness::exactness, doc, function},
#include "passes/passes.def"
#undef SRJIT_PASS
  };
  return passes;
}

/// The passes of registerPass().
struct Registry {
  std::mutex mutex;
  std::vector<Pass> passes;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

/// The name of an operand of an operator; `numbers` gives the printed numbers of operators.
std::string operandText(const Dag& dag, NodeId id, std::span<const std::size_t> numbers) {
  const Node& node = dag.node(id);
  switch (node.kind) {
    case Token::Kind::kConstant:
      return text::numberText(node.value, dag.precision());
    case Token::Kind::kVariable:
      return fmt::format("x{}", node.index);
    case Token::Kind::kParameter: {
      const ParameterSource& source = dag.parameters()[node.index];
      if (source.isLiteral()) {
        return fmt::format("#{}({})", node.index, text::numberText(source.literal, dag.precision()));
      }
      return fmt::format("p{}@{}", source.index, source.expression);
    }
    case Token::Kind::kOp:
      break;
  }
  return fmt::format("%{}", numbers[id]);
}

}  // namespace

Status registerPass(Pass pass) {
  const auto fail = [](std::string message) { return Error{Errc::kInvalid, std::move(message), {}}; };
  if (pass.name.empty()) return fail("a pass needs a name");
  if (std::ranges::any_of(pass.name, [](char c) { return c == ',' || text::isSpace(c); })) {
    return fail(fmt::format("pass name {} contains a comma or white space", text::inQuotes(pass.name)));
  }
  if (!pass.run) return fail(fmt::format("pass {} has no function", text::inQuotes(pass.name)));
  const auto taken = [&](const Pass& other) { return other.name == pass.name; };
  Registry& added = registry();
  const std::scoped_lock lock(added.mutex);
  const bool reserved = pass.name == "none" || pass.name == "standard";
  if (reserved || std::ranges::any_of(standardPasses(), taken) || std::ranges::any_of(added.passes, taken)) {
    return fail(fmt::format("pass name {} is taken", text::inQuotes(pass.name)));
  }
  added.passes.push_back(std::move(pass));
  return okStatus();
}

std::vector<Pass> allPasses() {
  std::vector<Pass> passes = standardPasses();
  Registry& added = registry();
  const std::scoped_lock lock(added.mutex);
  passes.insert(passes.end(), added.passes.begin(), added.passes.end());
  return passes;
}

Pipeline Pipeline::standard(Math math) {
  Pipeline pipeline;
  for (std::size_t i = 0; i < standardPasses().size(); ++i) {
    const bool runs = kModes[i] == kAllModes || (kModes[i] == kNotStrict && math != Math::kStrict);
    if (runs) pipeline.passes_.push_back(standardPasses()[i]);
  }
  return pipeline;
}

Result<Pipeline> Pipeline::parse(std::string_view names, Math math) {
  Pipeline pipeline;
  if (std::ranges::all_of(names, text::isSpace)) return pipeline;
  const std::vector<Pass> known = allPasses();
  const auto knownNames = [&] {
    std::string text = "none, standard";
    for (const Pass& pass : known) text += ", " + pass.name;
    return text;
  };
  for (std::size_t start = 0; start <= names.size();) {
    const std::size_t comma = std::min(names.find(',', start), names.size());
    std::size_t first = start, last = comma;
    while (first < last && text::isSpace(names[first])) ++first;
    while (first < last && text::isSpace(names[last - 1])) --last;
    const std::string_view name = names.substr(first, last - first);
    start = comma + 1;
    const auto found = std::ranges::find(known, name, [](const Pass& pass) { return std::string_view(pass.name); });
    if (name == "standard") {
      std::ranges::copy(standard(math).passes_, std::back_inserter(pipeline.passes_));
    } else if (found != known.end()) {
      pipeline.passes_.push_back(*found);
    } else if (name != "none") {
      const std::string found_text =
          name.empty() ? "expected the name of a pass" : fmt::format("unknown pass {}", text::inQuotes(name));
      return Error{Errc::kInvalid, fmt::format("{}; known are {}", found_text, knownNames()),
                   Span{1, first + 1, name.size()}};
    }
  }
  return pipeline;
}

Pipeline Pipeline::withDerivatives() const {
  const auto named = [](const std::vector<Pass>& passes, std::string_view name) {
    return std::ranges::find(passes, name, &Pass::name);
  };
  const std::vector<Pass>& known = standardPasses();
  Pipeline pipeline = *this;
  if (named(pipeline.passes_, "differentiate") != pipeline.passes_.end()) return pipeline;
  pipeline.passes_.insert(named(pipeline.passes_, "hoist"), *named(known, "differentiate"));
  return pipeline;
}

Dag Pipeline::run(Dag dag, const PassContext& context, const Observer& after) const {
  std::optional<WorkingDag> work;  // holds the graph while passes rewrite it in place
  for (std::size_t i = 0; i < passes_.size(); ++i) {
    const Pass& pass = passes_[i];
    const auto start = std::chrono::steady_clock::now();
    if (pass.rewrite != nullptr) {
      if (!work) work.emplace(std::exchange(dag, Dag(dag.precision())));
      pass.rewrite(*work, context);
    } else {
      dag = pass.run(dag, context);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const bool in_place_next = i + 1 < passes_.size() && passes_[i + 1].rewrite != nullptr;
    if (work && (after || !in_place_next)) dag = work->result();
    if (!in_place_next) work.reset();
    if (after) after(pass, dag, seconds.count());
  }
  return dag;
}

std::string printDag(const Dag& dag) {
  NodeNumbers numbers;
  return printDag(dag, numbers);
}

std::string printDag(const Dag& dag, NodeNumbers& known) {
  const std::vector<std::size_t> numbers = known.of(dag);
  std::string text;
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    if (node.kind != Token::Kind::kOp) continue;
    text += fmt::format("%{} = {}", numbers[id], infoOf(node.op).name);
    const char* separator = " ";
    for (const NodeId operand : node.inputs())
      text += std::exchange(separator, ", ") + operandText(dag, operand, numbers);
    text += '\n';
  }
  for (std::size_t i = 0; i < dag.roots().size(); ++i) {
    text += fmt::format("root {} = {}\n", i, operandText(dag, dag.roots()[i], numbers));
  }
  return text;
}

namespace {

enum Operand : std::uint64_t { kNone, kLiteral, kVariable, kParameter, kOperator };

struct OperandIdentity {
  Operand kind;
  std::uint64_t which;
};

OperandIdentity identityOf(const Dag& dag, NodeId id, const std::vector<std::size_t>& numbers) {
  const Node& node = dag.node(id);
  switch (node.kind) {
    case Token::Kind::kConstant:
      return {kLiteral, std::bit_cast<std::uint64_t>(node.value)};
    case Token::Kind::kVariable:
      return {kVariable, node.index};
    case Token::Kind::kParameter: {
      const ParameterSource& source = dag.parameters()[node.index];
      if (source.isLiteral()) return {kLiteral, std::bit_cast<std::uint64_t>(source.literal)};
      return {kParameter, std::uint64_t{source.expression} << 32 | source.index};
    }
    case Token::Kind::kOp:
      break;
  }
  return {kOperator, numbers[id]};
}

}  // namespace

std::vector<std::size_t> NodeNumbers::of(const Dag& dag) {
  std::vector<std::size_t> numbers(dag.size());
  std::set<std::size_t> taken;  // a graph may have a literal both hoisted and not
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    if (node.kind != Token::Kind::kOp) continue;
    Identity identity{static_cast<std::uint64_t>(node.op)};
    std::size_t next = 1;
    for (const NodeId operand : node.inputs()) {
      const OperandIdentity is = identityOf(dag, operand, numbers);
      identity[next++] = is.kind;
      identity[next++] = is.which;
    }
    std::size_t& number = numbers[id];
    number = numbers_.try_emplace(identity, next_).first->second;
    if (!taken.insert(number).second) {
      number = next_;
      taken.insert(number);
    }
    if (number == next_) ++next_;
  }
  return numbers;
}

}  // namespace srjit
