// NVIDIA's run-time compiler of CUDA C++.
#include <vector>

#include <fmt/format.h>

#include "compiler/loader/shared_library.h"
#include "compiler/nvptx/toolkit.h"
#include "tools/bench/designs/code.h"

namespace srjit {
namespace {

struct Nvrtc {
#define SRJIT_NVRTC(name, parameters) int(*name) parameters = nullptr;
#include "tools/bench/designs/nvrtc.def"
#undef SRJIT_NVRTC
};

Result<Nvrtc> bindAll(const SharedLibrary& library) {
  Nvrtc entries;
#define SRJIT_NVRTC(name, parameters) \
  if (const Status status = library.bind(entries.name, #name); !status) return status.error();
#include "tools/bench/designs/nvrtc.def"
#undef SRJIT_NVRTC
  return entries;
}

Result<Nvrtc> load() {
  auto library = SharedLibrary::openFirst(
      {findToolkit().nvrtc, std::string("libnvrtc.so.13"), std::string("libnvrtc.so.12")}, bindAll);
  if (library) return library;
  return Error{
      Errc::kMachine,
      fmt::format("NVRTC cannot be used: {} (install the CUDA toolkit or set CUDA_HOME)", library.error().message),
      {}};
}

const Result<Nvrtc>& nvrtc() {
  static const Result<Nvrtc> library = load();
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

  Result<KernelImage> compile(const std::string& arch, bool to_ptx, Math math) {
    const std::string architecture =
        fmt::format("--gpu-architecture={}_{}", to_ptx ? "compute" : "sm", arch.substr(arch.find('_') + 1));
    std::vector<const char*> options = {architecture.c_str(), "--std=c++17"};
    if (math == Math::kFast) options.push_back("--use_fast_math");
    if (code_ == 0) code_ = library_.nvrtcCompileProgram(program_, static_cast<int>(options.size()), options.data());
    KernelImage image{.code = {}, .is_ptx = to_ptx, .kernels = {}};
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

bool hasNvrtc() { return nvrtc().ok(); }

Result<KernelImage> compileCuda(const std::string& source, const std::string& arch, bool to_ptx, Math math) {
  const Result<Nvrtc>& library = nvrtc();
  if (!library) return library.error();
  return CudaProgram(*library, source).compile(arch, to_ptx, math);
}

}  // namespace srjit
