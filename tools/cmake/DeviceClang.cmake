# Whether a clang compiles our sources for a GPU.

# srjit_check_device_clang(FAULT COMMAND...): sets FAULT to why the command, a clang with its flags, does not compile the
# headers that code for a GPU includes, with its first error; to nothing if it does. A command is tried once: the cache
# keeps its result until the command is another one. Faults of our own sources are not found here, and
# fails the build.
function(srjit_check_device_clang fault)
  if(NOT "${ARGN}" STREQUAL "${SRJIT_DEVICE_CLANG_TRIED}")
    set(source ${CMAKE_CURRENT_BINARY_DIR}/device_clang.cc)
    file(CONFIGURE OUTPUT ${source} @ONLY CONTENT "#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <fmt/format.h>

std::vector<double> sorted(std::span<const double> values) {
  std::vector<double> copy(values.begin(), values.end());
  std::ranges::sort(copy);
  return copy;
}
")
    execute_process(COMMAND ${ARGN} -emit-llvm -c ${source} -o ${source}.bc
      RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
    set(reason "")
    if(NOT status STREQUAL "0")
      string(REGEX MATCH "[^\n]*error: [^\n]*" first "${output}")
      if(first STREQUAL "")
        string(REGEX MATCH "[^\n]+" first "${output}")
      endif()
      if(first STREQUAL "")
        set(first "result ${status}")
      endif()
      set(reason "${SRJIT_DEVICE_CLANG} does not compile for a GPU: ${first}")
    endif()
    set(SRJIT_DEVICE_CLANG_TRIED "${ARGN}" CACHE INTERNAL "clang with its flags, as it was tried last")
    set(SRJIT_DEVICE_CLANG_FAULT "${reason}" CACHE INTERNAL "Why it does not compile for a GPU; empty if it does")
  endif()
  set(${fault} "${SRJIT_DEVICE_CLANG_FAULT}" PARENT_SCOPE)
endfunction()
