// Several arrays in one block of a device's memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ir/numbers/rounding.h"
#include "runtime/cuda/handles.h"

namespace srjit {

/// Places of arrays behind one another.
class ArrayLayout {
 public:
  /// Room for `count` values; gives where it begins.
  template <class T>
  std::size_t add(std::size_t count) {
    constexpr std::size_t kAlignment = 256;
    return std::exchange(bytes_, bytes_ + roundUp(count * sizeof(T), kAlignment));
  }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

/// The address of an array that begins `offset` bytes behind that of the block.
template <class T>
T* at(std::byte* memory, std::size_t offset) {
  return reinterpret_cast<T*>(memory + offset);
}
template <class T>
T* at(const DeviceBuffer& memory, std::size_t offset) {
  return std::bit_cast<T*>(memory.address() + offset);
}

/// Copies the arrays of the host that `for_each` visits to the device, and has their spans name the copies. Waits.
/// Throws CudaFailure.
template <class ForEach>
DeviceBuffer copyArrays(const std::shared_ptr<const Stream>& stream, const ForEach& for_each) {
  std::vector<std::byte> bytes;
  std::vector<std::size_t> places;
  for_each([&](const auto& array) {
    constexpr std::size_t kAlignment = 16;
    places.push_back(roundUp(bytes.size(), kAlignment));
    bytes.resize(places.back() + array.size_bytes());
    std::memcpy(bytes.data() + places.back(), array.data(), array.size_bytes());
  });
  DeviceBuffer memory(stream, bytes.size());
  stream->complete([&] { stream->copyToDevice(memory.address(), bytes.data(), bytes.size()); });
  auto place = places.begin();
  for_each([&]<class T>(std::span<const T>& array) { array = {at<const T>(memory, *place++), array.size()}; });
  return memory;
}

}  // namespace srjit
