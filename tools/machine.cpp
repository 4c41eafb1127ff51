#include "tools/machine.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <llvm/Config/llvm-config.h>

#include "compiler/host/jit.h"
#include "compiler/kernels/assembler.h"
#include "compiler/nvptx/kernels.h"
#include "compiler/nvptx/options.h"
#include "compiler/target/architecture.h"
#include "ir/ops.h"
#include "runtime/cache/kernels.h"
#include "runtime/code/makers.h"
#include "runtime/cuda/context.h"
#include "runtime/tiers/direct_self_test.h"

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
  const HostTarget& host = detectHost();
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
  if (!status) success = status.error().message;
  return {std::move(name), status.ok(), std::move(success), std::move(needed_for)};
}

Dag sampleGraph() {
  Dag graph(Precision::kF32);
  graph.addRoot(graph.apply(Op::kAtan2, {graph.variable(0), graph.variable(1)}));
  return graph;
}

Status tryHostCode() {
  const Result<HostCode> code = HostJit(Precision::kF32, Math::kPrecise).compile(sampleGraph());
  return code ? okStatus() : Status(code.error());
}

Status tryPtx() {
  const Dag graph = sampleGraph();
  const Result<std::string> ptx = rowsPtx({&graph, 1}, {});
  return ptx ? okStatus() : Status(ptx.error());
}

Finding piece(std::string name, const std::string& path, std::string needed_for) {
  return {std::move(name), !path.empty(), path.empty() ? "not found" : path, std::move(needed_for)};
}

Finding found(std::string name, const Result<std::string>& what, std::string needed_for) {
  return {std::move(name), what.ok(), what ? *what : what.error().message, std::move(needed_for)};
}

Finding program(std::string name, const std::string& path, std::string needed_for) {
  if (path.empty()) return piece(std::move(name), path, std::move(needed_for));
  return found(std::move(name), describeProgram(path), std::move(needed_for));
}

std::string deviceText(const DeviceLimits& device) {
  std::string text = fmt::format("{}, compute capability {}.{}, {} multiprocessors, {:.1f} GiB", device.name,
                                 device.capability / 10, device.capability % 10, device.multiprocessors,
                                 static_cast<double>(device.memory_bytes) / (1u << 30));
  if (device.arch.empty()) return text + fmt::format("; kernels need {} or later", ptxArchitectures().front());
  if (!device.has_pools) return text + "; it lacks stream-ordered memory pools";
  const std::string assembler(assemblerName());
  return text + fmt::format("; {} kernels assembled by {}{}", device.arch,
                            assembler.empty() ? "the driver itself" : assembler,
                            device.needs_ptx && !assembler.empty() ? ", or the driver itself" : "");
}

Finding kernelCache() {
  const std::string purpose = "keeping kernels from one process to the next";
  const std::filesystem::path directory = cacheDirectory();
  const std::string shown = text::printable(directory.string());
  if (directory.empty()) return {"kernel cache", false, fmt::format("no directory: {}", kNoCacheDirectory), purpose};
  std::error_code ignored;
  if (!std::filesystem::exists(directory, ignored)) {
    return {"kernel cache", true, shown + ", not there yet", purpose};
  }
  const CacheStats stats = KernelCache::open({.directory = directory, .access = StoreAccess::kLook})->stats();
  if (!stats.disk_fault.empty()) return {"kernel cache", false, stats.disk_fault, purpose};
  return {"kernel cache", true,
          fmt::format("{}, {} images, {:.1f} MiB", shown, stats.disk_images,
                      static_cast<double>(stats.disk_bytes) / (1u << 20)),
          purpose};
}

/// Of one device: whether there is direct code for it, and whether it was compared with the interpreter's.
Finding directTier(const DeviceLimits& device) {
  const std::string name = fmt::format("cuda:{} direct", device.ordinal), purpose = "--tier direct";
  if (!hasDirectTier(device)) {
    return {name, false, fmt::format("no instructions of sm_{} are known", device.capability), purpose};
  }
  const auto cache = KernelCache::open({.directory = cacheDirectory(), .access = StoreAccess::kLook});
  const std::string identity = llvmImageMaker()->identity();
  std::string text = fmt::format("instructions of sm_{}", device.capability);
  bool usable = true;
  for (const Precision precision : kPrecisions) {
    for (const Math math : kMathModes) {
      const auto result = DirectSelfTest::lastResult(*cache, device, precision, math, identity);
      text += fmt::format("; {} {}: {}", nameOf(precision), nameOf(math), result.second);
      usable = usable && !result.first;
    }
  }
  return {name, usable, std::move(text), purpose};
}

/// The driver and its devices.
std::vector<Finding> driverAndDevices() {
  const std::string purpose = "running on a GPU";
  const Result<std::shared_ptr<const Driver>> driver = loadDriver();
  if (!driver) return {{"CUDA driver", false, driver.error().message, purpose}};
  int version = 0;
  (*driver)->cuDriverGetVersion(&version);
  std::vector<Finding> findings = {
      {"CUDA driver", true, fmt::format("{}, CUDA {}", kDriverLibrary, cudaVersionText(version)), purpose}};
  const Result<std::vector<DeviceLimits>> devices = listDevices(**driver);
  if (!devices) {
    findings.push_back({"devices", false, devices.error().message, purpose});
  } else if (devices->empty()) {
    findings.push_back({"devices", false, "none", purpose});
  } else {
    for (const DeviceLimits& device : *devices) {
      findings.push_back({fmt::format("cuda:{}", device.ordinal), !device.arch.empty() && device.has_pools,
                          deviceText(device), purpose});
      findings.push_back(directTier(device));
    }
  }
  return findings;
}

}  // namespace

std::vector<Finding> inspectMachine() {
  const Toolkit& toolkit = findToolkit();
  std::vector<Finding> findings = {
      processor(),
      {"LLVM", true, LLVM_VERSION_STRING, ""},
      outcome(std::string(kHostCode), tryHostCode(), "compiles", "run, loss, asm"),
      outcome("PTX", tryPtx(), fmt::format("{} to {}", ptxArchitectures().front(), ptxArchitectures().back()),
              "llvm, ptx"),
      found("nvJitLink", describeNvJitLink(), "machine code for a GPU, where ptxas is missing too"),
      program("ptxas", toolkit.ptxas, "machine code for a GPU, where nvJitLink is missing too"),
      piece("assembler", std::string(assemblerName()), "cubin, sass; a GPU's driver assembles kernels itself, slowly"),
      program("nvdisasm", toolkit.nvdisasm, "sass without --tier direct"),
      kernelCache(),
  };
  const std::vector<Finding> gpu = driverAndDevices();
  findings.insert(findings.end(), gpu.begin(), gpu.end());
  return findings;
}

}  // namespace srjit
