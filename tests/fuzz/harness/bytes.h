// What fuzz targets have in common: reading values from the bytes of an input, and rules that must hold.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/generators/data.h"

namespace srjit::fuzz {

/// Prints a rule that does not hold, and what it is about, and ends the process.
[[noreturn]] inline void breakRule(const char* rule, std::string_view about) {
  std::fprintf(stderr, "broken rule: %s\n%.*s\n", rule, static_cast<int>(about.size()), about.data());
  std::abort();
}
inline void require(bool holds, const char* rule, std::string_view about = {}) {
  if (!holds) breakRule(rule, about);
}
/// `about` gives the text, which is made only if it is needed.
template <std::invocable About>
void require(bool holds, const char* rule, const About& about) {
  if (!holds) breakRule(rule, about());
}

/// Decodes any bytes; reads zeros past the end.
class ByteReader {
 public:
  ByteReader(const std::uint8_t* data, std::size_t size) : bytes_(data, size) {}
  explicit ByteReader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  bool isEmpty() const { return bytes_.empty(); }
  std::span<const std::uint8_t> rest() const { return bytes_; }

  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const std::uint8_t first = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return first;
  }
  template <class T>
  T little() {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | static_cast<T>(T{byte()} << 8 * i));
    return value;
  }
  std::uint32_t below(std::size_t bound) { return static_cast<std::uint32_t>(byte() % bound); }
  bool flag() { return byte() % 2 == 1; }

  /// A special or an ordinary number: two bytes.
  double number() {
    static const std::vector<double> kSpecial = specialNumbers<double>();
    const std::uint8_t first = byte(), second = byte();
    if (first % 2 == 0) return kSpecial[first / 2 % kSpecial.size()];
    return (first - 128 + second / 256.0) / 16;
  }
  std::vector<double> numbers(std::size_t count) {
    std::vector<double> values(count);
    for (double& value : values) value = number();
    return values;
  }
  /// The next bytes, or those that are left.
  std::span<const std::uint8_t> take(std::size_t count) {
    const auto taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

inline std::string_view textOf(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace srjit::fuzz
