// MIT's compiler: CUDA C++ for the population, 100 expressions per module, compiled by NVRTC one after another.
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include <fmt/format.h>

#include "compiler/kernels/assembler.h"
#include "compiler/loader/shared_library.h"
#include "tools/bench/designs/baseline.h"
#include "tools/bench/designs/code.h"
#include "tools/bench/designs/device.h"

namespace srjit {
namespace {

static_assert(kBaselineThreads == 128, "the kernel adds the sums of four warps");

constexpr const char* kHead = R"(typedef unsigned long long Size;

__device__ __forceinline__ float power(float x, float y) {
  const float magnitude = exp2f(y * log2f(fabsf(x)));
  const float small = fminf(fabsf(y), 8388608.0f);
  const float rounded = __fadd_rn(small, 8388608.0f);
  const float with_sign = __uint_as_float(__float_as_uint(magnitude) ^ (__float_as_uint(rounded) << 31));
  const float of_negative = __fsub_rn(rounded, 8388608.0f) == small ? with_sign : __uint_as_float(0x7fc00000u);
  return y == 0.0f ? 1.0f : x < 0.0f ? of_negative : magnitude;
}

)";

constexpr const char* kKernel = R"(extern "C" __global__ void __launch_bounds__(128) population(
    const float* __restrict__ columns, unsigned rows, const float* __restrict__ parameters,
    const float* __restrict__ target, void* out, unsigned first) {{
  __shared__ float warp_sums[4];
  const unsigned place = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned row = min(place, rows - 1);
  float value = 0.0f;
  switch (first + blockIdx.y) {{
{}  }}
  if (target == nullptr) {{
    if (place < rows) static_cast<float*>(out)[static_cast<Size>(blockIdx.y) * rows + row] = value;
    return;
  }}
  const float difference = value - target[row];
  float sum = place < rows ? difference * difference : 0.0f;
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(0xffffffffu, sum, distance);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {{
    const float total = (warp_sums[0] + warp_sums[1]) + (warp_sums[2] + warp_sums[3]);
    atomicAdd(static_cast<double*>(out) + blockIdx.y, static_cast<double>(total));
  }}
}}
)";

// A function of straight-line code; its first parameter has index `first_parameter`.
std::string functionOf(const Expression& expression, std::size_t number, std::size_t first_parameter) {
  std::string code = fmt::format(
      "__device__ __forceinline__ float expression{}(const float* __restrict__ row, Size rows, const float* "
      "__restrict__ p) {{\n",
      number);
  std::vector<std::size_t> stack;
  for (std::size_t v = 0; v < expression.size(); ++v) {
    const Token& token = expression.tokens()[v];
    std::string value;
    switch (token.kind) {
      case Token::Kind::kConstant:
        value =
            fmt::format("__uint_as_float(0x{:08x}u)", std::bit_cast<std::uint32_t>(static_cast<float>(token.value)));
        break;
      case Token::Kind::kVariable:
        value = fmt::format("row[{} * rows]", token.index);
        break;
      case Token::Kind::kParameter:
        value = fmt::format("p[{}]", first_parameter + token.index);
        break;
      case Token::Kind::kOp: {
        const std::size_t arity = static_cast<std::size_t>(token.arity());
        const std::string y = arity == 2 ? fmt::format("v{}", stack.back()) : "0.0f";
        const std::string x = fmt::format("v{}", stack[stack.size() - arity]);
        value = fillBaselineOp(allBaselineOps()[baselineOpNumber(token.op)].cuda, x, y, "");
        stack.resize(stack.size() - arity);
        break;
      }
    }
    code += fmt::format("  const float v{} = {};\n", v, value);
    stack.push_back(v);
  }
  return code + fmt::format("  return v{};\n}}\n\n", stack.back());
}

class NvrtcBaseline final : public DeviceBaseline {
 public:
  NvrtcBaseline(std::shared_ptr<const Cuda> device, const BenchData& data) : DeviceBaseline(std::move(device), data) {
    if (!hasNvrtc()) must(compileCuda("", cuda().limits().arch, false));
  }

 private:
  void build(std::span<const Expression> expressions) override {
    offsets_ = parameterOffsets(expressions);
    kernels_.clear();
    clearModules();
    for (std::size_t first = 0; first < expressions.size(); first += kNvrtcModuleExpressions) {
      const std::size_t count = std::min(kNvrtcModuleExpressions, expressions.size() - first);
      kernels_.push_back(load(must(compileCuda(cudaSource(expressions.subspan(first, count)), cuda().limits().arch,
                                               cuda().limits().needs_ptx)),
                              kPopulationKernel));
    }
  }

  void launch(std::size_t first, std::size_t count, CUdeviceptr target, CUdeviceptr out) override {
    CUdeviceptr all_columns = columns(), module_parameters = 0, result = 0;
    std::uint32_t row_count = rows(), first_of_module = 0;
    const auto arguments = addressesOf(all_columns, row_count, module_parameters, target, result, first_of_module);
    for (std::size_t e = first; e < first + count;) {
      const std::size_t module = e / kNvrtcModuleExpressions;
      const std::size_t end = std::min(first + count, (module + 1) * kNvrtcModuleExpressions);
      first_of_module = static_cast<std::uint32_t>(e % kNvrtcModuleExpressions);
      module_parameters = parameters() + offsets_[module * kNvrtcModuleExpressions] * sizeof(float);
      result = out + (e - first) * resultBytes(target);
      run(kernels_[module], rowBlocks(), end - e, arguments);
      e = end;
    }
  }

  std::vector<std::uint32_t> offsets_;
  std::vector<Kernel> kernels_;
};

