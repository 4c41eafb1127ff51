// Memory that starts on a cache line.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include "ir/numbers/rounding.h"

namespace srjit {

inline constexpr std::size_t kCacheLine = 64;

/// Uninitialised bytes; movable. Whole cache lines, so that writers of two buffers never share one.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;

  /// Throws OutOfMemory.
  explicit AlignedBuffer(std::size_t bytes);

  std::byte* data() noexcept { return data_.get(); }
  const std::byte* data() const noexcept { return data_.get(); }
  std::size_t size() const noexcept { return size_; }
  template <class T>
  T* as() noexcept {
    return reinterpret_cast<T*>(data_.get());
  }
  template <class T>
  const T* as() const noexcept {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* data) const noexcept { ::operator delete(data, std::align_val_t{kCacheLine}); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

/// An allocation that failed, with its size.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::size_t bytes) noexcept : bytes_(bytes) {}
  std::size_t bytes() const noexcept { return bytes_; }
  const char* what() const noexcept override { return "out of memory"; }

 private:
  std::size_t bytes_;
};

inline AlignedBuffer::AlignedBuffer(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* const data = ::operator new(bytes, std::align_val_t{kCacheLine}, std::nothrow);
  if (data == nullptr) throw OutOfMemory(bytes);
  data_.reset(static_cast<std::byte*>(data));
}

}  // namespace srjit
