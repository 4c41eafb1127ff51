#include "runtime/cuda/context.h"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "compiler/target/architecture.h"
#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

/// With less free, a launch that fails for an unknown reason is taken to lack memory. A guess, well above the 3.7 MB
/// with which it was seen.
constexpr std::size_t kLittleMemory = std::size_t{64} << 20;

void chooseArchitecture(DeviceLimits& limits) {
  unsigned newest = 0;
  for (const Architecture& row : allArchitectures()) {
    if (!row.has_ptx || row.number > limits.capability) continue;
    newest = row.number;
    limits.arch = row.name;
  }
  limits.needs_ptx = newest / 10 != limits.capability / 10;
}

DeviceLimits limitsOf(const Driver& driver, CUdevice device, int ordinal) {
  DeviceLimits limits;
  limits.ordinal = ordinal;
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    check(driver, driver.cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
    return static_cast<unsigned>(std::max(value, 0));
  };
  char name[256] = "";
  check(driver, driver.cuDeviceGetName(name, sizeof name, device), "cuDeviceGetName");
  limits.name = name;
  limits.capability = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                      attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  limits.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  limits.shared_bytes_per_multiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  limits.shared_bytes_per_block = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  limits.max_pitch = attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  limits.has_pools = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) != 0;
  check(driver, driver.cuDeviceTotalMem(&limits.memory_bytes, device), "cuDeviceTotalMem");
  check(driver, driver.cuDriverGetVersion(&limits.driver_version), "cuDriverGetVersion");
  // One line, with the version of the module and when it was made.
  std::ifstream build("/proc/driver/nvidia/version");
  std::getline(build, limits.driver_build);
  chooseArchitecture(limits);
  return limits;
}

int deviceCount(const Driver& driver) {
  int count = 0;
  const CUresult code = driver.cuDeviceGetCount(&count);
  if (code == CUDA_ERROR_NO_DEVICE) return 0;
  check(driver, code, "cuDeviceGetCount");
  return count;
}

CUdevice deviceAt(const Driver& driver, int ordinal) {
  CUdevice device = 0;
  check(driver, driver.cuDeviceGet(&device, ordinal), "cuDeviceGet");
  return device;
}

CUmemoryPool makePool(const Driver& driver, CUdevice device) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  CUmemoryPool pool = nullptr;
  check(driver, driver.cuMemPoolCreate(&pool, &properties), "cuMemPoolCreate");
  std::uint64_t threshold = ~std::uint64_t{0};
  if (const CUresult code = driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
      code != CUDA_SUCCESS) {
    driver.cuMemPoolDestroy(pool);
    check(driver, code, "cuMemPoolSetAttribute");
  }
  return pool;
}

}  // namespace

void check(const Driver& driver, CUresult code, std::string_view what) {
  if (code == CUDA_SUCCESS) return;
  throw CudaFailure(code, {Errc::kMachine, fmt::format("{} failed: {}", what, describe(driver, code)), {}});
}

Result<std::vector<DeviceLimits>> listDevices(const Driver& driver) {
  return guarded([&]() -> Result<std::vector<DeviceLimits>> {
    std::vector<DeviceLimits> devices;
    const int count = deviceCount(driver);
    for (int i = 0; i < count; ++i) devices.push_back(limitsOf(driver, deviceAt(driver, i), i));
    return devices;
  });
}

Result<std::shared_ptr<const Cuda>> Cuda::open(std::shared_ptr<const Driver> driver, int ordinal) {
  const std::shared_ptr<Cuda> cuda(new Cuda);
  const Status started = guarded([&] { return cuda->start(std::move(driver), ordinal); });
  if (!started) return started.error();
  return std::shared_ptr<const Cuda>(cuda);
}

