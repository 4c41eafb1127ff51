# Flags for all of our code. Headers of other libraries come in as system headers, so no warning is about them.

find_program(SRJIT_CCACHE ccache)
if(SRJIT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without the sloppiness it would keep nothing compiled with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    # The Python package takes the objects of the preset `release`, since paths count from the repository.
    list(APPEND CMAKE_CXX_COMPILER_LAUNCHER CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_DEPEND=1)
  endif()
  list(APPEND CMAKE_CXX_COMPILER_LAUNCHER ${SRJIT_CCACHE})
endif()

# Nothing may be fused behind our back, in the float64 reference least of all: its bits are the oracle of every kernel.
add_compile_options(-ffp-contract=off)
add_compile_options(-Wall -Wextra -Wconversion -Wnon-virtual-dtor)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Plain -Wshadow also means `T(int n) : n(n) {}`, which clang allows and we use.
  add_compile_options(-Wshadow=local -Wdouble-promotion)
  # Position-independent code keeps calls that could be inlined, unless symbol interposition is off.
  add_compile_options(-fno-semantic-interposition)
  # GCC 12 reports overlapping copies inside std::string::operator+ that cannot happen (GCC bug 105651), and its flow
  # analysis of optional and variant guesses: these are shown, but do not fail a build.
  add_compile_options(-Wno-restrict -Wno-error=maybe-uninitialized -Wno-error=array-bounds -Wno-error=stringop-overflow)
  if(CMAKE_UNITY_BUILD)
    # GCC takes a source that a unity source includes for a header.
    add_compile_options(-Wno-subobject-linkage)
  endif()
else()
  # Clang counts the sign conversions of indices to -Wconversion, and `double{1e-9f}` to -Wdouble-promotion;
  # it also finds libstdc++'s own use of std::get_temporary_buffer in std::stable_sort deprecated.
  add_compile_options(-Wshadow -Wno-sign-conversion -Wno-deprecated-declarations)
endif()

if(SRJIT_SANITIZE)
  add_compile_options(-fsanitize=${SRJIT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${SRJIT_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Code that LLVM made at run time has no type signature before its entry, which this check would read.
    add_compile_options(-fno-sanitize=function)
    add_link_options(-fno-sanitize=function)
  endif()
endif()
# srjit_not_sanitized(TARGET): the sources of a target that only tests use are optimised and not sanitized.
function(srjit_not_sanitized target)
  if(SRJIT_SANITIZE)
    target_compile_options(${target} PRIVATE -fno-sanitize=all -O2)
  endif()
  if(SRJIT_COVERAGE)
    target_compile_options(${target} PRIVATE -fno-profile-instr-generate -fno-coverage-mapping)
  endif()
endfunction()

if(SRJIT_FUZZ)
  # Calls at every comparison would take most of the time; words come from dictionaries, structure from mutators.
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp)
endif()
# srjit_not_sanitized_but_covered(TARGET): the same, but fuzzers see which of its code an input reaches.
function(srjit_not_sanitized_but_covered target)
  srjit_not_sanitized(${target})
  if(SRJIT_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize-coverage=inline-8bit-counters,pc-table)
  endif()
endfunction()

if(SRJIT_COVERAGE)
  add_compile_options(-fprofile-instr-generate -fcoverage-mapping)
  add_link_options(-fprofile-instr-generate)
endif()

# The static command and the Python package need no unused sections; other builds have them for the same objects.
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_options(-ffunction-sections -fdata-sections)
endif()

# srjit_precompile(TARGET [headers...]): precompiles the standard headers that nearly every source includes, and those
# given, for the sources of a target. Sources still include what they use: unity builds compile without, since a target
# has too few sources there to pay for it.
option(SRJIT_PRECOMPILE "Precompile the headers that most sources include" ON)
function(srjit_precompile target)
  if(SRJIT_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE
      <algorithm> <array> <atomic> <cmath> <condition_variable> <cstddef> <cstdint> <filesystem> <fstream> <functional> <map>
      <memory> <mutex> <optional> <ranges> <span> <sstream> <string> <string_view> <thread> <unordered_map> <utility>
      <variant> <vector> <fmt/format.h> ${ARGN})
  endif()
endfunction()
