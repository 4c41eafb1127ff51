// The CUDA driver, loaded at run time: declarations of our own under CUDA's names, which
// tests/runtime/cuda/driver_abi_test.cpp compares with cuda.h, and the entries of driver.def. Source: CUDA driver API
// reference, 13.0. Every other file uses CUDA through this table, so tests can use a table of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ir/error.h"

namespace srjit {

// Handles and scalar types. Enumerations of the API are passed as int.
using CUresult = int;
using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUdevice_attribute = int;
using CUmemPool_attribute = int;
using CUpointer_attribute = int;
using CUfunction_attribute = int;
using CUjit_option = int;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUkernel = struct CUkern_st*;
using CUarray = struct CUarray_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;

struct CUmemPoolProps {
  int allocType;
  int handleTypes;
  struct {
    int type;
    int id;
  } location;
  void* win32SecurityAttributes;
  std::size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};

struct CUDA_MEMCPY2D {
  std::size_t srcXInBytes, srcY;
  int srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  std::size_t srcPitch;
  std::size_t dstXInBytes, dstY;
  int dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  std::size_t dstPitch;
  std::size_t WidthInBytes, Height;
};

struct CUDA_KERNEL_NODE_PARAMS {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  void** kernelParams;
  void** extra;
  CUkernel kern;
  CUcontext ctx;
};

// Result codes that something is done about; the others only have a name and a text.
inline constexpr CUresult CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2,
                          CUDA_ERROR_DEINITIALIZED = 4, CUDA_ERROR_NO_DEVICE = 100, CUDA_ERROR_INVALID_DEVICE = 101,
                          CUDA_ERROR_INVALID_IMAGE = 200, CUDA_ERROR_INVALID_CONTEXT = 201,
                          CUDA_ERROR_NO_BINARY_FOR_GPU = 209, CUDA_ERROR_INVALID_PTX = 218,
                          CUDA_ERROR_INVALID_HANDLE = 400, CUDA_ERROR_NOT_FOUND = 500, CUDA_ERROR_NOT_READY = 600,
                          CUDA_ERROR_ILLEGAL_ADDRESS = 700, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
                          CUDA_ERROR_LAUNCH_TIMEOUT = 702, CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
                          CUDA_ERROR_MISALIGNED_ADDRESS = 716, CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
                          CUDA_ERROR_INVALID_PC = 718, CUDA_ERROR_LAUNCH_FAILED = 719, CUDA_ERROR_UNKNOWN = 999;

inline constexpr CUdevice_attribute CU_DEVICE_ATTRIBUTE_MAX_PITCH = 11, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
                                    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
                                    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
                                    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
                                    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
                                    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115;
inline constexpr CUfunction_attribute CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
                                      CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
                                      CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8;
inline constexpr CUpointer_attribute CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
                                     CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11, CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12;
inline constexpr CUmemPool_attribute CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
                                     CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7;
inline constexpr CUjit_option CU_JIT_ERROR_LOG_BUFFER = 5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6;
inline constexpr int CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2, CU_MEM_LOCATION_TYPE_DEVICE = 1,
                     CU_MEM_ALLOCATION_TYPE_PINNED = 1;
inline constexpr unsigned CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DEFAULT = 0, CU_EVENT_BLOCKING_SYNC = 1,
                          CU_EVENT_DISABLE_TIMING = 2, CU_MEMHOSTALLOC_PORTABLE = 1;
inline constexpr std::uint64_t CU_GET_PROC_ADDRESS_LEGACY_STREAM = 1;
inline constexpr int CU_GET_PROC_ADDRESS_SUCCESS = 0;

/// One function pointer per row of driver.def. As thread-safe as CUDA says of each.
struct Driver {
#define SRJIT_DRIVER(name, version, parameters) CUresult(*name) parameters = nullptr;
#include "runtime/cuda/driver.def"
#undef SRJIT_DRIVER
};

/// The driver's library.
inline constexpr const char* kDriverLibrary = "libcuda.so.1";

/// The driver of this process: kDriverLibrary, initialised. Loaded at the first call, once; a failure stays, too.
/// Errors: kMachine if the library cannot be opened, lacks an entry, or cuInit fails. Thread-safe.
Result<std::shared_ptr<const Driver>> loadDriver();

/// The same for any library and without the memory: what loadDriver() does at its first call.
Result<std::shared_ptr<const Driver>> openDriver(const std::string& name);

/// Finds the entry `name` in the form that CUDA `version` introduced; null if there is none.
using FindEntry = std::function<void*(const char* name, int version)>;
/// Fills the table and initialises the driver. Errors as above.
Result<std::shared_ptr<const Driver>> bindDriver(const FindEntry& find);

/// "700 CUDA_ERROR_ILLEGAL_ADDRESS, an illegal memory access was encountered".
std::string describe(const Driver& driver, CUresult code);

/// "12.4" of 12040.
std::string cudaVersionText(int version);

}  // namespace srjit
