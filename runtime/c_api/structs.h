// Structs of srjit.h, which begin with their size: read from a caller, and written to one, whose header may be older or
// newer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "ir/error.h"
#include "runtime/c_api/srjit.h"

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
inline constexpr std::size_t kFirstSize<srjit_program_info> = 168;
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

}  // namespace srjit::c_api
