// Trees of GP systems that keep an individual as a list of nodes in prefix order: to token arrays, in one walk.
#include <unordered_map>
#include <unordered_set>

#include "core/bindings.h"

namespace srjit::python {

namespace {

/// What nodes are. A float is a constant; other nodes are known by identity, since a GP system has one object for each
/// of its primitives (these are kept, so that their addresses stay theirs), or by their type. `resolve` gives the code
/// and the number of nodes that are not known.
class NodeCodes {
 public:
  NodeCodes(nb::object resolve, bool integers_are_variables)
      : resolve_(std::move(resolve)), integers_are_variables_(integers_are_variables) {}

  void add(const nb::object& node, std::int32_t code, double constant) {
    kept_.push_back(node);
    tokens_.insert_or_assign(node.ptr(), Entry{code, constant});
  }
  /// Instances of this type are constants, whose numbers are their attribute `value`.
  void addConstantType(const nb::object& type) {
    kept_.push_back(type);
    constant_types_.insert(type.ptr());
  }

  /// For Python's garbage collector: what refers to a tree's owner may be owned by it.
  int traverse(visitproc visit, void* context) const {
    if (resolve_.is_valid()) {
      if (const int stop = visit(resolve_.ptr(), context); stop != 0) return stop;
    }
    for (const nb::object& object : kept_) {
      if (const int stop = visit(object.ptr(), context); stop != 0) return stop;
    }
    return 0;
  }
  void clear() {
    tokens_.clear();
    constant_types_.clear();
    const auto kept = std::exchange(kept_, {});
    const nb::object resolve = std::exchange(resolve_, nb::object());
  }

  /// Codes, constants and offsets of lists of nodes.
  nb::tuple arraysOf(const nb::list& trees) const {
    Arrays arrays;
    const Py_ssize_t count = PyList_Size(trees.ptr());
    arrays.offsets.reserve(static_cast<std::size_t>(count) + 1);
    arrays.offsets.push_back(0);
    for (Py_ssize_t t = 0; t < count; ++t) {
      PyObject* const item = PyList_GetItem(trees.ptr(), t);
      if (item == nullptr) throw nb::python_error();  // what resolves a node has changed the list
      const nb::object tree = nb::borrow(item);
      if (!PyList_Check(tree.ptr())) throw nb::type_error("expected a list of individuals, each a list of nodes");
      // The size is asked for again, since what resolves a node could change the list.
      for (Py_ssize_t n = 0; n < PyList_Size(tree.ptr()); ++n) append(PyList_GetItem(tree.ptr(), n), arrays);
      arrays.offsets.push_back(static_cast<std::int64_t>(arrays.codes.size()));
    }
    return nb::make_tuple(arrayOf(std::move(arrays.codes)), arrayOf(std::move(arrays.constants)),
                          arrayOf(std::move(arrays.offsets)));
  }

 private:
  struct Entry {
    std::int32_t code;
    double constant;
  };
  struct Arrays {
    std::vector<std::int32_t> codes;
    std::vector<double> constants;
    std::vector<std::int64_t> offsets;

    void add(std::int32_t code, double constant) {
      codes.push_back(code);
      constants.push_back(constant);
    }
  };

  static double numberOf(PyObject* object) {
    const double number = PyFloat_AsDouble(object);
    if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return number;
  }

  void append(PyObject* node, Arrays& to) const {
    if (PyFloat_CheckExact(node)) return to.add(kConstantCode, PyFloat_AsDouble(node));
    if (const auto known = tokens_.find(node); known != tokens_.end()) {
      return to.add(known->second.code, known->second.constant);
    }
    if (integers_are_variables_ && PyLong_CheckExact(node)) {
      const long index = PyLong_AsLong(node);
      if (index == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
      if (index < 0 || index > Expression::kMaxIndex) {
        throw ErrorException({Errc::kInvalid, "a variable has the number " + std::to_string(index), {}});
      }
      return to.add(variableCode(static_cast<std::uint32_t>(index)), 0);
    }
    auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(node));
    if (constant_types_.contains(type)) {
      return to.add(kConstantCode, numberOf(nb::borrow(node).attr("value").ptr()));
    }
    const auto [code, constant] = nb::cast<std::tuple<std::int32_t, double>>(resolve_(nb::borrow(node)));
    to.add(code, constant);
  }

  nb::object resolve_;
  bool integers_are_variables_;
  std::unordered_map<PyObject*, Entry> tokens_;
  std::unordered_set<PyObject*> constant_types_;
  std::vector<nb::object> kept_;
};

int traverse(PyObject* self, visitproc visit, void* context) {
  if (const int stop = visit(reinterpret_cast<PyObject*>(Py_TYPE(self)), context); stop != 0) return stop;
  return nb::inst_ready(self) ? nb::inst_ptr<NodeCodes>(self)->traverse(visit, context) : 0;
}
int clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<NodeCodes>(self)->clear();
  return 0;
}
PyType_Slot collected_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)}, {Py_tp_clear, reinterpret_cast<void*>(clear)}, {0, nullptr}};

}  // namespace

void defineTrees(nb::module_& module) {
  nb::class_<NodeCodes>(module, "NodeCodes", nb::type_slots(collected_slots))
      .def(nb::init<nb::object, bool>(), nb::arg("resolve"), nb::arg("integers_are_variables"))
      .def("add", &NodeCodes::add, nb::arg("node"), nb::arg("code"), nb::arg("constant"))
      .def("add_constant_type", &NodeCodes::addConstantType, nb::arg("type"))
      .def("arrays", &NodeCodes::arraysOf, nb::arg("trees"));
}

}  // namespace srjit::python
