// Entries about devices, contexts and memory.
#include <algorithm>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "tests/gpu_model/fake_state.h"

namespace srjit {

namespace {

using Kind = FakeState::Kind;

struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kDeviceUnavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {kEccUncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

CUresult textOf(CUresult code, const char** text, const char* ErrorText::* member) {
  const auto* const found = std::ranges::find(kErrors, code, &ErrorText::code);
  *text = found == std::end(kErrors) ? nullptr : found->*member;
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

const FakeDevice& deviceOf(const FakeState& state, CUdevice device) {
  if (device < 0 || device >= static_cast<int>(state.options.devices.size())) {
    throw FakeRefusal{CUDA_ERROR_INVALID_DEVICE};
  }
  return state.options.devices[static_cast<std::size_t>(device)];
}

}  // namespace

CUresult FakeEntries::cuInit(unsigned flags) {
  return FakeState::enter(__func__, Kind::kFree,
                          [&](FakeState&) { return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
}

CUresult FakeEntries::cuDriverGetVersion(int* version) {
  return FakeState::enter(__func__, Kind::kFree, [&](FakeState& state) { *version = state.options.version; });
}

CUresult FakeEntries::cuGetErrorName(CUresult code, const char** name) { return textOf(code, name, &ErrorText::name); }
CUresult FakeEntries::cuGetErrorString(CUresult code, const char** text) {
  return textOf(code, text, &ErrorText::text);
}

CUresult FakeEntries::cuDeviceGetCount(int* count) {
  return FakeState::enter(__func__, Kind::kFree,
                          [&](FakeState& state) { *count = static_cast<int>(state.options.devices.size()); });
}

CUresult FakeEntries::cuDeviceGet(CUdevice* device, int ordinal) {
  return FakeState::enter(__func__, Kind::kFree, [&](FakeState& state) {
    *device = ordinal;
    deviceOf(state, ordinal);
  });
}

CUresult FakeEntries::cuDeviceGetName(char* name, int length, CUdevice device) {
  return FakeState::enter(__func__, Kind::kFree, [&](FakeState& state) {
    const FakeDevice& found = deviceOf(state, device);
    const std::size_t count = found.name.copy(name, static_cast<std::size_t>(length) - 1);
    name[count] = '\0';
  });
}

CUresult FakeEntries::cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return FakeState::enter(__func__, Kind::kFree, [&](FakeState& state) {
    const FakeDevice& found = deviceOf(state, device);
    const std::map<CUdevice_attribute, std::size_t> values = {
        {CU_DEVICE_ATTRIBUTE_MAX_PITCH, found.max_pitch},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, found.multiprocessors},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, found.capability / 10},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, found.capability % 10},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, found.shared_bytes_per_multiprocessor},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, found.shared_bytes_per_block},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, found.has_pools ? 1 : 0}};
    if (!values.contains(attribute)) throw FakeRefusal{CUDA_ERROR_INVALID_VALUE};
    *value = static_cast<int>(values.at(attribute));
  });
}

CUresult FakeEntries::cuDeviceTotalMem(std::size_t* bytes, CUdevice device) {
  return FakeState::enter(__func__, Kind::kFree, [&](FakeState& state) {
    const FakeDevice& found = deviceOf(state, device);
    *bytes = found.memory_bytes;
  });
}

CUresult FakeEntries::cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return FakeState::enter(__func__, Kind::kFree, [&](FakeState& state) {
    deviceOf(state, device);
    FakeContext& found = *state.contexts[static_cast<std::size_t>(device)];
    if (found.lost != CUDA_SUCCESS) throw FakeRefusal{found.lost};
    ++found.retained;
    *context = reinterpret_cast<CUcontext>(&found);
  });
}

CUresult FakeEntries::cuDevicePrimaryCtxRelease(CUdevice device) {
  return FakeState::enter(__func__, Kind::kEnd, [&](FakeState& state) {
    deviceOf(state, device);
    FakeContext& found = *state.contexts[static_cast<std::size_t>(device)];
    if (found.retained == 0) {
      state.problem("a context is released more often than retained");
      throw FakeRefusal{CUDA_ERROR_INVALID_CONTEXT};
    }
    if (--found.retained == 0) state.reportLeaks(&found);
  });
}

CUresult FakeEntries::cuMemGetInfo(std::size_t* free, std::size_t* total) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto device = static_cast<std::size_t>(state.current()->device);
    *total = state.options.devices[device].memory_bytes;
    const std::size_t taken = state.reserved[device] + state.occupied;
    *free = *total > taken ? *total - taken : 0;
  });
}

CUresult FakeEntries::cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return FakeState::enter(__func__, Kind::kFree, [&](FakeState& state) {
    const FakeDevice& device = deviceOf(state, properties->location.id);
    if (!device.has_pools || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    FakeContext* const context = state.contexts[static_cast<std::size_t>(properties->location.id)].get();
    state.add(state.pools, pool, std::make_shared<FakePool>(FakePool{context, properties->location.id, 0}));
    return CUDA_SUCCESS;
  });
}

CUresult FakeEntries::cuMemPoolDestroy(CUmemoryPool pool) {
  return FakeState::enter(__func__, Kind::kEnd, [&](FakeState& state) { state.remove(state.pools, pool, "pool"); });
}

CUresult FakeEntries::cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return FakeState::enter(__func__, Kind::kFree, [&](FakeState& state) {
    const auto found = state.find(state.pools, pool, "pool");
    if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) throw FakeRefusal{CUDA_ERROR_INVALID_VALUE};
    found->threshold = *static_cast<std::uint64_t*>(value);
  });
}

