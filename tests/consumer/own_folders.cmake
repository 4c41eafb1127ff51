# Included after project() of docs/examples: a program may have folders with the names of ours, and looks into them first.
foreach(header IN ITEMS ir/error.h passes/dag.h compiler/llvm_failures.h runtime/engine.h)
  file(WRITE ${CMAKE_BINARY_DIR}/own/${header} "#error a header of the user, not of sr-jit\n")
endforeach()
include_directories(BEFORE ${CMAKE_BINARY_DIR}/own)
