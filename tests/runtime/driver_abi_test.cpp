// Compares runtime/driver.h with CUDA's own headers, where a toolkit is installed; each failure is a compile error.
#include <type_traits>

#include <gtest/gtest.h>

#include "runtime/driver.h"

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

// A row's version is part of the name of CUDA's type, so a wrong one does not compile either.
#define SRJIT_DRIVER(name, version, parameters)                                                      \
  static_assert(sameCall(static_cast<CUresult(*) parameters>(nullptr), ::PFN_##name##_v##version{}), \
                #name " differs from cudaTypedefs.h");
#include "runtime/driver.def"
#undef SRJIT_DRIVER

#define SRJIT_SAME_FIELD(type, field) \
  static_assert(offsetof(type, field) == offsetof(::type, field) && sizeof(type::field) == sizeof(::type::field))
static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS) == sizeof(::CUDA_KERNEL_NODE_PARAMS_v2));
SRJIT_SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, func);
SRJIT_SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, gridDimX);
SRJIT_SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, blockDimX);
SRJIT_SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, sharedMemBytes);
SRJIT_SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, kernelParams);
SRJIT_SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, extra);
SRJIT_SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, kern);
SRJIT_SAME_FIELD(CUDA_KERNEL_NODE_PARAMS, ctx);
static_assert(sizeof(CUDA_MEMCPY2D) == sizeof(::CUDA_MEMCPY2D_v2));
SRJIT_SAME_FIELD(CUDA_MEMCPY2D, srcMemoryType);
SRJIT_SAME_FIELD(CUDA_MEMCPY2D, srcHost);
SRJIT_SAME_FIELD(CUDA_MEMCPY2D, srcDevice);
SRJIT_SAME_FIELD(CUDA_MEMCPY2D, srcPitch);
SRJIT_SAME_FIELD(CUDA_MEMCPY2D, dstMemoryType);
SRJIT_SAME_FIELD(CUDA_MEMCPY2D, dstHost);
SRJIT_SAME_FIELD(CUDA_MEMCPY2D, dstDevice);
SRJIT_SAME_FIELD(CUDA_MEMCPY2D, dstPitch);
SRJIT_SAME_FIELD(CUDA_MEMCPY2D, WidthInBytes);
SRJIT_SAME_FIELD(CUDA_MEMCPY2D, Height);
static_assert(sizeof(CUmemPoolProps) == sizeof(::CUmemPoolProps_v1));
SRJIT_SAME_FIELD(CUmemPoolProps, allocType);
SRJIT_SAME_FIELD(CUmemPoolProps, handleTypes);
SRJIT_SAME_FIELD(CUmemPoolProps, location);
SRJIT_SAME_FIELD(CUmemPoolProps, maxSize);
static_assert(sizeof(CUuuid) == sizeof(::CUuuid));
#undef SRJIT_SAME_FIELD

#define SRJIT_SAME(constant) static_assert(static_cast<long long>(constant) == static_cast<long long>(::constant))
SRJIT_SAME(CUDA_ERROR_INVALID_VALUE);
SRJIT_SAME(CUDA_ERROR_OUT_OF_MEMORY);
SRJIT_SAME(CUDA_ERROR_DEINITIALIZED);
SRJIT_SAME(CUDA_ERROR_NO_DEVICE);
SRJIT_SAME(CUDA_ERROR_INVALID_DEVICE);
SRJIT_SAME(CUDA_ERROR_INVALID_IMAGE);
SRJIT_SAME(CUDA_ERROR_INVALID_CONTEXT);
SRJIT_SAME(CUDA_ERROR_NO_BINARY_FOR_GPU);
SRJIT_SAME(CUDA_ERROR_INVALID_PTX);
SRJIT_SAME(CUDA_ERROR_INVALID_HANDLE);
SRJIT_SAME(CUDA_ERROR_NOT_FOUND);
SRJIT_SAME(CUDA_ERROR_NOT_READY);
SRJIT_SAME(CUDA_ERROR_ILLEGAL_ADDRESS);
SRJIT_SAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SRJIT_SAME(CUDA_ERROR_LAUNCH_TIMEOUT);
SRJIT_SAME(CUDA_ERROR_ILLEGAL_INSTRUCTION);
SRJIT_SAME(CUDA_ERROR_MISALIGNED_ADDRESS);
SRJIT_SAME(CUDA_ERROR_INVALID_ADDRESS_SPACE);
SRJIT_SAME(CUDA_ERROR_INVALID_PC);
SRJIT_SAME(CUDA_ERROR_LAUNCH_FAILED);
SRJIT_SAME(CUDA_ERROR_UNKNOWN);
SRJIT_SAME(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
SRJIT_SAME(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SRJIT_SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SRJIT_SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SRJIT_SAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
SRJIT_SAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SRJIT_SAME(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
SRJIT_SAME(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SRJIT_SAME(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SRJIT_SAME(CU_FUNC_ATTRIBUTE_NUM_REGS);
SRJIT_SAME(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SRJIT_SAME(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SRJIT_SAME(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SRJIT_SAME(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SRJIT_SAME(CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SRJIT_SAME(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
SRJIT_SAME(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
SRJIT_SAME(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
SRJIT_SAME(CU_JIT_ERROR_LOG_BUFFER);
SRJIT_SAME(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SRJIT_SAME(CU_MEMORYTYPE_HOST);
SRJIT_SAME(CU_MEMORYTYPE_DEVICE);
SRJIT_SAME(CU_MEM_LOCATION_TYPE_DEVICE);
SRJIT_SAME(CU_MEM_ALLOCATION_TYPE_PINNED);
SRJIT_SAME(CU_STREAM_NON_BLOCKING);
SRJIT_SAME(CU_EVENT_DEFAULT);
SRJIT_SAME(CU_EVENT_BLOCKING_SYNC);
SRJIT_SAME(CU_EVENT_DISABLE_TIMING);
SRJIT_SAME(CU_GET_PROC_ADDRESS_LEGACY_STREAM);
SRJIT_SAME(CU_GET_PROC_ADDRESS_SUCCESS);
#undef SRJIT_SAME

TEST(DriverAbi, DeclarationsAreThoseOfCuda) { SUCCEED() << "compared when this file was compiled"; }

}  // namespace srjit

#else

TEST(DriverAbi, DeclarationsAreThoseOfCuda) { GTEST_SKIP() << "no headers of CUDA 12 or later were found"; }

#endif
