# Installation: the command and libsrjit.so with its header; unless it is the static build also the other libraries, their
# headers and a CMake package.

get_property(SRJIT_LAYER_TARGETS GLOBAL PROPERTY SRJIT_LAYERS)
add_library(srjit INTERFACE)
add_library(srjit::srjit ALIAS srjit)
target_link_libraries(srjit INTERFACE ${SRJIT_LAYER_TARGETS})

install(TARGETS sr-jit RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
if(SRJIT_STATIC)
  foreach(library IN LISTS SRJIT_BESIDE)
    cmake_path(GET library FILENAME name)
    file(REAL_PATH ${library} file)
    install(FILES ${file} DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command RENAME ${name})
    install(FILES ${file} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library RENAME ${name})
  endforeach()
  set_target_properties(srjit_shared PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS srjit_shared
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
    FILE_SET headers DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/srjit COMPONENT library)
  return()
endif()

include(CMakePackageConfigHelpers)
set(SRJIT_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/srjit)
set(SRJIT_SHARED_TARGET)
if(TARGET srjit_shared)
  set(SRJIT_SHARED_TARGET srjit_shared)
endif()
install(TARGETS srjit ${SRJIT_SHARED_TARGET} srjit_llvm srjit_sqlite ${SRJIT_LAYER_TARGETS} EXPORT srjitTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
  FILE_SET headers DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/srjit COMPONENT library
  FILE_SET tables DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/srjit COMPONENT library)
install(EXPORT srjitTargets NAMESPACE srjit:: DESTINATION ${SRJIT_PACKAGE_DIR} COMPONENT library)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/srjitConfig.cmake.in ${CMAKE_BINARY_DIR}/srjitConfig.cmake
  INSTALL_DESTINATION ${SRJIT_PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/srjitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/srjitConfig.cmake ${CMAKE_BINARY_DIR}/srjitConfigVersion.cmake
  DESTINATION ${SRJIT_PACKAGE_DIR} COMPONENT library)
