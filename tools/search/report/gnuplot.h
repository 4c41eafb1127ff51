// The program that draws, which is not a part of this one. All functions are thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "ir/error.h"

namespace srjit::search {

/// Where `gnuplot` is in the PATH. Errors: kMachine if it is not there.
Result<std::string> findGnuplot();

/// Runs a script, without the user's own settings, and gives what it wrote to standard output. Errors: kMachine if
/// gnuplot was not found, cannot be started or fails (with its own message), or if memory runs out.
Result<std::string> runGnuplot(std::string_view script);

}  // namespace srjit::search
