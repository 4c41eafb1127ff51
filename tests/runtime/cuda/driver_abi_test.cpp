// Compares runtime/cuda/driver.h with CUDA's headers, if a toolkit is installed.
#include <cstddef>
#include <span>
#include <type_traits>

#include <gtest/gtest.h>

#include "runtime/cuda/driver.h"

#if __has_include(<cudaTypedefs.h>)
#include <cuda.h>
#include <cudaTypedefs.h>
#endif

#if defined(CUDA_VERSION) && CUDA_VERSION >= 12000

namespace {

template <class T>
concept Complete = requires { sizeof(T); };

template <class Ours, class Theirs>
constexpr bool sameParameter() {
  if (sizeof(Ours) != sizeof(Theirs) || std::is_pointer_v<Ours> != std::is_pointer_v<Theirs> ||
      std::is_floating_point_v<Ours> != std::is_floating_point_v<Theirs>) {
    return false;
  }
  using OurTarget = std::remove_pointer_t<Ours>;
  using TheirTarget = std::remove_pointer_t<Theirs>;
  if constexpr (std::is_pointer_v<Ours> && Complete<OurTarget> && Complete<TheirTarget>) {
    return sizeof(OurTarget) == sizeof(TheirTarget) && std::is_const_v<OurTarget> == std::is_const_v<TheirTarget>;
  }
  return std::is_void_v<OurTarget> == std::is_void_v<TheirTarget>;
}

template <class... Ours, class... Theirs>
constexpr bool sameCall(srjit::CUresult (*)(Ours...), ::CUresult (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) == sizeof...(Theirs)) {
    return (sameParameter<Ours, Theirs>() && ...);
  } else {
    return false;
  }
}

}  // namespace

