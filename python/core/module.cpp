// The extension module srjit._core: the C++ classes of sr-jit for the Python package, and the command as a function.
#include "core/bindings.h"
#include "core/waiting.h"
#include "tools/command_line.h"

namespace srjit::python {

namespace {

int runCommand(const std::vector<std::string>& words) {
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  arguments.push_back(nullptr);
  const nb::gil_scoped_release free;
  return runCommandLine(static_cast<int>(words.size()), arguments.data());
}

}  // namespace

NB_MODULE(_core, module) {
  // What a program still has when it ends is no leak.
  nb::set_leak_warnings(false);
  module.doc() = "The private half of the package srjit, in C++.";
  module.attr("__version__") = SRJIT_VERSION;
  defineErrors(module);
  defineExpressions(module);
  defineTrees(module);
  defineData(module);
  defineEngine(module);
  defineEvaluations(module);
  defineSearch(module);
  module.def("finish_calls", finishCalls);
  module.def("run_command", runCommand, nb::arg("words"));
}

}  // namespace srjit::python
