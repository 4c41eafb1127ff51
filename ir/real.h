// The domain of IEEE numbers on the host, float or double, ISO C++ only: the reference for every other domain.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace srjit::real {

using std::abs;
using std::ceil;
using std::copysign;
using std::floor;
using std::fma;
using std::rint;  // the default rounding mode is to nearest, ties to even
using std::sqrt;

/// The C library's functions, and one that it lacks.
namespace library {
using namespace std;
inline long double mod(long double x, long double y) {
  const long double remainder = std::fmod(x, y);
  return remainder == 0 ? std::copysign(remainder, y) : (remainder < 0) == (y < 0) ? remainder : remainder + y;
}
}  // namespace library

// Functions that are programs have the bits of every kernel in `strict` and `precise`. In long double they are those of
// the C library.
#define SRJIT_FUNCTION(id, arity, code, ...) SRJIT_DECLARE_##code(id, arity)
#define SRJIT_DECLARE_kOperation(id, arity)
#define SRJIT_DECLARE_kProgram(id, arity) SRJIT_DECLARE_##arity(id)
#define SRJIT_DECLARE_1(id) \
  float id(float x);        \
  double id(double x);      \
  inline long double id(long double x) { return library::id(x); }
#define SRJIT_DECLARE_2(id)      \
  float id(float x, float y);    \
  double id(double x, double y); \
  inline long double id(long double x, long double y) { return library::id(x, y); }
#include "ir/functions.def"
#undef SRJIT_FUNCTION
#undef SRJIT_DECLARE_kOperation
#undef SRJIT_DECLARE_kProgram
#undef SRJIT_DECLARE_1
#undef SRJIT_DECLARE_2

template <class T>
bool lt(T x, T y) {
  return x < y;
}
template <class T>
bool le(T x, T y) {
  return x <= y;
}
template <class T>
bool eq(T x, T y) {
  return x == y;
}
template <class T>
T select(bool mask, T x, T y) {
  return mask ? x : y;
}

/// IEEE 754-2019 minimum: NaN if either is, -0 below +0.
template <class T>
T minimum(T x, T y) {
  if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<T>::quiet_NaN();
  if (x == y) return std::signbit(x) ? x : y;
  return x < y ? x : y;
}

/// IEEE 754-2019 maximum: NaN if either is, -0 below +0.
template <class T>
T maximum(T x, T y) {
  return -minimum(-x, -y);
}

template <class T>
T atMost(T x, double limit) {
  return x > static_cast<T>(limit) ? static_cast<T>(limit) : x;
}
template <class T>
T atLeast(T x, double limit) {
  return x < static_cast<T>(limit) ? static_cast<T>(limit) : x;
}

/// `usual`, or `rare()` where it is rare.
template <class T, std::size_t kCount, class Rare>
std::array<T, kCount> rarely(bool is_rare, const std::array<T, kCount>& usual, const Rare& rare) {
  return is_rare ? rare() : usual;
}

/// A word of a number, as ir/functions/domain.def has it.
struct Word {
  std::uint32_t bits;
  Word(std::int32_t value) : bits(static_cast<std::uint32_t>(value)) {}
};
inline Word operator+(Word x, Word y) { return static_cast<std::int32_t>(x.bits + y.bits); }
inline Word operator-(Word x, Word y) { return static_cast<std::int32_t>(x.bits - y.bits); }
inline Word operator&(Word x, Word y) { return static_cast<std::int32_t>(x.bits & y.bits); }
inline Word shiftLeft(Word x, int places) { return static_cast<std::int32_t>(x.bits << places); }
inline Word shiftRight(Word x, int places) { return static_cast<std::int32_t>(x.bits) >> places; }

inline Word upperWord(float x) { return std::bit_cast<std::int32_t>(x); }
inline Word lowerWord(float x) { return std::bit_cast<std::int32_t>(x); }
inline float withWords(float /*x*/, Word upper, Word /*lower*/) { return std::bit_cast<float>(upper.bits); }
inline Word upperWord(double x) { return static_cast<std::int32_t>(std::bit_cast<std::uint64_t>(x) >> 32); }
inline Word lowerWord(double x) { return static_cast<std::int32_t>(std::bit_cast<std::uint64_t>(x)); }
inline double withWords(double /*x*/, Word upper, Word lower) {
  return std::bit_cast<double>(std::uint64_t{upper.bits} << 32 | lower.bits);
}

}  // namespace srjit::real
