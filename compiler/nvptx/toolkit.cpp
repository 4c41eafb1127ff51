#include "compiler/nvptx/toolkit.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <sstream>
#include <vector>

namespace srjit {
namespace {

namespace fs = std::filesystem;

/// The entries of a list with colons between them; none where the variable is not set.
std::vector<fs::path> pathsIn(const char* variable) {
  std::vector<fs::path> paths;
  const char* const value = std::getenv(variable);
  std::istringstream entries(value != nullptr ? value : "");
  for (std::string entry; std::getline(entries, entry, ':');) {
    if (!entry.empty()) paths.emplace_back(entry);
  }
  return paths;
}

std::string firstExisting(const std::vector<fs::path>& roots, std::initializer_list<const char*> names) {
  for (const fs::path& root : roots) {
    for (const char* const name : names) {
      std::error_code ignored;
      if (fs::is_regular_file(root / name, ignored)) return (root / name).string();
    }
  }
  return {};
}

Toolkit search() {
  std::vector<fs::path> roots;
  for (const char* const variable : {"SRJIT_CUDA_HOME", "CUDA_HOME", "CUDA_PATH"}) {
    if (const char* const value = std::getenv(variable); value != nullptr && *value != '\0') roots.emplace_back(value);
  }
  for (const fs::path& packages : pathsIn("SRJIT_PYTHON_PACKAGES")) {
    for (const char* const package : {"cu13", "nvjitlink", "cuda_nvrtc"})
      roots.push_back(packages / "nvidia" / package);
  }
  for (const char* const usual :
       {"/usr/local/cuda", "/opt/cuda", "/usr/lib/nvidia-cuda-toolkit", "/usr/lib/cuda", "/usr"}) {
    roots.emplace_back(usual);
  }
  std::vector<fs::path> programs;
  for (const fs::path& root : roots) programs.push_back(root / "bin");
  std::ranges::copy(pathsIn("PATH"), std::back_inserter(programs));
  Toolkit toolkit;
  toolkit.nvjitlink =
      firstExisting(roots, {"lib64/libnvJitLink.so", "lib64/libnvJitLink.so.13", "lib64/libnvJitLink.so.12",
                            "lib/libnvJitLink.so.13", "lib/libnvJitLink.so.12",
                            "targets/x86_64-linux/lib/libnvJitLink.so", "lib/x86_64-linux-gnu/libnvJitLink.so",
                            "lib/x86_64-linux-gnu/libnvJitLink.so.13", "lib/x86_64-linux-gnu/libnvJitLink.so.12"});
  toolkit.nvrtc = firstExisting(
      roots, {"lib64/libnvrtc.so", "lib64/libnvrtc.so.13", "lib64/libnvrtc.so.12", "lib/libnvrtc.so.13",
              "lib/libnvrtc.so.12", "targets/x86_64-linux/lib/libnvrtc.so", "lib/x86_64-linux-gnu/libnvrtc.so",
              "lib/x86_64-linux-gnu/libnvrtc.so.13", "lib/x86_64-linux-gnu/libnvrtc.so.12"});
  toolkit.ptxas = firstExisting(programs, {"ptxas"});
  toolkit.nvdisasm = firstExisting(programs, {"nvdisasm"});
  return toolkit;
}

}  // namespace

const Toolkit& findToolkit() {
  static const Toolkit toolkit = search();
  return toolkit;
}

}  // namespace srjit
