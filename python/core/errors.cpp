#include <exception>

#include "core/bindings.h"

namespace srjit::python {

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

}  // namespace srjit::python
