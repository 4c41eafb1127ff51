// Arguments of a caller, checked and read. Structs begin with their size, since the caller's header may be older or
// newer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "ir/error.h"
#include "ir/numeric.h"
#include "runtime/c_api/srjit.h"
#include "runtime/data_view.h"

namespace srjit::c_api {

[[noreturn]] inline void refuse(Errc code, std::string message) {
  throw ErrorException({code, std::move(message), {}});
}

/// What `pointer` points at. Throws kInvalid with the argument's name if it is null.
template <class T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) refuse(Errc::kInvalid, fmt::format("{} is NULL", name));
  return *pointer;
}

/// The size of a struct of srjit.h in its first version, which never changes: no caller has a smaller one. A struct
/// that has grown since has a row here (tests/runtime/c_api/abi_test.cpp has all sizes).
template <class Struct>
inline constexpr std::size_t kFirstSize = sizeof(Struct);
template <>
inline constexpr std::size_t kFirstSize<srjit_engine_options> = 56;
template <>
inline constexpr std::size_t kFirstSize<srjit_engine_info> = 40;
template <>
inline constexpr std::size_t kFirstSize<srjit_compile_options> = 48;
template <>
inline constexpr std::size_t kFirstSize<srjit_fit_options> = 48;
/// The largest size of a struct: a page, as Linux has it. A size that was never set is often larger.
inline constexpr std::size_t kLargestSize = 4096;

/// The size of the caller's struct. Throws kInvalid if it is not one that a version can have.
template <class Struct>
std::size_t sizeOf(const Struct& given, const char* name) {
  std::uint64_t size;
  std::memcpy(&size, &given, sizeof size);
  if (size < kFirstSize<Struct> || size > kLargestSize) {
    refuse(Errc::kInvalid, fmt::format("the size of {} is {}, expected {} or more", name, size, kFirstSize<Struct>));
  }
  return size;
}

/// A copy of the caller's struct; members that it lacks are 0, and all are if it is null. Throws kInvalid for a wrong
/// size, kUnsupported if it has members that are not 0 and unknown here.
template <class Struct>
Struct fromCaller(const Struct* given, const char* name) {
  Struct mine{};
  if (given != nullptr) {
    const std::size_t size = sizeOf(*given, name);
    const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
    if (size > sizeof mine && std::any_of(bytes + sizeof mine, bytes + size, [](unsigned char b) { return b != 0; })) {
      refuse(Errc::kUnsupported,
             fmt::format("{} has members that this version of the library does not know ({} bytes, known are {})", name,
                         size, sizeof mine));
    }
    std::memcpy(&mine, given, std::min(size, sizeof mine));
  }
  mine.size = sizeof mine;
  return mine;
}

/// Writes the members that the caller's struct has, but for its size.
template <class Struct>
void toCaller(const Struct& mine, Struct* given) {
  std::uint64_t size;
  std::memcpy(&size, given, sizeof size);
  const std::size_t end = std::min<std::size_t>(size, sizeof mine);
  if (end > sizeof size) {
    std::memcpy(reinterpret_cast<unsigned char*>(given) + sizeof size,
                reinterpret_cast<const unsigned char*>(&mine) + sizeof size, end - sizeof size);
  }
}

/// Fills a struct that the library writes: `fill` gets all members, 0.
template <class Struct, class Fill>
void describeTo(Struct* given, const char* name, const Fill& fill) {
  sizeOf(required(given, name), name);
  Struct mine{};
  fill(mine);
  toCaller(mine, given);
}

/// `items` of `count` numbers; may be null for a count of 0.
template <class T>
std::span<T> arrayOf(T* items, std::uint64_t count, const char* name) {
  if (count > 0) required(items, name);
  if (count > PTRDIFF_MAX / sizeof(T)) refuse(Errc::kInvalid, fmt::format("{} cannot have {} numbers", name, count));
  return {items, static_cast<std::size_t>(count)};
}

/// `choices[value]`. Throws kInvalid for another value.
template <class T, std::size_t kCount>
T choiceOf(const T (&choices)[kCount], std::int32_t value, const char* name) {
  if (value < 0 || static_cast<std::size_t>(value) >= kCount) {
    refuse(Errc::kInvalid, fmt::format("{} is {}, expected 0 to {}", name, value, kCount - 1));
  }
  return choices[value];
}
inline bool flagOf(std::int32_t value, const char* name) {
  constexpr bool kFlags[] = {false, true};
  return choiceOf(kFlags, value, name);
}
inline void checkReserved(std::uint32_t value, const char* of) {
  if (value != 0) refuse(Errc::kInvalid, fmt::format("reserved of {} is {}, expected 0", of, value));
}
inline Precision precisionOf(std::int32_t type) { return choiceOf(kPrecisions, type, "type"); }

/// A caller's matrix with strides that are set. Whether it has the rows and columns that a call needs is not checked.
struct Matrix {
  /// Throws kInvalid with the argument's name if it is null, without data, too large, or has bad strides.
  explicit Matrix(const srjit_matrix* argument, const char* name) {
    const srjit_matrix given = fromCaller(&required(argument, name), name);
    const auto* const bytes = static_cast<const std::byte*>(given.data);
    if (given.rows != 0 && given.columns != 0) required(bytes, fmt::format("data of {}", name).c_str());
    type = precisionOf(given.type);
    on_device = flagOf(given.on_device, "on_device");
    const auto element = std::int64_t{bytesOf(type)};
    constexpr std::size_t kMost = PTRDIFF_MAX / sizeof(double);
    std::size_t numbers = 0;
    if (__builtin_mul_overflow(given.rows, given.columns, &numbers) ||
        std::max<std::size_t>({numbers, given.rows, given.columns}) > kMost) {
      refuse(Errc::kInvalid, fmt::format("{} has {} rows and {} columns", name, given.rows, given.columns));
    }
    const bool has_strides = given.row_stride != 0 || given.column_stride != 0;
    row_stride = has_strides ? given.row_stride : element;
    column_stride = has_strides ? given.column_stride : element * static_cast<std::int64_t>(given.rows);
    if (row_stride % element != 0 || column_stride % element != 0) {
      refuse(Errc::kInvalid, fmt::format("the strides of {} are {} and {}, expected multiples of {}", name, row_stride,
                                         column_stride, element));
    }
    data = bytes;
    rows = given.rows;
    columns = given.columns;
  }

  /// Of a matrix in a GPU's memory.
  DeviceMatrix onDevice() const {
    return {reinterpret_cast<std::uint64_t>(data), rows, columns, row_stride, column_stride, type};
  }

  const std::byte* data = nullptr;
  std::size_t rows = 0, columns = 0;
  std::int64_t row_stride = 0, column_stride = 0;
  Precision type = Precision::kF32;
  bool on_device = false;
};

}  // namespace srjit::c_api
