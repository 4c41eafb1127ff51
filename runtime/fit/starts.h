// Random starts of fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace srjit::fit {

/// `given`, which are the parameters of all expressions, and behind it `count` - 1 vectors that are drawn around it;
/// `count` is at least 1. Each number has either sign, and 2^-4 to 2^4 times the magnitude of the given one, or of 1
/// for a 0, uniform in exponent and significand. The numbers of an expression depend on those given for it, on the
/// seed, its number and that of the vector, and are the same on every machine.
///
/// The parameters of expression e begin at offsets[e] and end at offsets[e + 1]. Its number is numbers[e], for a part
/// of a population, or e without numbers. Throws std::bad_alloc for more than memory holds.
std::vector<double> drawStarts(std::span<const double> given, std::span<const std::int64_t> offsets, std::size_t count,
                               std::uint64_t seed, std::span<const std::size_t> numbers = {});

}  // namespace srjit::fit
