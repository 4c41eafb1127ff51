// The extension module srjit._core: the C++ classes of sr-jit for the Python package, and the command as a function.
#include <unistd.h>

#include <cstdlib>
#include <exception>

#include "core/bindings.h"
#include "tools/command_line.h"

// LLVM names its temporary files with it. glibc has it from 2.36 on, and nothing else here needs more than 2.34: with
// this one, the wheel is a manylinux_2_35 (which libstdc++ asks for).
extern "C" std::uint32_t arc4random() {
  std::uint32_t number = 0;
  // It has no way to fail, and neither has getentropy() for so few bytes on a kernel that has random numbers.
  if (getentropy(&number, sizeof number) != 0) std::abort();
  return number;
}

namespace srjit::python {

namespace {

int runCommand(const std::vector<std::string>& words) {
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  arguments.push_back(nullptr);
  const nb::gil_scoped_release free;
  return runCommandLine(static_cast<int>(words.size()), arguments.data());
}

void defineErrors(nb::module_& module) {
  nb::class_<Failures>(module, "Failures")
      .def("__len__", [](const Failures& failures) { return failures.list.size(); })
      .def("list", [](const Failures& failures) { return failureList(failures.list); });
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const ErrorException& failure) {
      const nb::object error = errorObject(failure.error());
      PyErr_SetObject(error.type().ptr(), error.ptr());
    }
  });
}

}  // namespace

nb::object errorObject(const Error& error) {
  nb::object where = nb::none();
  if (error.where) where = nb::make_tuple(error.where->line, error.where->column, error.where->length);
  return nb::module_::import_("srjit._errors").attr("error_of")(nameOf(error.code), error.message, where);
}

nb::list failureList(std::span<const Failure> failures) {
  nb::list list;
  for (const Failure& failure : failures) list.append(nb::make_tuple(failure.expression, errorObject(failure.error)));
  return list;
}

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
  defineDeviceLosses(module);
  defineSearch(module);
  module.def("finish_calls", finishCalls);
  module.def("run_command", runCommand, nb::arg("words"));
}

}  // namespace srjit::python
