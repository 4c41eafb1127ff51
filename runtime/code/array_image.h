// Tables of the host as one copy on a device.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "ir/numbers/rounding.h"
#include "runtime/cuda/driver.h"

namespace srjit {

/// The bytes of several arrays, and spans that name them where their copy will be.
class ArrayImage {
 public:
  template <class T>
  void add(std::span<const T>& array) {
    constexpr std::size_t kAlignment = 16;
    const std::size_t first = ceilDivide(bytes_.size(), kAlignment) * kAlignment;
    bytes_.resize(first + array.size_bytes());
    std::memcpy(bytes_.data() + first, array.data(), array.size_bytes());
    array = {std::bit_cast<const T*>(first), array.size()};
  }
  template <class T>
  static void place(std::span<const T>& array, CUdeviceptr address) {
    array = {std::bit_cast<const T*>(std::bit_cast<std::uintptr_t>(array.data()) + address), array.size()};
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace srjit
