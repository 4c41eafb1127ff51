// Expressions: text, token arrays, operators.
#include <fmt/format.h>

#include "core/bindings.h"
#include "ir/losses.h"
#include "ir/ops.h"
#include "ir/text/latex.h"

namespace srjit::python {

namespace {

Language languageOf(std::string_view word) {
  if (const auto language = findLanguage(word)) return *language;
  throw ErrorException({Errc::kInvalid,
                        fmt::format("language is '{}', expected one of 'infix', 'postfix', 'prefix', 'json'", word),
                        {}});
}

PopulationArrays parseAll(const std::vector<std::string>& texts, const std::string& language,
                          const std::vector<std::string>& names, std::size_t max_nodes) {
  const Language form = languageOf(language);
  const ColumnNames columns = namesOf(names);
  const nb::gil_scoped_release free;
  return PopulationArrays::parse(texts, form, columns, max_nodes);
}

/// A copy of a caller's arrays.
PopulationArrays tokensOf(const Numbers<std::int32_t>& codes, const Numbers<double>& constants,
                          const Numbers<std::int64_t>& offsets, bool prefix) {
  const PopulationView view = populationOf(codes, constants, offsets, prefix);
  const nb::gil_scoped_release free;
  checkArrays(view).value();
  return PopulationArrays::copy(view);
}

PopulationArrays simplified(const PopulationArrays& tokens, const std::string& math) {
  const Math mode = choiceOf("math", math, kMathModes);
  const nb::gil_scoped_release free;
  return tokens.simplified(mode);
}

std::string printed(const PopulationArrays& tokens, std::size_t e, const std::string& language,
                    const std::vector<std::string>& names) {
  return print(tokens.expression(e).value(), languageOf(language), namesOf(names));
}

std::string latexOf(const PopulationArrays& tokens, std::size_t e, const std::vector<std::string>& names) {
  return text::latexText(tokens.expression(e).value(), namesOf(names));
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

ColumnNames namesOf(const std::vector<std::string>& names) {
  return names.empty() ? ColumnNames() : ColumnNames(names);
}

void defineExpressions(nb::module_& module) {
  nb::class_<PopulationArrays>(module, "Tokens")
      .def("__len__", &PopulationArrays::size)
      .def_prop_ro("codes", [](const PopulationArrays& tokens) { return arrayOf(tokens.codes); })
      .def_prop_ro("constants", [](const PopulationArrays& tokens) { return arrayOf(tokens.constants); })
      .def_prop_ro("offsets", [](const PopulationArrays& tokens) { return arrayOf(tokens.offsets); })
      .def_prop_ro("failures", [](const PopulationArrays& tokens) { return failureList(tokens.failures); })
      .def("print", printed, nb::arg("expression"), nb::arg("language"), nb::arg("names"))
      .def("latex", latexOf, nb::arg("expression"), nb::arg("names"))
      .def("simplified", simplified, nb::arg("math"));
  module.def("parse", parseAll, nb::arg("texts"), nb::arg("language"), nb::arg("names"), nb::arg("max_nodes"));
  module.def("tokens", tokensOf, nb::arg("codes"), nb::arg("constants"), nb::arg("offsets"), nb::arg("prefix"));
  module.def("operators", operators);
  module.def("loss_names", lossNames);
  module.attr("CONSTANT") = kConstantCode;
  module.attr("VARIABLE") = variableCode(0);
  module.attr("PARAMETER") = kFirstParameterCode;
}

}  // namespace srjit::python
