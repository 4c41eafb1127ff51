# srjit_layer(NAME [LINK targets...] [PRIVATE_LINK targets...] [HEADERS files...] [TABLES files...])
#
# The library srjit_NAME (srjit::NAME) from all .cpp files below the current folder. LINK are layers whose headers its own
# headers use; PRIVATE_LINK is what only its sources use. HEADERS and TABLES (.def) are installed (Package.cmake), and HEADERS
# compile on their own; other headers of the folder are private to this repository.
function(srjit_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 layer "" "" "LINK;PRIVATE_LINK;HEADERS;TABLES")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  set(library srjit_${name})
  add_library(${library} STATIC ${sources})
  add_library(srjit::${name} ALIAS ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${library} PUBLIC cxx_std_20)
  # Here headers are included as "ir/ops.h"; from their installed copies as <srjit/ir/ops.h>.
  target_include_directories(${library} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${library} PUBLIC ${layer_LINK} PRIVATE ${layer_PRIVATE_LINK})
  srjit_precompile(${library})
  set_property(GLOBAL APPEND PROPERTY SRJIT_LAYERS ${library})
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
  foreach(header IN LISTS layer_HEADERS layer_TABLES)
    set_property(GLOBAL APPEND PROPERTY SRJIT_INSTALLED_HEADERS ${folder}/${header})
  endforeach()
endfunction()
