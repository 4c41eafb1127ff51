#include "compiler/kernels/identity.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <llvm/ADT/StringExtras.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/Support/BLAKE3.h>

#include "compiler/kernels/assembler.h"
#include "compiler/nvptx/toolkit.h"

namespace srjit {

/// Hash of the sources; the build makes it (compiler/CMakeLists.txt).
extern const char* const kSourceHash;

namespace {

std::string hashOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (path.empty() || !file) return "none";
  const std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return llvm::toHex(llvm::BLAKE3::hash<16>(llvm::arrayRefFromStringRef(content)), true);
}

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
    return fmt::format("sr-jit {} {}; LLVM {}; libdevice {}; assembler {} ({})", SRJIT_VERSION, kSourceHash,
                       LLVM_VERSION_STRING, hashOfFile(toolkit.libdevice), assemblerName(),
                       stampOfFile(links ? toolkit.nvjitlink : toolkit.ptxas));
  }();
  return identity;
}

}  // namespace srjit
