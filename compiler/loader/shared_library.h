// Libraries that are loaded at run time, since machines without them must run the rest. Thread-safe.
#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>

#include "ir/error.h"

namespace srjit {

/// A shared library. It stays open until the process ends, as the CUDA driver and its like keep threads and state of
/// the whole process. Its symbols are not visible to other libraries (RTLD_LOCAL), and are bound at once (RTLD_NOW). A
/// value: copies name the same library.
class SharedLibrary {
 public:
  /// Opens a path, or a name that the dynamic loader searches for. Errors: kMachine with the text of dlerror().
  static Result<SharedLibrary> open(const std::string& name) {
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return Error{Errc::kMachine, dlerror(), {}};
    return SharedLibrary(handle, name);
  }

  /// What `use(library)`, a Result, makes of the first of `names` that can be opened and for which it is no error.
  /// Empty names are left out. Errors: kMachine with the message for each name: "a: no such file; b lacks f".
  template <class Use>
  static std::invoke_result_t<Use, const SharedLibrary&> openFirst(std::initializer_list<std::string> names,
                                                                   const Use& use) {
    std::string faults;
    const auto note = [&](const Error& error) { faults += (faults.empty() ? "" : "; ") + error.message; };
    for (const std::string& name : names) {
      if (name.empty()) continue;
      const Result<SharedLibrary> library = open(name);
      if (!library) {
        note(library.error());
        continue;
      }
      auto made = use(*library);
      if (made) return made;
      note(made.error());
    }
    return Error{Errc::kMachine, std::move(faults), {}};
  }

  /// As it was opened.
  const std::string& name() const noexcept { return name_; }

  /// The address of a symbol of this library or of those that it needs; null if there is none.
  void* find(const char* symbol) const noexcept { return dlsym(handle_, symbol); }

  /// Points `entry`, a pointer to a function, to `symbol`, which must have that type. Errors: kMachine "libx.so lacks
  /// symbol". Rows of a table of entries (.def) are bound one by one.
  template <class Function>
  Status bind(Function*& entry, const char* symbol) const {
    static_assert(std::is_function_v<Function>);
    entry = reinterpret_cast<Function*>(find(symbol));
    return entry != nullptr ? okStatus() : Status(Error{Errc::kMachine, name_ + " lacks " + symbol, {}});
  }

 private:
  SharedLibrary(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}

  void* handle_;
  std::string name_;
};

}  // namespace srjit