Status Cuda::start(std::shared_ptr<const Driver> driver, int ordinal) {
  driver_ = std::move(driver);
  const int count = deviceCount(*driver_);
  if (ordinal < 0 || ordinal >= count) {
    return Error{Errc::kMachine,
                 fmt::format("device cuda:{}, but this machine has {} device{}", ordinal,
                             count == 0 ? "no" : std::to_string(count), count == 1 ? "" : "s"),
                 {}};
  }
  device_ = deviceAt(*driver_, ordinal);
  limits_ = limitsOf(*driver_, device_, ordinal);
  const auto refuse = [&](const std::string& why) {
    return Error{Errc::kUnsupported, fmt::format("device cuda:{} ({}) {}", ordinal, limits_.name, why), {}};
  };
  if (limits_.arch.empty()) {
    return refuse(fmt::format("has compute capability {}.{}; kernels are made for {} and later",
                              limits_.capability / 10, limits_.capability % 10, ptxArchitectures().front()));
  }
  if (!limits_.has_pools) return refuse("has no stream-ordered memory pools");
  check(driver_->cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  pool_ = makePool(*driver_, device_);
  return okStatus();
}

Cuda::~Cuda() {
  if (isForked()) return;
  if (pool_ != nullptr) driver_->cuMemPoolDestroy(pool_);
  if (context_ != nullptr) driver_->cuDevicePrimaryCtxRelease(device_);
}

std::size_t Cuda::freeMemory() const {
  const CurrentContext current(*this);
  std::size_t free = 0, total = 0;
  check(driver_->cuMemGetInfo(&free, &total), "cuMemGetInfo");
  const auto attribute = [&](CUmemPool_attribute which) {
    std::uint64_t value = 0;
    check(driver_->cuMemPoolGetAttribute(pool_, which, &value), "cuMemPoolGetAttribute");
    return value;
  };
  const std::uint64_t used = attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
  const std::uint64_t reserved = attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  return free + (reserved > used ? reserved - used : 0);
}

void Cuda::checkLaunch(CUresult code, std::string_view what) const {
  std::size_t free = 0, total = 0;
  const bool may_lack_memory = code == CUDA_ERROR_OUT_OF_MEMORY || code == CUDA_ERROR_UNKNOWN;
  if (!may_lack_memory || driver_->cuMemGetInfo(&free, &total) != CUDA_SUCCESS || free >= kLittleMemory) {
    return check(code, what);
  }
  throw CudaFailure(CUDA_ERROR_OUT_OF_MEMORY,
                    {Errc::kMachine,
                     fmt::format("{} failed: {}; a launch can need device memory, and {} of {} bytes are free", what,
                                 describe(*driver_, code), free, total),
                     {}});
}

void Cuda::setReclaim(std::function<void()> reclaim) const {
  const std::lock_guard lock(reclaim_mutex_);
  reclaim_ = std::move(reclaim);
}

void Cuda::makeRoom(CUstream freed_in) const {
  std::function<void()> reclaim;
  {
    const std::lock_guard lock(reclaim_mutex_);
    reclaim = reclaim_;
  }
  if (reclaim) reclaim();
  if (freed_in != nullptr) check(driver_->cuStreamSynchronize(freed_in), "cuStreamSynchronize");
  check(driver_->cuMemPoolTrimTo(pool_, 0), "cuMemPoolTrimTo");
}

bool Cuda::owns(CUdeviceptr address) const {
  const CurrentContext current(*this);
  int type = 0, ordinal = -1;
  // The driver calls an address that it does not know an invalid value.
  const auto isKnown = [&](int& value, CUpointer_attribute attribute) {
    const CUresult code = driver_->cuPointerGetAttribute(&value, attribute, address);
    if (code != CUDA_ERROR_INVALID_VALUE) check(code, "cuPointerGetAttribute");
    return code == CUDA_SUCCESS;
  };
  return isKnown(type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) && type == CU_MEMORYTYPE_DEVICE &&
         isKnown(ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) && ordinal == limits_.ordinal;
}

bool Cuda::isPinned(const void* data, std::size_t bytes) const {
  const CurrentContext current(*this);
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  int type = 0;
  CUdeviceptr start = 0;
  std::size_t size = 0;
  const auto get = [&](auto& value, CUpointer_attribute attribute) {
    return driver_->cuPointerGetAttribute(&value, attribute, address) == CUDA_SUCCESS;
  };
  return get(type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) && type == CU_MEMORYTYPE_HOST &&
         get(start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) && get(size, CU_POINTER_ATTRIBUTE_RANGE_SIZE) &&
         start <= address && address - start <= size && bytes <= size - (address - start);
}

CurrentContext::CurrentContext(const Cuda& cuda) : driver_(cuda.driver()) {
  cuda.check(driver_.cuCtxGetCurrent(&previous_), "cuCtxGetCurrent");
  if (previous_ == cuda.context()) return;
  cuda.check(driver_.cuCtxSetCurrent(cuda.context()), "cuCtxSetCurrent");
  changed_ = true;
}

CurrentContext::CurrentContext(const Cuda& cuda, std::nothrow_t) noexcept : driver_(cuda.driver()) {
  if (driver_.cuCtxGetCurrent(&previous_) != CUDA_SUCCESS || previous_ == cuda.context()) return;
  changed_ = driver_.cuCtxSetCurrent(cuda.context()) == CUDA_SUCCESS;
}

CurrentContext::~CurrentContext() {
  if (changed_) driver_.cuCtxSetCurrent(previous_);
}

}  // namespace srjit
