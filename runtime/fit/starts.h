// Random starts of fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace srjit::fit {

/// Draws start number `start` of the parameters of expression number `expression` around `given`: each of either sign,
/// with 2^-4 to 2^4 times the magnitude of the given one, or of 1 for a 0. Uniform in exponent and significand. Depends
/// on the arguments alone, and is the same on every machine. `out` is as long as `given`, and may be `given`.
void drawStart(std::span<const double> given, std::uint64_t seed, std::uint64_t expression, std::uint64_t start,
               std::span<double> out) noexcept;

/// `given`, which are the parameters of all expressions, and behind it `count` - 1 vectors that are drawn around it;
/// `count` is at least 1. Throws std::bad_alloc for more than memory holds. The parameters of expression e begin at
/// offsets[e] and end at offsets[e + 1].
std::vector<double> drawStarts(std::span<const double> given, std::span<const std::int64_t> offsets, std::size_t count,
                               std::uint64_t seed);

}  // namespace srjit::fit
