#include "tools/bench/baselines/functions.h"

#include "ir/ops.h"

namespace srjit {
namespace {

constexpr LibraryFunction kLibraryFunctions[] = {
#define SRJIT_LIBRARY_FUNCTION(id, code, x_low, x_high, y_low, y_high) {Op::k##id, #code, x_low, x_high, y_low, y_high},
#include "tools/bench/baselines/functions.def"
#undef SRJIT_LIBRARY_FUNCTION
};

}  // namespace

std::span<const LibraryFunction> allLibraryFunctions() noexcept { return kLibraryFunctions; }

}  // namespace srjit
