#include "compiler/interpreter/front_end/front_end_ptx.h"

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "compiler/interpreter/front_end/arguments.h"
#include "compiler/nvptx/module.h"

namespace srjit {

/// LLVM's bitcode of the sources that CMakeLists.txt of this layer lists; empty where there was no clang.
extern const std::span<const unsigned char> kFrontEndBitcode;

std::span<const std::byte> frontEndBitcode() noexcept { return std::as_bytes(kFrontEndBitcode); }

Result<std::string> frontEndPtx(const DeviceOptions& options) {
  if (frontEndBitcode().empty())
    return Error{Errc::kUnsupported, "this build has no kernels that encode populations", {}};
  const auto build = [&]() -> Result<DeviceModule> {
    Result<DeviceModule> made = DeviceModule::create(options);
    if (!made) return made;
    const auto* const bytes = reinterpret_cast<const char*>(kFrontEndBitcode.data());
    static constexpr std::array<std::string_view, 2> kKernels = {kEncodeKernel, kLinkKernel};
    if (Status read = made->readBitcode({bytes, kFrontEndBitcode.size()}, kKernels); !read)
      return std::move(read).error();
    return made;
  };
  return ptxOf(build);
}

}  // namespace srjit
