#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/handler_table.h"

#include <iterator>
#include <string>

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

using Kind = Handler::Kind;

/// The text of a token's operands.
class TokenText {
 public:
  TokenText(const DeviceToken& token, const EncodeOptions& options) : token_(token), options_(options) {}

  std::string column() const { return place(token_.code >> DeviceToken::kColumnShift & DeviceToken::kColumnMask); }
  std::string secondColumn() const { return place(token_.argument); }
  std::string parameter() const { return fmt::format("parameter{}", token_.argument); }

  std::string application(const Handler& handler) const {
    std::string text(infoOf(handler.op).name);
    bool second = false;
    for (const char source : handler.operands) {
      text += ' ';
      if (source == 'v') {
        text += second ? secondColumn() : column();
        second = true;
      } else {
        text += source == 'c' ? parameter() : fmt::format("s{}", source - '0');
      }
    }
    return text;
  }

 private:
  std::string place(std::uint32_t number) const {
    return number < options_.staged_columns ? fmt::format("x{}", number)
                                            : fmt::format("slot{}", number - options_.staged_columns);
  }

  const DeviceToken& token_;
  const EncodeOptions& options_;
};

std::string lineOf(const Handler& handler, const DeviceToken& token, const EncodeOptions& options) {
  const TokenText text(token, options);
  switch (handler.kind) {
    case Kind::kPushColumn:
      return "push " + text.column();
    case Kind::kPushParameter:
      return "push " + text.parameter();
    case Kind::kApply:
      return text.application(handler);
    case Kind::kArgumentStack:
      return fmt::format("argument{} s0", handler.argument);
    case Kind::kArgumentColumn:
      return fmt::format("argument{} {}", handler.argument, text.column());
    case Kind::kArgumentParameter:
      return fmt::format("argument{} {}", handler.argument, text.parameter());
    case Kind::kBody:
      return fmt::format("call {}", infoOf(handler.op).name);
    case Kind::kPushResult:
      return "push result";
    case Kind::kStoreSlot:
      return "store " + text.column();
    case Kind::kEnd:
      return fmt::format("end root{}", token.argument);
    case Kind::kKeepSum:
      return fmt::format("keep sum{}", handler.argument);
    case Kind::kKeepProductSum:
      return fmt::format("keep sum{} {} {}", handler.argument, text.column(), text.secondColumn());
    case Kind::kStoreSums:
      return fmt::format("end root{} to root{}", token.argument, token.argument + handler.argument);
    case Kind::kHalt:
      return "halt";
    case Kind::kNextWindow:
      return "next window";
  }
  return "";
}

}  // namespace

Status statusOf(const EncodeFault& fault, const HandlerTable& table, const EncodeOptions& options) {
  if (fault.isNone()) return okStatus();
  if (fault.kind == EncodeFault::Kind::kOperator) return unknownOperator(static_cast<Op>(fault.number), table);
  return Error{fault.isWantOfRoom() ? Errc::kUnsupported : Errc::kInvalid, textOf(fault, options), {}};
}

Result<Bytecode> encode(const Dag& dag, const HandlerTable& table, const EncodeOptions& options) {
  std::vector<std::uint32_t> outputs(dag.roots().size());
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i] = static_cast<std::uint32_t>(i);
  Bytecode code;
  const EncodeFault fault = Encoder(table.numbers()).encode(dag, dag.roots(), outputs, options, code);
  if (!fault.isNone()) return statusOf(fault, table, options).error();
  return code;
}

std::string printBytecode(const Bytecode& code, const HandlerTable& table, const EncodeOptions& options) {
  std::string text;
  for (const DeviceToken& token : code.tokens) {
    const Handler& handler = table.handlers()[token.code & DeviceToken::kHandlerMask];
    fmt::format_to(std::back_inserter(text), "{:4}  {}\n", handler.height, lineOf(handler, token, options));
  }
  return text;
}

}  // namespace srjit