CUresult FakeEntries::cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return FakeState::enter(__func__, Kind::kFree, [&](FakeState& state) {
    const auto found = state.find(state.pools, pool, "pool");
    const auto device = static_cast<std::size_t>(found->device);
    auto& number = *static_cast<std::uint64_t*>(value);
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) number = found->threshold;
    if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) number = state.reserved[device];
    if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT) number = state.used[device];
  });
}

CUresult FakeEntries::cuMemPoolTrimTo(CUmemoryPool pool, std::size_t bytes_to_keep) {
  return FakeState::enter(__func__, Kind::kFree, [&](FakeState& state) {
    const auto found = state.find(state.pools, pool, "pool");
    const auto device = static_cast<std::size_t>(found->device);
    state.reserved[device] = std::min(state.reserved[device], std::max(state.used[device], bytes_to_keep));
  });
}

CUresult FakeEntries::cuMemAllocFromPoolAsync(CUdeviceptr* address, std::size_t bytes, CUmemoryPool pool,
                                              CUstream stream) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto found = state.find(state.pools, pool, "pool");
    const auto queue = state.find(state.streams, stream, "stream");
    if (bytes == 0) throw FakeRefusal{CUDA_ERROR_INVALID_VALUE};
    state.note(bytes, {}, queue->number);
    if (bytes > state.available(found->device)) throw FakeRefusal{CUDA_ERROR_OUT_OF_MEMORY};
    *address = state.allocate(bytes, found->device, false);
  });
}

CUresult FakeEntries::cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return FakeState::enter(__func__, Kind::kRelease, [&](FakeState& state) {
    const auto found = state.memory.find(address);
    const auto queue = state.find(state.streams, stream, "stream");
    if (found == state.memory.end() || found->second.foreign || found->second.freed) {
      state.problem("device memory is freed that is not allocated");
      return CUDA_ERROR_INVALID_VALUE;
    }
    state.release(found->second);
    if (state.current() == nullptr || state.current()->lost != CUDA_SUCCESS) {
      state.memory.erase(found);
      return CUDA_SUCCESS;
    }
    return state.put(queue, {[&state, address] { state.memory.erase(address); }, nullptr, nullptr, 0});
  });
}

CUresult FakeEntries::cuMemHostAlloc(void** address, std::size_t bytes, unsigned) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    state.note(bytes);
    auto* const storage = new (std::align_val_t{4096}) std::byte[bytes];
    std::memset(storage, 0xff, bytes);
    state.pinned.emplace(storage, bytes);
    *address = storage;
    return CUDA_SUCCESS;
  });
}

namespace {

// Reports a problem if it is not pinned, or if pending copies use it; a lost device copies nothing.
void unpin(FakeState& state, const std::byte* storage) {
  const auto found = state.pinned.find(storage);
  if (found == state.pinned.end()) {
    state.problem("pinned memory is freed that is not allocated");
    throw FakeRefusal{CUDA_ERROR_INVALID_VALUE};
  }
  for (const auto& [handle, stream] : state.streams) {
    std::erase_if(stream->queue, [&](const FakeWork& work) {
      const auto* const used = static_cast<const std::byte*>(work.host);
      const bool inside = used >= storage && used < storage + found->second;
      if (inside && stream->context->lost == CUDA_SUCCESS) {
        state.problem("pinned memory is freed before a copy is done");
      }
      return inside;
    });
  }
  state.pinned.erase(found);
}

}  // namespace

CUresult FakeEntries::cuMemFreeHost(void* address) {
  return FakeState::enter(__func__, Kind::kRelease, [&](FakeState& state) {
    auto* const storage = static_cast<std::byte*>(address);
    unpin(state, storage);
    ::operator delete[](storage, std::align_val_t{4096});
  });
}

CUresult FakeEntries::cuMemHostRegister(void* address, std::size_t bytes, unsigned) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    state.note(bytes);
    state.pinned.emplace(static_cast<const std::byte*>(address), bytes);
  });
}

CUresult FakeEntries::cuMemHostUnregister(void* address) {
  return FakeState::enter(__func__, Kind::kRelease,
                          [&](FakeState& state) { unpin(state, static_cast<const std::byte*>(address)); });
}

CUresult FakeEntries::cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  return FakeState::enter(__func__, Kind::kFree, [&](FakeState& state) {
    const auto put = [&](auto result) { *static_cast<decltype(result)*>(value) = result; };
    const bool is_type = attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    if (state.isPinned(reinterpret_cast<const void*>(address), 1)) {
      const auto& [start, bytes] = *std::prev(state.pinned.upper_bound(reinterpret_cast<const std::byte*>(address)));
      if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) return put(reinterpret_cast<CUdeviceptr>(start));
      if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) return put(bytes);
      return put(is_type ? CU_MEMORYTYPE_HOST : 0);
    }
    const auto behind = state.memory.upper_bound(address);
    if (behind == state.memory.begin()) throw FakeRefusal{CUDA_ERROR_INVALID_VALUE};
    const auto& [first, allocation] = *std::prev(behind);
    if (address - first >= allocation.bytes) throw FakeRefusal{CUDA_ERROR_INVALID_VALUE};
    put(is_type ? CU_MEMORYTYPE_DEVICE : allocation.device);
  });
}

}  // namespace srjit
