#include "tools/machine.h"

#include <dlfcn.h>

#include <fstream>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <llvm/Config/llvm-config.h>

#include "compiler/device.h"
#include "compiler/host_jit.h"
#include "compiler/toolkit.h"
#include "runtime/assembler.h"

namespace srjit {
namespace {

std::string processorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

Finding processor() {
  const HostTarget host = detectHost();
  std::string features;
  for (const char* const name : {"sse4.2", "avx", "avx2", "fma", "avx512f"}) {
    if (host.features.find(std::string("+") + name + ',') != std::string::npos ||
        host.features.ends_with(std::string("+") + name)) {
      features += std::string(" ") + name;
    }
  }
  return {"processor", true,
          fmt::format("{} ({}), {} threads, {}-byte vectors,{}", processorName(), host.cpu,
                      std::thread::hardware_concurrency(), host.vector_bytes, features),
          ""};
}

Finding outcome(std::string name, const Status& status, std::string success, std::string needed_for) {
  return {std::move(name), status.ok(), status.ok() ? std::move(success) : status.error().message,
          std::move(needed_for)};
}

Dag sampleGraph(Op op) {
  Dag graph(Precision::kF32);
  graph.addRoot(graph.apply(op, {graph.variable(0), graph.variable(1)}));
  return graph;
}

Status tryHostCode() {
  const auto jit = HostJit::create(Precision::kF32, Math::kPrecise);
  if (!jit) return jit.error();
  const Result<HostCode> code = (*jit)->compile(sampleGraph(Op::kAdd));
  return code ? okStatus() : Status(code.error());
}

Status tryPtx(Op op) {
  const Dag graph = sampleGraph(op);
  const Result<std::string> ptx = rowsPtx({&graph, 1}, {});
  return ptx ? okStatus() : Status(ptx.error());
}

Finding library(std::string name, const char* file, std::string needed_for) {
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {std::move(name), false, "not found", std::move(needed_for)};
  dlclose(handle);
  return {std::move(name), true, file, std::move(needed_for)};
}

Finding piece(std::string name, const std::string& path, std::string needed_for) {
  return {std::move(name), !path.empty(), path.empty() ? "not found" : path, std::move(needed_for)};
}

template <class Function>
Function* symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

/// The driver and its devices. Only its oldest entry points are used, which every version has.
std::vector<Finding> driverAndDevices() {
  const std::string purpose = "running on a GPU";
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return {{"CUDA driver", false, "libcuda.so.1 not found", purpose}};
  const auto init = symbol<int(unsigned)>(driver, "cuInit");
  const auto driver_version = symbol<int(int*)>(driver, "cuDriverGetVersion");
  const auto device_count = symbol<int(int*)>(driver, "cuDeviceGetCount");
  const auto device_name = symbol<int(char*, int, int)>(driver, "cuDeviceGetName");
  if (init == nullptr || driver_version == nullptr || device_count == nullptr || device_name == nullptr) {
    return {{"CUDA driver", false, "libcuda.so.1 lacks the entry points of a driver", purpose}};
  }
  int version = 0, count = 0;
  driver_version(&version);
  const std::string number = fmt::format("libcuda.so.1, CUDA {}.{}", version / 1000, version % 1000 / 10);
  if (const int code = init(0); code != 0) {
    return {{"CUDA driver", true, number, purpose},
            {"devices", false, fmt::format("cuInit failed: error {}", code), purpose}};
  }
  device_count(&count);
  std::vector<Finding> findings = {{"CUDA driver", true, number, purpose}};
  if (count == 0) findings.push_back({"devices", false, "none", purpose});
  for (int i = 0; i < count; ++i) {
    char name[128] = "";
    device_name(name, sizeof name, i);
    findings.push_back({fmt::format("cuda:{}", i), true, name, purpose});
  }
  return findings;
}

}  // namespace

std::vector<Finding> inspectMachine() {
  const Toolkit& toolkit = findToolkit();
  std::vector<Finding> findings = {
      processor(),
      {"LLVM", true, LLVM_VERSION_STRING, ""},
      outcome("host code", tryHostCode(), "compiles", "run, loss, asm"),
      library("libmvec", "libmvec.so.1", "fast exp, log, sin and others on the host; libm is used instead"),
      outcome("PTX", tryPtx(Op::kAdd),
              fmt::format("{} to {}", deviceArchitectures().front(), deviceArchitectures().back()), "llvm, ptx"),
      piece("libdevice", toolkit.libdevice, "GPU kernels with functions such as sin and exp"),
      outcome("PTX of functions", tryPtx(Op::kAtan2), "made with libdevice",
              "GPU kernels with functions such as sin and exp"),
      piece("nvJitLink", toolkit.nvjitlink, "machine code for a GPU, where ptxas is missing too"),
      piece("ptxas", toolkit.ptxas, "machine code for a GPU, where nvJitLink is missing too"),
      piece("assembler", std::string(assemblerName()), "cubin, sass"),
      piece("nvdisasm", toolkit.nvdisasm, "sass"),
  };
  const std::vector<Finding> gpu = driverAndDevices();
  findings.insert(findings.end(), gpu.begin(), gpu.end());
  return findings;
}

}  // namespace srjit
