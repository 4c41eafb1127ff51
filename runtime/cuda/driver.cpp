#include "runtime/cuda/driver.h"

#include <fmt/format.h>

#include "compiler/loader/shared_library.h"

namespace srjit {
namespace {

// The only entry that is found by its symbol; its prototype is that of CUDA 12.0 and later.
constexpr const char* kGetProcAddress = "cuGetProcAddress_v2";
using GetProcAddress = CUresult(const char* name, void** entry, int version, std::uint64_t flags, int* status);

Error missing(const char* name, int needed, int version) {
  return {Errc::kMachine,
          fmt::format("the CUDA driver lacks {}, which CUDA {} has; this driver is of CUDA {}", name,
                      cudaVersionText(needed), version == 0 ? "an unknown version" : cudaVersionText(version)),
          {}};
}

template <class Entry>
bool bind(Entry& entry, void* address) {
  entry = reinterpret_cast<Entry>(address);
  return address != nullptr;
}

// 0 where the driver does not say.
int versionOf(CUresult (*driver_version)(int*)) {
  int version = 0;
  return driver_version != nullptr && driver_version(&version) == CUDA_SUCCESS ? version : 0;
}

}  // namespace

std::string cudaVersionText(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

Result<std::shared_ptr<const Driver>> bindDriver(const FindEntry& find) {
  const auto driver = std::make_shared<Driver>();
  bind(driver->cuDriverGetVersion, find("cuDriverGetVersion", 2020));
#define SRJIT_DRIVER(name, version, parameters) \
  if (!bind(driver->name, find(#name, version))) return missing(#name, version, versionOf(driver->cuDriverGetVersion));
#include "runtime/cuda/driver.def"
#undef SRJIT_DRIVER
  if (const CUresult code = driver->cuInit(0); code != CUDA_SUCCESS) {
    return Error{Errc::kMachine, "cuInit failed: " + describe(*driver, code), {}};
  }
  return std::shared_ptr<const Driver>(driver);
}

Result<std::shared_ptr<const Driver>> openDriver(const std::string& name) {
  const Result<SharedLibrary> library = SharedLibrary::open(name);
  if (!library) return Error{Errc::kMachine, "no CUDA driver: " + library.error().message, {}};
  GetProcAddress* get_proc_address = nullptr;
  if (!bind(get_proc_address, library->find(kGetProcAddress))) {
    CUresult (*driver_version)(int*) = nullptr;
    bind(driver_version, library->find("cuDriverGetVersion"));
    return missing(kGetProcAddress, 12000, versionOf(driver_version));
  }
  return bindDriver([get_proc_address](const char* entry_name, int version) -> void* {
    void* entry = nullptr;
    int status = CU_GET_PROC_ADDRESS_SUCCESS;
    const CUresult code = get_proc_address(entry_name, &entry, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
    return code == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS ? entry : nullptr;
  });
}

Result<std::shared_ptr<const Driver>> loadDriver() {
  static const Result<std::shared_ptr<const Driver>> driver = openDriver(kDriverLibrary);
  return driver;
}

std::string describe(const Driver& driver, CUresult code) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.cuGetErrorName(code, &name) != CUDA_SUCCESS || name == nullptr) name = "an unknown error";
  if (driver.cuGetErrorString(code, &text) != CUDA_SUCCESS || text == nullptr) text = "without a description";
  return fmt::format("{} {}, {}", code, name, text);
}

}  // namespace srjit
