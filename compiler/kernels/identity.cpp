#include "compiler/kernels/identity.h"

#include <chrono>
#include <filesystem>

#include <fmt/format.h>
#include <llvm/Config/llvm-config.h>

#include "compiler/kernels/assembler.h"
#include "compiler/nvptx/toolkit.h"

namespace srjit {

/// Hash of the sources; the build makes it (compiler/CMakeLists.txt).
extern const char* const kSourceHash;

namespace {

/// Tells builds of an assembler apart that have one name; reading all of it would take too long.
std::string stampOfFile(const std::string& path) {
  std::error_code failure;
  const auto size = std::filesystem::file_size(path, failure);
  if (failure) return "none";
  const auto time = std::filesystem::last_write_time(path, failure).time_since_epoch();
  return fmt::format("{} {}", size, failure ? 0 : std::chrono::duration_cast<std::chrono::seconds>(time).count());
}

}  // namespace

std::string compilerIdentity() {
  static const std::string identity = [] {
    const Toolkit& toolkit = findToolkit();
    const bool links = assemblerName().starts_with("nvJitLink");
    return fmt::format("sr-jit {} {}; LLVM {}; assembler {} ({})", SRJIT_VERSION, kSourceHash, LLVM_VERSION_STRING,
                       assemblerName(), stampOfFile(links ? toolkit.nvjitlink : toolkit.ptxas));
  }();
  return identity;
}

}  // namespace srjit
