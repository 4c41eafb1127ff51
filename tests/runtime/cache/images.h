// Keys, images and child processes for the tests of the kernel cache.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/kernels/image_maker.h"
#include "compiler/kernels/key.h"
#include "tests/generators/scratch.h"

namespace srjit {

inline KernelKey keyNumber(std::uint64_t number) {
  return {DigestBuilder().add(number).finish(), "image " + std::to_string(number)};
}

/// A distinct image for every number, with `bytes` of code.
inline KernelImage imageNumber(std::uint64_t number, std::size_t bytes = 1000) {
  KernelImage image;
  for (std::size_t i = 0; i < bytes; ++i) image.code.push_back(static_cast<std::byte>(i * i + number * 31));
  image.form = static_cast<ImageForm>(number % 3);
  image.kernels = {{"srjit_rows_0", 32, 0, 0, 0}, {"srjit_rows_1", static_cast<unsigned>(number), 8, 4, 12}};
  image.seconds = 0.25;
  return image;
}

inline bool sameImage(const KernelImage& a, const KernelImage& b) {
  const auto same = [](const KernelFacts& x, const KernelFacts& y) {
    return x.name == y.name && x.registers == y.registers && x.stack_bytes == y.stack_bytes &&
           x.spill_store_bytes == y.spill_store_bytes && x.spill_load_bytes == y.spill_load_bytes;
  };
  return a.code == b.code && a.form == b.form && a.seconds == b.seconds &&
         std::ranges::equal(a.kernels, b.kernels, same);
}

/// The name of the file of an image, or of a fact.
inline std::string imageFile(std::uint64_t number) {
  return fmt::format("{:02x}.kernel", fmt::join(keyNumber(number).digest, ""));
}
inline std::string factFile(std::string_view name) {
  return fmt::format("{:02x}.fact", fmt::join(DigestBuilder().add(name).finish(), ""));
}

/// Paths of the files of a directory whose names end in `end`, in order.
inline std::vector<std::string> filesEndingIn(const std::string& directory, std::string_view end) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().string().ends_with(end)) paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  return paths;
}

/// Changes one byte; `at` counts from the end if it is negative.
inline void flipByte(const std::string& path, std::ptrdiff_t at = -1) {
  std::string content = contentOf(path);
  content[at < 0 ? content.size() - static_cast<std::size_t>(-at) : static_cast<std::size_t>(at)] ^= 0x10;
  std::ofstream(path, std::ios::binary) << content;
}

/// Starts a child process that runs `body` and exits with its result.
template <class Body>
pid_t startChild(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

/// The exit status of a child, or 128 plus the signal that ended it.
inline int ended(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

constexpr uid_t kNobody = 65534;

/// Drops root's rights over files; false if that fails.
inline bool becomeNobody() { return geteuid() != 0 || (setgid(kNobody) == 0 && setuid(kNobody) == 0); }

}  // namespace srjit