namespace srjit {

struct Comparison {
  const char* what;
  bool same;
};

// The version of a row is part of the name of CUDA's type, so a wrong version does not compile.
#define SRJIT_DRIVER(name, version, parameters) \
  {#name, sameCall(static_cast<CUresult(*) parameters>(nullptr), ::PFN_##name##_v##version{})},
constexpr Comparison kEntries[] = {
#include "runtime/cuda/driver.def"
};
#undef SRJIT_DRIVER

#define SRJIT_SIZE(type, of_cuda) {#type, sizeof(type) == sizeof(::of_cuda)}
#define SRJIT_FIELD(type, field) \
  {#type "::" #field, offsetof(type, field) == offsetof(::type, field) && sizeof(type::field) == sizeof(::type::field)}
constexpr Comparison kStructs[] = {
    SRJIT_SIZE(CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v2),
    SRJIT_FIELD(CUDA_KERNEL_NODE_PARAMS, func),
    SRJIT_FIELD(CUDA_KERNEL_NODE_PARAMS, gridDimX),
    SRJIT_FIELD(CUDA_KERNEL_NODE_PARAMS, blockDimX),
    SRJIT_FIELD(CUDA_KERNEL_NODE_PARAMS, sharedMemBytes),
    SRJIT_FIELD(CUDA_KERNEL_NODE_PARAMS, kernelParams),
    SRJIT_FIELD(CUDA_KERNEL_NODE_PARAMS, extra),
    SRJIT_FIELD(CUDA_KERNEL_NODE_PARAMS, kern),
    SRJIT_FIELD(CUDA_KERNEL_NODE_PARAMS, ctx),
    SRJIT_SIZE(CUDA_MEMCPY2D, CUDA_MEMCPY2D_v2),
    SRJIT_FIELD(CUDA_MEMCPY2D, srcMemoryType),
    SRJIT_FIELD(CUDA_MEMCPY2D, srcHost),
    SRJIT_FIELD(CUDA_MEMCPY2D, srcDevice),
    SRJIT_FIELD(CUDA_MEMCPY2D, srcPitch),
    SRJIT_FIELD(CUDA_MEMCPY2D, dstMemoryType),
    SRJIT_FIELD(CUDA_MEMCPY2D, dstHost),
    SRJIT_FIELD(CUDA_MEMCPY2D, dstDevice),
    SRJIT_FIELD(CUDA_MEMCPY2D, dstPitch),
    SRJIT_FIELD(CUDA_MEMCPY2D, WidthInBytes),
    SRJIT_FIELD(CUDA_MEMCPY2D, Height),
    SRJIT_SIZE(CUmemPoolProps, CUmemPoolProps_v1),
    SRJIT_FIELD(CUmemPoolProps, allocType),
    SRJIT_FIELD(CUmemPoolProps, handleTypes),
    SRJIT_FIELD(CUmemPoolProps, location),
    SRJIT_FIELD(CUmemPoolProps, maxSize),
};
#undef SRJIT_FIELD
#undef SRJIT_SIZE

#define SRJIT_CONSTANT(constant) {#constant, static_cast<long long>(constant) == static_cast<long long>(::constant)}
constexpr Comparison kConstants[] = {
    SRJIT_CONSTANT(CUDA_ERROR_INVALID_VALUE),
    SRJIT_CONSTANT(CUDA_ERROR_OUT_OF_MEMORY),
    SRJIT_CONSTANT(CUDA_ERROR_DEINITIALIZED),
    SRJIT_CONSTANT(CUDA_ERROR_NO_DEVICE),
    SRJIT_CONSTANT(CUDA_ERROR_INVALID_DEVICE),
    SRJIT_CONSTANT(CUDA_ERROR_INVALID_IMAGE),
    SRJIT_CONSTANT(CUDA_ERROR_INVALID_CONTEXT),
    SRJIT_CONSTANT(CUDA_ERROR_NO_BINARY_FOR_GPU),
    SRJIT_CONSTANT(CUDA_ERROR_INVALID_PTX),
    SRJIT_CONSTANT(CUDA_ERROR_INVALID_HANDLE),
    SRJIT_CONSTANT(CUDA_ERROR_NOT_FOUND),
    SRJIT_CONSTANT(CUDA_ERROR_NOT_READY),
    SRJIT_CONSTANT(CUDA_ERROR_ILLEGAL_ADDRESS),
    SRJIT_CONSTANT(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
    SRJIT_CONSTANT(CUDA_ERROR_LAUNCH_TIMEOUT),
    SRJIT_CONSTANT(CUDA_ERROR_ILLEGAL_INSTRUCTION),
    SRJIT_CONSTANT(CUDA_ERROR_MISALIGNED_ADDRESS),
    SRJIT_CONSTANT(CUDA_ERROR_INVALID_ADDRESS_SPACE),
    SRJIT_CONSTANT(CUDA_ERROR_INVALID_PC),
    SRJIT_CONSTANT(CUDA_ERROR_LAUNCH_FAILED),
    SRJIT_CONSTANT(CUDA_ERROR_UNKNOWN),
    SRJIT_CONSTANT(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
    SRJIT_CONSTANT(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
    SRJIT_CONSTANT(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
    SRJIT_CONSTANT(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    SRJIT_CONSTANT(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
    SRJIT_CONSTANT(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    SRJIT_CONSTANT(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
    SRJIT_CONSTANT(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
    SRJIT_CONSTANT(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
    SRJIT_CONSTANT(CU_FUNC_ATTRIBUTE_NUM_REGS),
    SRJIT_CONSTANT(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
    SRJIT_CONSTANT(CU_POINTER_ATTRIBUTE_MEMORY_TYPE),
    SRJIT_CONSTANT(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL),
    SRJIT_CONSTANT(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR),
    SRJIT_CONSTANT(CU_POINTER_ATTRIBUTE_RANGE_SIZE),
    SRJIT_CONSTANT(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD),
    SRJIT_CONSTANT(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT),
    SRJIT_CONSTANT(CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
    SRJIT_CONSTANT(CU_JIT_ERROR_LOG_BUFFER),
    SRJIT_CONSTANT(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES),
    SRJIT_CONSTANT(CU_MEMORYTYPE_HOST),
    SRJIT_CONSTANT(CU_MEMORYTYPE_DEVICE),
    SRJIT_CONSTANT(CU_MEM_LOCATION_TYPE_DEVICE),
    SRJIT_CONSTANT(CU_MEM_ALLOCATION_TYPE_PINNED),
    SRJIT_CONSTANT(CU_STREAM_NON_BLOCKING),
    SRJIT_CONSTANT(CU_EVENT_DEFAULT),
    SRJIT_CONSTANT(CU_EVENT_BLOCKING_SYNC),
    SRJIT_CONSTANT(CU_EVENT_DISABLE_TIMING),
    SRJIT_CONSTANT(CU_GET_PROC_ADDRESS_LEGACY_STREAM),
    SRJIT_CONSTANT(CU_GET_PROC_ADDRESS_SUCCESS),
};
#undef SRJIT_CONSTANT

TEST(DriverAbi, DeclarationsEqualCudas) {
  for (const auto table : {std::span<const Comparison>(kEntries), std::span<const Comparison>(kStructs),
                           std::span<const Comparison>(kConstants)}) {
    for (const Comparison& comparison : table) EXPECT_TRUE(comparison.same) << comparison.what;
  }
}

}  // namespace srjit

#else

TEST(DriverAbi, DeclarationsEqualCudas) { GTEST_SKIP() << "no headers of CUDA 12 or later were found"; }

#endif
