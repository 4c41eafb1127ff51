#include "compiler/interpreter/front_end/worker.h"

#include <algorithm>
#include <limits>

namespace srjit {

DeviceWorker::DeviceWorker(const EncodeArguments& arguments)
    : arguments_(arguments),
      optimizer_(arguments.precision, arguments.math, arguments.rules),
      encoder_(arguments.handlers) {
  options_.staged_columns = arguments.first_slot;
  options_.max_slots = arguments.max_slots;
}

void DeviceWorker::encode(std::uint32_t e) {
  EncodedSize& size = arguments_.programs.sizes[e];
  size = {};
  const auto patches = write(e);
  if (!patches) return;
  size = {.tokens = static_cast<std::uint16_t>(code_.tokens.size()),
          .nodes = static_cast<std::uint16_t>(optimizer_.graph().members.size()),
          .parameters = static_cast<std::uint8_t>(code_.parameters.size()),
          .patches = *patches,
          .slots = static_cast<std::uint8_t>(code_.slots)};
}

std::optional<std::uint8_t> DeviceWorker::write(std::uint32_t e) {
  const UploadedPopulation& of = arguments_.population;
  const std::size_t codes = of.first_codes[e + 1] - of.first_codes[e];
  if (codes > kMostCodesOnDevice) return std::nullopt;
  const ExpressionView tokens({of.codes + of.first_codes[e], codes},
                              {of.constants + of.first_constants[e], of.first_constants[e + 1] - of.first_constants[e]},
                              0, 0);
  optimizer_.run(tokens, 0);
  const ExpressionGraph graph = optimizer_.graph();
  code_.tokens.clear();
  code_.slots = 0;
  const std::uint32_t outputs[] = {e};
  if (!encoder_.encode(graph, outputs, options_, code_).isNone()) return std::nullopt;
  constexpr std::size_t kMostParameters = std::numeric_limits<decltype(EncodedSize::parameters)>::max();
  if (code_.slots > std::min<std::uint32_t>(arguments_.few_slots, UINT8_MAX) || graph.members.size() > UINT16_MAX ||
      code_.tokens.size() > roomForTokens(codes) || code_.tokens.size() > UINT16_MAX ||
      code_.parameters.size() > std::min(roomForParameters(codes), kMostParameters)) {
    return std::nullopt;
  }
  std::ranges::copy(code_.tokens, arguments_.programs.tokens + arguments_.programs.firstToken(of, e));
  ParameterSource* parameter = arguments_.programs.parameters + arguments_.programs.firstParameter(of, e);
  std::uint8_t patches = 0;
  for (const NodeId id : code_.parameters) {
    const Node& node = graph.dag.node(id);
    const bool is_literal = node.kind == Token::Kind::kConstant;
    if (!is_literal) ++patches;
    *parameter++ = is_literal ? ParameterSource{.literal = node.value} : graph.dag.parameters()[node.index];
  }
  for (const NodeId id : graph.members) {
    const Node& node = graph.dag.node(id);
    if (node.isOperator()) arguments_.operators[static_cast<std::size_t>(node.op)] = 1;
    if (node.kind == Token::Kind::kVariable) arguments_.variables[node.index] = 1;
  }
  return patches;
}

void linkProgram(const LinkArguments& arguments, std::uint32_t e) {
  const EncodedSize size = arguments.programs.sizes[e];
  const DeviceToken* const tokens = arguments.programs.tokens + arguments.programs.firstToken(arguments.population, e);
  const ProgramPlace to = arguments.places[e];
  std::transform(tokens, tokens + size.tokens, arguments.tokens + to.token,
                 [&](DeviceToken token) { return arguments.links.linked(token, to.parameter); });
  std::copy_n(arguments.programs.parameters + arguments.programs.firstParameter(arguments.population, e),
              size.parameters, arguments.parameters + to.parameter);
}

}  // namespace srjit
