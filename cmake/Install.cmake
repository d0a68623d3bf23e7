# The installed package: find_package(Shadowgraph), targets shadowgraph::shadowgraph and, where the tools are built, the
# components shadowgraph::testing and shadowgraph::c; pkg-config shadowgraph, shadowgraph_c.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Shadowgraph)

set(installed shadowgraph)
set(needs_threads FALSE)
if(TARGET shadowgraph_testing)
  list(APPEND installed shadowgraph_testing)
  set(needs_threads TRUE)
endif()
set(pc_files shadowgraph.pc)
if(TARGET shadowgraph_c)
  list(APPEND installed shadowgraph_c)
  list(APPEND pc_files shadowgraph_c.pc)
  install(FILES ${PROJECT_SOURCE_DIR}/include/shadowgraph.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
install(
  TARGETS ${installed}
  EXPORT ShadowgraphTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/shadowgraph DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT ShadowgraphTargets NAMESPACE shadowgraph:: DESTINATION ${package_dir})

# A static library leaves OpenMP to whoever links it; a shared one has it inside.
set(needs_openmp FALSE)
get_target_property(type shadowgraph TYPE)
get_target_property(libraries shadowgraph LINK_LIBRARIES)
if(type STREQUAL "STATIC_LIBRARY" AND "OpenMP::OpenMP_CXX" IN_LIST libraries)
  set(needs_openmp TRUE)
  set(pc_static_libs " ${OpenMP_CXX_FLAGS}")
endif()

configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/ShadowgraphConfig.cmake.in ShadowgraphConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ShadowgraphConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ShadowgraphConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/ShadowgraphConfigVersion.cmake DESTINATION ${package_dir})

# Relative to the file itself, so that the prefix can be chosen (or moved) after the build.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
foreach(file ${pc_files})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${file}.in ${file} @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${file} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
