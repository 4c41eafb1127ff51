// The stored form of an image: its facts as text, and a checksum over everything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/kernels/image_maker.h"
#include "compiler/kernels/key.h"

namespace srjit {

/// Compact JSON: an array of [name, registers, stack, spill stores, spill loads].
std::string textOfFacts(const std::vector<KernelFacts>& kernels);
/// nullopt if the text is malformed.
std::optional<std::vector<KernelFacts>> factsIn(const std::string& text);

/// The checksum of all stored data of an image; `facts` is textOfFacts() of its kernels.
Digest checksumOf(const KernelKey& key, const KernelImage& image, std::string_view facts);

/// An image as read from the disk.
struct ImageRecord {
  std::int64_t id = 0;
  KernelKey key;
  KernelImage image;
  std::string facts;
  Digest checksum{};
  std::int64_t used = 0;  ///< milliseconds since 1970, UTC

  /// Verifies the checksum; if it matches, sets the image's kernels.
  bool isSound();
};

}  // namespace srjit
