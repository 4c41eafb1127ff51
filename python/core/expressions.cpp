// Expressions: text, token arrays, operators.
#include <algorithm>

#include <fmt/format.h>

#include "core/bindings.h"
#include "ir/losses.h"
#include "ir/ops.h"
#include "passes/simplify_expression.h"

namespace srjit::python {

namespace {

Language languageOf(std::string_view word) {
  if (const auto language = findLanguage(word)) return *language;
  throw ErrorException(
      {Errc::kInvalid, fmt::format("language is '{}', expected one of 'infix', 'postfix', 'prefix', 'json'", word), {}});
}

Tokens parseAll(const std::vector<std::string>& texts, const std::string& language,
                const std::vector<std::string>& names) {
  const Language form = languageOf(language);
  const ColumnNames columns = namesOf(names);
  const nb::gil_scoped_release free;
  Tokens tokens;
  std::vector<Token> one;
  for (const std::string& text : texts) {
    one.clear();
    if (const auto parsed = parseTokens(text, form, columns, one)) {
      tokens.add(one);
    } else {
      tokens.addFailure(parsed.error());
    }
  }
  return tokens;
}

/// A copy of a caller's arrays, of which every expression is checked.
Tokens tokensOf(const Numbers<std::int32_t>& codes, const Numbers<double>& constants,
                const Numbers<std::int64_t>& offsets, bool prefix) {
  const PopulationView view{spanOf(codes), spanOf(constants), spanOf(offsets),
                            prefix ? Notation::kPrefix : Notation::kPostfix};
  const nb::gil_scoped_release free;
  checkArrays(view).value();
  Tokens tokens;
  for (std::size_t e = 0; e < view.size(); ++e) {
    Population::Block block;
    if (const Status valid = block.add(view, e)) {
      tokens.add(block[0].expression().tokens());
    } else {
      tokens.addFailure(valid.error());
    }
  }
  return tokens;
}

/// What `change` makes of each expression; failures stay.
template <class Change>
Tokens changed(const Tokens& tokens, const Change& change) {
  Tokens made;
  for (std::size_t e = 0; e < tokens.size(); ++e) {
    if (const Result<Expression> expression = tokens.expression(e)) {
      made.add(change(*expression).tokens());
    } else {
      made.addFailure(expression.error());
    }
  }
  return made;
}

Tokens simplified(const Tokens& tokens, const std::string& math) {
  const Math mode = choiceOf("math", math, kMathModes);
  const nb::gil_scoped_release free;
  return changed(tokens, [&](const Expression& expression) { return simplify(expression, mode); });
}

std::string printed(const Tokens& tokens, std::size_t e, const std::string& language,
                    const std::vector<std::string>& names) {
  return print(tokens.expression(e).value(), languageOf(language), namesOf(names));
}

nb::list operators() {
  nb::list list;
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const OpInfo& info = allOps()[i];
    list.append(nb::make_tuple(info.name, info.text, info.arity, codeOf(static_cast<Op>(i)), info.doc));
  }
  return list;
}

std::vector<std::string> lossNames() {
  std::vector<std::string> names;
  for (const LossInfo& info : allLosses()) names.emplace_back(info.name);
  return names;
}

}  // namespace

void Tokens::add(std::span<const Token> tokens) {
  for (const Token& token : tokens) {
    codes.push_back(codeOf(token));
    constants.push_back(token.value);
  }
  offsets.push_back(static_cast<std::int64_t>(codes.size()));
}

void Tokens::addFailure(Error error) {
  failures.push_back({size(), std::move(error)});
  offsets.push_back(static_cast<std::int64_t>(codes.size()));
}

Result<Expression> Tokens::expression(std::size_t e) const {
  if (e >= size()) return Error{Errc::kInvalid, fmt::format("expression {} of {}", e, size()), {}};
  const auto failure = std::ranges::lower_bound(failures, e, {}, &Failure::expression);
  if (failure != failures.end() && failure->expression == e) return failure->error;
  Population::Block block;
  if (Status valid = block.add(view(), e); !valid) return std::move(valid).error();
  return block[0].expression();
}

ColumnNames namesOf(const std::vector<std::string>& names) {
  return names.empty() ? ColumnNames() : ColumnNames(names);
}

void defineExpressions(nb::module_& module) {
  nb::class_<Tokens>(module, "Tokens")
      .def("__len__", &Tokens::size)
      .def_prop_ro("codes", [](const Tokens& tokens) { return arrayOf(tokens.codes); })
      .def_prop_ro("constants", [](const Tokens& tokens) { return arrayOf(tokens.constants); })
      .def_prop_ro("offsets", [](const Tokens& tokens) { return arrayOf(tokens.offsets); })
      .def_prop_ro("failures", [](const Tokens& tokens) { return failureList(tokens.failures, nullptr); })
      .def("print", printed, nb::arg("expression"), nb::arg("language"), nb::arg("names"))
      .def("simplified", simplified, nb::arg("math"));
  module.def("parse", parseAll, nb::arg("texts"), nb::arg("language"), nb::arg("names"));
  module.def("tokens", tokensOf, nb::arg("codes"), nb::arg("constants"), nb::arg("offsets"), nb::arg("prefix"));
  module.def("operators", operators);
  module.def("loss_names", lossNames);
  module.attr("CONSTANT") = kConstantCode;
  module.attr("VARIABLE") = variableCode(0);
  module.attr("PARAMETER") = kFirstParameterCode;
}

}  // namespace srjit::python
