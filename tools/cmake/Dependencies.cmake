# Everything that is not ours, found in one place.
#
#   srjit_llvm    LLVM 19: one shared library, or its components linked statically (SRJIT_STATIC)
#   srjit_csv     libcsv
#   SRJIT_FMT     the target of fmt to link

find_package(nlohmann_json 3.11 REQUIRED)
find_package(TBB 2021 REQUIRED)
find_package(Threads REQUIRED)
find_package(LLVM 19.1 REQUIRED CONFIG)
find_package(fmt 9 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
# Debian's archive of it cannot be linked into a shared library, which the Python package is; its wheel has the library
# beside it.
set(Boost_USE_STATIC_LIBS ${SRJIT_STATIC})
if(SRJIT_PYTHON)
  set(Boost_USE_STATIC_LIBS OFF)
endif()
find_package(Boost 1.74 REQUIRED COMPONENTS iostreams)

# Debian has no static fmt; its header-only form is the same code. (The Python package's wheel has the library beside it.)
set(SRJIT_FMT fmt::fmt)
if(SRJIT_STATIC AND NOT SRJIT_PYTHON)
  set(SRJIT_FMT fmt::fmt-header-only)
endif()

function(srjit_find_archive variable name)
  find_library(${variable} NAMES lib${name}.a REQUIRED)
endfunction()

add_library(srjit_llvm INTERFACE)
target_include_directories(srjit_llvm SYSTEM INTERFACE $<BUILD_INTERFACE:${LLVM_INCLUDE_DIRS}>)
if(SRJIT_STATIC)
  srjit_find_archive(SRJIT_ZLIB z)
  srjit_find_archive(SRJIT_ZSTD zstd)
  srjit_find_archive(SRJIT_LZMA lzma)
  srjit_find_archive(SRJIT_BZ2 bz2)
  # Debian's exported targets name z3, libxml2, libffi, libedit, curl and the shared forms of zlib and zstd. None of our
  # code reaches the parts of LLVM that call the first five, so they are left out of the link.
  set_target_properties(LLVMSupport PROPERTIES
    INTERFACE_LINK_LIBRARIES "LLVMDemangle;${SRJIT_ZLIB};${SRJIT_ZSTD};Threads::Threads;${CMAKE_DL_LIBS};m")
  foreach(component LLVMWindowsManifest LLVMInterpreter LLVMLineEditor LLVMDebuginfod)
    get_target_property(libraries ${component} INTERFACE_LINK_LIBRARIES)
    list(FILTER libraries INCLUDE REGEX "^LLVM")
    set_target_properties(${component} PROPERTIES INTERFACE_LINK_LIBRARIES "${libraries}")
  endforeach()
  llvm_map_components_to_libnames(SRJIT_LLVM_LIBRARIES
    core support analysis passes irreader bitreader bitwriter linker ipo scalaropts vectorize instcombine transformutils
    target nvptxcodegen nvptxdesc nvptxinfo
    x86codegen x86asmparser x86desc x86info x86disassembler mcdisassembler orcjit jitlink executionengine)
  target_link_libraries(srjit_llvm INTERFACE ${SRJIT_LLVM_LIBRARIES})
  if(Boost_USE_STATIC_LIBS)
    target_link_libraries(Boost::iostreams INTERFACE ${SRJIT_ZLIB} ${SRJIT_BZ2} ${SRJIT_LZMA} ${SRJIT_ZSTD})
  endif()
else()
  target_link_libraries(srjit_llvm INTERFACE LLVM)
endif()

# Shared libraries that lie beside a static command. Debian has oneTBB only as a shared library, and that needs libstdc++
# and libgcc_s: these must be the ones the command uses, since an exception thrown in a task crosses all of them (with a
# second, static copy inside the command, the unwinder aborts).
set(SRJIT_BESIDE)
if(SRJIT_STATIC)
  get_target_property(SRJIT_TBB TBB::tbb LOCATION)
  cmake_path(GET SRJIT_TBB PARENT_PATH SRJIT_TBB_FOLDER)
  list(APPEND SRJIT_BESIDE ${SRJIT_TBB_FOLDER}/libtbb.so.12)
  foreach(name libstdc++.so.6 libgcc_s.so.1)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${name} OUTPUT_VARIABLE path COMMAND_ERROR_IS_FATAL ANY
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    list(APPEND SRJIT_BESIDE ${path})
  endforeach()
endif()

# srjit_standalone(TARGET): with SRJIT_STATIC, makes a program that runs on other machines, from the build's root.
function(srjit_standalone target)
  if(NOT SRJIT_STATIC)
    return()
  endif()
  target_link_options(${target} PRIVATE -Wl,--gc-sections -Wl,-s)
  set_target_properties(${target} PROPERTIES
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN" RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endfunction()

find_path(SRJIT_CSV_INCLUDE csv.h REQUIRED)
if(SRJIT_STATIC)
  srjit_find_archive(SRJIT_CSV_ARCHIVE csv)
  set(SRJIT_CSV_LIBRARY ${SRJIT_CSV_ARCHIVE})
else()
  find_library(SRJIT_CSV_LIBRARY csv REQUIRED)
endif()
add_library(srjit_csv INTERFACE)
target_include_directories(srjit_csv SYSTEM INTERFACE ${SRJIT_CSV_INCLUDE})
target_link_libraries(srjit_csv INTERFACE ${SRJIT_CSV_LIBRARY})

# MPFR, for true values of functions. SRJIT_MPFR_INCLUDE is false where it is missing.
find_path(SRJIT_MPFR_INCLUDE mpfr.h)
if(SRJIT_MPFR_INCLUDE)
  add_library(srjit_mpfr INTERFACE)
  target_include_directories(srjit_mpfr SYSTEM INTERFACE ${SRJIT_MPFR_INCLUDE})
  if(SRJIT_STATIC)
    srjit_find_archive(SRJIT_MPFR mpfr)
    srjit_find_archive(SRJIT_GMP gmp)
    target_link_libraries(srjit_mpfr INTERFACE ${SRJIT_MPFR} ${SRJIT_GMP})
  else()
    target_link_libraries(srjit_mpfr INTERFACE mpfr gmp)
  endif()
else()
  message(STATUS "MPFR was not found: sr-jit-accuracy and its tests are not built")
endif()
if(SRJIT_BUILD_TESTS OR SRJIT_STATIC)
  find_package(GTest QUIET)
  if(NOT GTest_FOUND)
    message(STATUS "GoogleTest was not found: no tests are built")
  endif()
endif()
