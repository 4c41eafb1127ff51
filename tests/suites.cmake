# Adds the suites of a program of GoogleTest as cases of ctest, which includes this when it starts. Input: `program`,
# `prefix` and `label` of the cases, and the `folder` that they run in.
if(NOT EXISTS "${program}")
  add_test("${prefix}_NOT_BUILT" "${prefix}_NOT_BUILT")
  return()
endif()
execute_process(COMMAND "${program}" --gtest_list_tests WORKING_DIRECTORY "${folder}" OUTPUT_VARIABLE listing TIMEOUT 60
  RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${program} cannot list its tests: ${status}")
endif()
# A suite is a line that is not indented, "Suite." or "Suite/0.  # TypeParam = float".
string(REGEX MATCHALL "(^|\n)[A-Za-z0-9_/]+\\." suites "${listing}")
foreach(suite IN LISTS suites)
  string(STRIP "${suite}" suite)
  add_test("${prefix}.${suite}*" "${program}" "--gtest_filter=${suite}*")
  set_tests_properties("${prefix}.${suite}*" PROPERTIES WORKING_DIRECTORY "${folder}" LABELS "${label}" TIMEOUT 600)
endforeach()
