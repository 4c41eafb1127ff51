// Operands whose quotients and square roots are hard to round.
#pragma once

#include <cstddef>
#include <vector>

namespace srjit {

/// Operands of quotients. Each may be the operand of a square root, too.
template <class T>
struct Pairs {
  std::vector<T> x, y;
  void add(T a, T b) {
    x.push_back(a);
    y.push_back(b);
  }
};

/// `count` pairs, at least 1,000: special numbers; random bits; subnormal and overflowing quotients; quotients at or
/// near the midpoint of two numbers; divisors with the hardest reciprocals. In f64 also the roots that are nearest to
/// such a midpoint. Always the same.
Pairs<float> hardPairs(std::size_t count, float);
Pairs<double> hardPairs(std::size_t count, double);

}  // namespace srjit
