# Installation. The component `command` is sr-jit. The component `library` is libsrjit.so with its header, and, unless this
# is the static build, the layers' archives with theirs. Programs find them by CMake's find_package and by pkg-config. The
# target `installable` builds all that is installed.

get_property(SRJIT_LAYER_TARGETS GLOBAL PROPERTY SRJIT_LAYERS)
add_library(srjit INTERFACE)
add_library(srjit::srjit ALIAS srjit)
target_link_libraries(srjit INTERFACE ${SRJIT_LAYER_TARGETS})

set(installed_libraries)
if(TARGET srjit_shared)
  list(APPEND installed_libraries srjit_shared)
endif()
if(NOT SRJIT_STATIC)
  list(APPEND installed_libraries ${SRJIT_LAYER_TARGETS})
endif()

# The copies of the layers' headers, with the includes of an installed program; those of tools/search are in search.
set(header_folder ${CMAKE_BINARY_DIR}/include/srjit)
set(installed_headers)
if(NOT SRJIT_STATIC)
  get_property(installed_headers GLOBAL PROPERTY SRJIT_INSTALLED_HEADERS)
endif()
list(TRANSFORM SRJIT_LAYER_TARGETS REPLACE "^srjit_" "" OUTPUT_VARIABLE layers)
list(JOIN layers "|" layers)
set(header_script ${CMAKE_CURRENT_LIST_DIR}/InstalledHeader.cmake)
foreach(header IN LISTS installed_headers)
  string(REGEX REPLACE "^tools/" "" copy ${header})
  add_custom_command(OUTPUT ${header_folder}/${copy} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DFILE=${PROJECT_SOURCE_DIR}/${header} -DOUTPUT=${header_folder}/${copy}
            "-DLAYERS=${layers}" -P ${header_script}
    DEPENDS ${PROJECT_SOURCE_DIR}/${header} ${header_script}
    COMMENT "Copying ${header} for installation")
endforeach()
list(TRANSFORM installed_headers REPLACE "^tools/" "")
list(TRANSFORM installed_headers PREPEND ${header_folder}/ OUTPUT_VARIABLE header_copies)
add_custom_target(installable ALL DEPENDS ${header_copies})
add_dependencies(installable sr-jit ${installed_libraries})

# srjit_require_built(COMPONENT FILES...): an installation of the component begins by looking for these files, so that one
# of a build that is not complete fails before it writes anything.
function(srjit_require_built component)
  list(JOIN ARGN "\" \"" files)
  install(CODE "foreach(file IN ITEMS \"${files}\")
  if(NOT EXISTS \"\${file}\")
    message(FATAL_ERROR \"\${file} is not built, so nothing was installed. Build all that is installed:\\n\"
      \"  cmake --build '${CMAKE_BINARY_DIR}' --target installable\")
  endif()
endforeach()" COMPONENT ${component})
endfunction()
list(TRANSFORM installed_libraries REPLACE "(.+)" "$<TARGET_LINKER_FILE:\\1>" OUTPUT_VARIABLE library_files)
srjit_require_built(command $<TARGET_FILE:sr-jit>)
srjit_require_built(library ${library_files} ${header_copies})

install(TARGETS sr-jit RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
foreach(library IN LISTS SRJIT_BESIDE)
  cmake_path(GET library FILENAME name)
  file(REAL_PATH ${library} file)
  install(FILES ${file} DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command RENAME ${name})
  install(FILES ${file} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library RENAME ${name})
endforeach()
if(SRJIT_STATIC)
  set_target_properties(srjit_shared PROPERTIES INSTALL_RPATH "$ORIGIN")
endif()

set(exported ${installed_libraries})
if(NOT SRJIT_STATIC)
  list(APPEND exported srjit srjit_llvm)
endif()
install(TARGETS ${exported} EXPORT srjitTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(FILES ${PROJECT_SOURCE_DIR}/runtime/c_api/srjit.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/srjit COMPONENT library)
foreach(header IN LISTS installed_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header_folder}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/srjit/${folder} COMPONENT library)
endforeach()

include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/srjit)
install(EXPORT srjitTargets NAMESPACE srjit:: DESTINATION ${package_folder} COMPONENT library)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/srjitConfig.cmake.in ${CMAKE_BINARY_DIR}/srjitConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/srjitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/srjitConfig.cmake ${CMAKE_BINARY_DIR}/srjitConfigVersion.cmake
  DESTINATION ${package_folder} COMPONENT library)

# The files of pkg-config find the prefix from their own place, since `cmake --install --prefix` chooses it later.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(SRJIT_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
  cmake_path(SET up /)
  cmake_path(RELATIVE_PATH up BASE_DIRECTORY /${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  set(SRJIT_PC_PREFIX "\${pcfiledir}/${up}")
endif()
set(SRJIT_PC_INCLUDEDIR "\${prefix}")
cmake_path(APPEND SRJIT_PC_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
set(SRJIT_PC_LIBDIR "\${prefix}")
cmake_path(APPEND SRJIT_PC_LIBDIR ${CMAKE_INSTALL_LIBDIR})
# An archive stands before those that it needs.
list(TRANSFORM SRJIT_LAYER_TARGETS PREPEND -l OUTPUT_VARIABLE SRJIT_PC_ARCHIVES)
list(REVERSE SRJIT_PC_ARCHIVES)
list(JOIN SRJIT_PC_ARCHIVES " " SRJIT_PC_ARCHIVES)
set(pkg_config_files)
if(TARGET srjit_shared)
  list(APPEND pkg_config_files srjit.pc)
endif()
if(NOT SRJIT_STATIC)
  list(APPEND pkg_config_files srjit-cpp.pc)
endif()
foreach(file IN LISTS pkg_config_files)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${file}.in ${CMAKE_BINARY_DIR}/${file} @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${file} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
endforeach()
