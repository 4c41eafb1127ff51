#include "tests/generators/hard_pairs.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ir/numbers/random.h"
#include "tests/generators/data.h"

namespace srjit {
namespace {

template <class T>
Pairs<T> specialPairs() {
  Pairs<T> pairs;
  for (const T a : specialNumbers<T>()) {
    for (const T b : specialNumbers<T>()) pairs.add(a, b);
  }
  return pairs;
}

template <class T>
T neighbour(Random& random, T x) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return std::bit_cast<T>(std::bit_cast<Bits>(x) + static_cast<Bits>(random.between(-1, 1)));
}

}  // namespace

Pairs<float> hardPairs(std::size_t count, float) {
  Random random(9);
  Pairs<float> pairs = specialPairs<float>();
  const auto any = [&](int low, int high) {
    const auto mantissa = static_cast<std::uint32_t>(random.below(1U << 23));
    const auto exponent = static_cast<std::uint32_t>(random.between(low, high) + 127);
    return std::bit_cast<float>(mantissa | exponent << 23 | static_cast<std::uint32_t>(random.below(2)) << 31);
  };
  while (pairs.x.size() < count) {
    float a = anyBits<float>(random), b = anyBits<float>(random);
    switch (random.below(6)) {
      case 0:
        break;
      case 1:
        b = any(-20, 20);
        a = b * any(-149 + 126, -126 + 126) * 0x1p-126F;
        break;
      case 2: {  // at or next to the midpoint of two subnormal numbers
        b = any(0, 60);
        const double middle = (static_cast<double>(random.below(1U << 22)) + 0.5) * 0x1p-149;
        a = neighbour(random, static_cast<float>(middle * static_cast<double>(b)));
        break;
      }
      case 3: {  // at the midpoint, or next to it
        const int bits = random.between(1, 22);
        const double middle = (static_cast<double>(random.below(1U << bits)) + 0.5) * 0x1p-149;
        b = std::ldexp(static_cast<float>(random.below(1U << (24 - bits - 1)) | 1), random.between(0, 60));
        a = neighbour(random, static_cast<float>(middle * static_cast<double>(b)));
        break;
      }
      case 4:
        a = random.below(2) == 0 ? std::ldexp(1.0F, random.between(-126, 127)) : any(-126, 127);
        b = std::nextafter(std::ldexp(1.0F, random.between(-126, 127)), 0.0F);
        break;
      default:
        a = any(-3, 3);
        b = any(-3, 3);
    }
    pairs.add(a, b);
  }
  return pairs;
}

namespace {

using Wide = std::uint64_t;
constexpr Wide kHidden = Wide{1} << 52;  ///< the first bit of a significand

/// The inverse of an odd number modulo 2^64 (Newton's iteration doubles the right bits).
Wide inverseOf(Wide odd) {
  Wide inverse = odd;
  for (int i = 0; i < 6; ++i) inverse *= 2 - odd * inverse;
  return inverse;
}

/// a / b that differs from the midpoint of two numbers by t / b units of 2^-54, for an odd t. With M the odd number of
/// 54 bits that is the midpoint, a 2^54 = M b - t, so M is t / b modulo 2^54. None if M has fewer bits.
void addNearMidpoint(Random& random, Pairs<double>& pairs) {
  const Wide b = kHidden | random.below(kHidden) | 1, t = 2 * random.below(8) + 1;
  const bool is_below = random.below(2) == 0;
  const Wide middle = (is_below ? t : 0 - t) * inverseOf(b) % (4 * kHidden);
  if (middle < 2 * kHidden) return;
  __extension__ using Product = unsigned __int128;
  const Product product = Product{middle} * b;
  const auto a = static_cast<Wide>((is_below ? product - t : product + t) >> 54);
  const int scale = random.between(-200, 200);
  pairs.add(std::ldexp(static_cast<double>(a), scale), std::ldexp(static_cast<double>(b), random.between(-200, 200)));
}

/// Roots that are as near to the midpoint M / 2^53 of two numbers as numbers allow: a 2^s = M^2 + t, for all odd t
/// below 64 in magnitude. M is a square root of -t modulo 2^s, which exists if -t is 1 modulo 8 (found bit by bit).
void addHardRoots(Pairs<double>& pairs) {
  for (const int s : {54, 55}) {
    for (std::int64_t t = -63; t < 64; t += 2) {
      const Wide square = static_cast<Wide>(-t);
      if (square % 8 != 1) continue;
      Wide root = 1;
      for (int bit = 3; bit < s; ++bit) {
        if (((root * root - square) >> bit & 1) != 0) root += Wide{1} << (bit - 1);
      }
      const Wide modulus = Wide{1} << s;
      for (const Wide middle : {root, modulus - root, root + modulus / 2, modulus / 2 - root}) {
        const Wide m = middle % modulus;
        if (m < 2 * kHidden || m >= 4 * kHidden) continue;
        __extension__ using Product = unsigned __int128;
        const auto a = static_cast<Wide>((Product{m} * m + static_cast<Product>(t)) >> s);
        if (a < kHidden || a >= 2 * kHidden) continue;
        for (const int scale : {-600, -54, 0, 2, 500}) {
          const double x = std::ldexp(static_cast<double>(a), s - 54 + scale);
          pairs.add(x, x);
        }
      }
    }
  }
}

}  // namespace

Pairs<double> hardPairs(std::size_t count, double) {
  Random random(10);
  Pairs<double> pairs = specialPairs<double>();
  addHardRoots(pairs);
  const auto any = [&](int low, int high) {
    const auto exponent = static_cast<Wide>(random.between(low, high)) + 1023;
    return std::bit_cast<double>(random.below(kHidden) | exponent << 52 | random.below(2) << 63);
  };
  while (pairs.x.size() < count) {
    const double divisor =
        std::ldexp(std::ldexp(1.0, 53) - static_cast<double>(random.below(20)), random.between(-900, 900));
    switch (random.below(6)) {
      case 0:
        pairs.add(anyBits<double>(random), anyBits<double>(random));
        break;
      case 1: {
        const double b = any(-20, 20);
        pairs.add(b * any(-1074 + 1022, -1022 + 1022) * 0x1p-1022, b);
        break;
      }
      case 2: {  // at the midpoint of two subnormal numbers, or next to it
        const int bits = random.between(1, 50);
        const Wide b = random.below(Wide{1} << (52 - bits)) | 1, middle = 2 * random.below(Wide{1} << (bits - 1)) + 1;
        const int scale = random.between(60, 600);
        pairs.add(neighbour(random, std::ldexp(static_cast<double>(b * middle), scale - 1075)),
                  std::ldexp(static_cast<double>(b), scale));
        break;
      }
      case 3:
        addNearMidpoint(random, pairs);
        break;
      case 4:
        pairs.add(random.below(2) == 0 ? std::ldexp(1.0, random.between(-100, 100)) : any(-100, 100), divisor);
        break;
      default:
        pairs.add(any(-3, 3), any(-3, 3));
    }
  }
  return pairs;
}

}  // namespace srjit
