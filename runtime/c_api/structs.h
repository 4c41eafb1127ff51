// Structs of srjit.h, which begin with their size: read from a caller, and written to one, whose header may be older or
// newer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

#include "ir/error.h"

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

/// A copy of the caller's struct, in which members that it does not have are 0; all are for null. Throws kInvalid if
/// its size is not set, kUnsupported if it has members that are not 0 and unknown here.
template <class Struct>
Struct fromCaller(const Struct* given, const char* name) {
  Struct mine{};
  if (given != nullptr) {
    // Not more than its size is the caller's.
    std::uint64_t size;
    std::memcpy(&size, given, sizeof size);
    if (size < sizeof size) refuse(Errc::kInvalid, fmt::format("the size of {} is {}", name, size));
    const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
    if (size > sizeof mine && std::any_of(bytes + sizeof mine, bytes + size, [](unsigned char b) { return b != 0; })) {
      refuse(Errc::kUnsupported,
             fmt::format("{} has members that this version of the library does not know ({} bytes, known are {})", name,
                         size, sizeof mine));
    }
    std::memcpy(&mine, given, std::min<std::size_t>(size, sizeof mine));
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
  fromCaller<Struct>(&required(given, name), name);
  Struct mine{};
  fill(mine);
  toCaller(mine, given);
}

}  // namespace srjit::c_api
