// What this machine has of the things that sr-jit can use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace srjit {

/// One thing that was looked for.
struct Finding {
  std::string name;
  bool found;
  std::string what;        ///< where it is, its version, or why it cannot be used
  std::string needed_for;  ///< what does not work without it
};

/// The finding that tells whether expressions can be compiled for this processor, as both of its tiers need.
inline constexpr std::string_view kHostCode = "host code";

/// Looks for everything, and tries what can be tried: compiling for this processor and making PTX. Takes a fraction of
/// a second; loads the CUDA driver where there is one.
std::vector<Finding> inspectMachine();

}  // namespace srjit
