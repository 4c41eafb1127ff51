// Hashes of small numbers, and the sequence of random numbers whose step they are: SplitMix64 (G. Steele, D. Lea, C.
// Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014). The same on every machine.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace srjit {

inline constexpr std::uint64_t kGoldenGamma = 0x9e3779b97f4a7c15u;

/// The finaliser: every bit of the result depends on every bit of z; different z give different results.
constexpr std::uint64_t mix(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// Order matters: combine(combine(s, a), b) differs from combine(combine(s, b), a).
constexpr std::uint64_t combine(std::uint64_t seed, std::uint64_t value) noexcept {
  return mix(seed * kGoldenGamma + value);
}

/// A hash of a few numbers at one multiplication each, for tables in memory: start with a seed, and take the upper
/// bits. Weaker than combine(), since a bit affects only those above it until the next step rotates them down.
constexpr std::uint64_t combineFast(std::uint64_t seed, std::uint64_t value) noexcept {
  return (std::rotl(seed, 29) ^ value) * kGoldenGamma;
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv).
constexpr std::uint64_t hashOf(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// The next number of the sequence that `state` is in.
constexpr std::uint64_t nextRandom(std::uint64_t& state) noexcept { return mix(state += kGoldenGamma); }

}  // namespace srjit