// The entries that are used, which return 0 for success. Source: NVRTC documentation, CUDA 13.0; all have had the same
// signature since CUDA 11.1.
#define SRJIT_FOR_NVRTC(ENTRY)                                                                       \
  ENTRY(nvrtcCreateProgram, (void** program, const char* source, const char* name, int header_count, \
                             const char* const* headers, const char* const* include_names))          \
  ENTRY(nvrtcDestroyProgram, (void** program))                                                       \
  ENTRY(nvrtcCompileProgram, (void* program, int option_count, const char* const* options))          \
  ENTRY(nvrtcGetProgramLogSize, (void* program, std::size_t* bytes))                                 \
  ENTRY(nvrtcGetProgramLog, (void* program, char* log))                                              \
  ENTRY(nvrtcGetCUBINSize, (void* program, std::size_t* bytes))                                      \
  ENTRY(nvrtcGetCUBIN, (void* program, char* code))                                                  \
  ENTRY(nvrtcGetPTXSize, (void* program, std::size_t* bytes))                                        \
  ENTRY(nvrtcGetPTX, (void* program, char* code))

struct Nvrtc {
#define SRJIT_NVRTC(name, parameters) int(*name) parameters = nullptr;
  SRJIT_FOR_NVRTC(SRJIT_NVRTC)
#undef SRJIT_NVRTC
};

Result<Nvrtc> bindAll(const SharedLibrary& library) {
  Nvrtc entries;
#define SRJIT_NVRTC(name, parameters) \
  if (const Status status = library.bind(entries.name, #name); !status) return status.error();
  SRJIT_FOR_NVRTC(SRJIT_NVRTC)
#undef SRJIT_NVRTC
  return entries;
}

Result<Nvrtc> loadNvrtc() {
  auto library = SharedLibrary::openFirst(
      {findToolkit().nvrtc, std::string("libnvrtc.so.13"), std::string("libnvrtc.so.12")}, bindAll);
  if (library) return library;
  return Error{
      Errc::kMachine,
      fmt::format("NVRTC cannot be used: {} (install the CUDA toolkit or set CUDA_HOME)", library.error().message),
      {}};
}

const Result<Nvrtc>& nvrtc() {
  static const Result<Nvrtc> library = loadNvrtc();
  return library;
}

/// RAII owner of an NVRTC program.
class CudaProgram {
 public:
  CudaProgram(const Nvrtc& library, const std::string& source) : library_(library) {
    code_ = library.nvrtcCreateProgram(&program_, source.c_str(), "population.cu", 0, nullptr, nullptr);
  }
  ~CudaProgram() {
    if (program_ != nullptr) library_.nvrtcDestroyProgram(&program_);
  }
  CudaProgram(const CudaProgram&) = delete;
  CudaProgram& operator=(const CudaProgram&) = delete;

  Result<KernelImage> compile(const std::string& arch, bool to_ptx) {
    const std::string architecture =
        fmt::format("--gpu-architecture={}_{}", to_ptx ? "compute" : "sm", arch.substr(arch.find('_') + 1));
    const std::array options = {architecture.c_str(), "--std=c++17", "--use_fast_math"};
    if (code_ == 0) code_ = library_.nvrtcCompileProgram(program_, static_cast<int>(options.size()), options.data());
    KernelImage image{.code = {}, .form = to_ptx ? ImageForm::kPtx : ImageForm::kCubin, .kernels = {}};
    const auto sizeOf = to_ptx ? library_.nvrtcGetPTXSize : library_.nvrtcGetCUBINSize;
    const auto codeOf = to_ptx ? library_.nvrtcGetPTX : library_.nvrtcGetCUBIN;
    std::size_t bytes = 0;
    if (code_ == 0) code_ = sizeOf(program_, &bytes);
    image.code.resize(bytes);
    if (code_ == 0) code_ = codeOf(program_, reinterpret_cast<char*>(image.code.data()));
    if (code_ != 0) return Error{Errc::kCompile, fmt::format("NVRTC failed (error {}): {}", code_, log()), {}};
    return image;
  }

 private:
  std::string log() const {
    std::size_t bytes = 0;
    if (program_ == nullptr || library_.nvrtcGetProgramLogSize(program_, &bytes) != 0 || bytes == 0) return "no log";
    std::string text(bytes, '\0');
    if (library_.nvrtcGetProgramLog(program_, text.data()) != 0) return "no log";
    return text.substr(0, text.find('\0'));
  }

  const Nvrtc& library_;
  void* program_ = nullptr;
  int code_;
};

}  // namespace

std::string cudaSource(std::span<const Expression> expressions) {
  std::string source = kHead, cases;
  std::size_t first_parameter = 0;
  for (std::size_t e = 0; e < expressions.size(); ++e) {
    source += functionOf(expressions[e], e, first_parameter);
    cases +=
        fmt::format("    case {0}:\n      value = expression{0}(columns + row, rows, parameters);\n      break;\n", e);
    first_parameter += expressions[e].parameterCount();
  }
  return source + fmt::format(kKernel, cases);
}

std::unique_ptr<Baseline> makeNvrtcBaseline(std::shared_ptr<const Cuda> cuda, const BenchData& data) {
  return std::make_unique<NvrtcBaseline>(std::move(cuda), data);
}

bool hasNvrtc() { return nvrtc().ok(); }

Result<KernelImage> compileCuda(const std::string& source, const std::string& arch, bool to_ptx) {
  const Result<Nvrtc>& library = nvrtc();
  if (!library) return library.error();
  return CudaProgram(*library, source).compile(arch, to_ptx);
}

}  // namespace srjit
