#include "compiler/loader/shared_library.h"

#include <dlfcn.h>

namespace srjit {

Result<SharedLibrary> SharedLibrary::open(const std::string& name) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Error{Errc::kMachine, dlerror(), {}};
  return SharedLibrary(handle, name);
}

void* SharedLibrary::find(const char* symbol) const noexcept { return dlsym(handle_, symbol); }

Error SharedLibrary::lacks(const char* symbol) const { return {Errc::kMachine, name_ + " lacks " + symbol, {}}; }

}  // namespace srjit
