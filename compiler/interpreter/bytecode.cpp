#include "compiler/interpreter/bytecode.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "ir/ops.h"

namespace srjit {
namespace {

Error unknownOperator(Op op, const HandlerTable& table) {
  std::vector<std::string_view> names;
  for (const Op known : table.spec().ops) names.push_back(infoOf(known).name);
  return {Errc::kInvalid,
          fmt::format("this interpreter cannot run '{}', only {}", infoOf(op).name, fmt::join(names, " ")),
          {}};
}

std::string textOf(const EncodeFault& fault, const EncodeOptions& options) {
  using enum EncodeFault::Kind;
  switch (fault.kind) {
    case kHandlers:
      return fmt::format("{} handlers: a token can name {}", fault.number, DeviceToken::kHandlerMask + 1);
    case kColumns:
      return fmt::format("{} staged columns: a token can name {}", fault.number, DeviceToken::kColumnMask + 1);
    case kConstant:
      return "a constant is left in the graph: run the 'hoist' pass before encoding";
    case kBeyondColumns:
      return fmt::format("variable x{}, but {} columns are staged", fault.number, options.staged_columns);
    case kNotStaged:
      return fmt::format("variable x{} is not among the columns that are staged", fault.number);
    case kLength:
      return "the program needs more slots for shared values than there are";
    case kSlots:
      return fmt::format("the program needs more than {} slots for shared and deep values", fault.number);
    case kNone:
    case kOperator:
      break;
  }
  __builtin_unreachable();
}

Status statusOf(const EncodeFault& fault, const HandlerTable& table, const EncodeOptions& options) {
  if (fault.isNone()) return okStatus();
  if (fault.kind == EncodeFault::Kind::kOperator) return unknownOperator(static_cast<Op>(fault.number), table);
  return Error{fault.isWantOfRoom() ? Errc::kUnsupported : Errc::kInvalid, textOf(fault, options), {}};
}

}  // namespace

Status Encoder::encode(const Dag& dag, std::span<const NodeId> roots, std::span<const std::uint32_t> outputs,
                       const EncodeOptions& options, Bytecode& code) {
  return statusOf(writer_.encode(dag, roots, outputs, options, code), table_, options);
}

Status Encoder::encode(const ExpressionGraph& graph, std::span<const std::uint32_t> outputs,
                       const EncodeOptions& options, Bytecode& code) {
  return statusOf(writer_.encode(graph, outputs, options, code), table_, options);
}

Result<Bytecode> encode(const Dag& dag, const HandlerTable& table, const EncodeOptions& options) {
  std::vector<std::uint32_t> outputs(dag.roots().size());
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i] = static_cast<std::uint32_t>(i);
  Bytecode code;
  if (Status encoded = Encoder(table).encode(dag, dag.roots(), outputs, options, code); !encoded) {
    return std::move(encoded).error();
  }
  return code;
}

}  // namespace srjit
