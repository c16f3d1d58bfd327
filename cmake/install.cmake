# Install rules: the library, its public headers, the CMake package and the pkg-config file. Nothing in them names the
# prefix, so that an installed copy can be moved.
include(CMakePackageConfigHelpers)

install(TARGETS tilewise EXPORT tilewiseTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tilewise DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tilewise)
install(EXPORT tilewiseTargets NAMESPACE tilewise:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tilewiseConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/tilewiseConfig.cmake INSTALL_DESTINATION ${package_dir})
# While the major version is 0, a minor version may break.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tilewiseConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tilewiseConfig.cmake ${PROJECT_BINARY_DIR}/tilewiseConfigVersion.cmake
        DESTINATION ${package_dir})

# Paths in the pkg-config file count from the file itself, unless the user asked for absolute ones.
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_LIBDIR libdir_is_absolute)
if(libdir_is_absolute)
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
  set(pc_libdir ${CMAKE_INSTALL_LIBDIR})
else()
  file(RELATIVE_PATH up ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  string(REGEX REPLACE "/$" "" up ${up})
  set(pc_prefix "\${pcfiledir}/${up}")
  set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_INCLUDEDIR includedir_is_absolute)
if(includedir_is_absolute)
  set(pc_includedir ${CMAKE_INSTALL_INCLUDEDIR})
else()
  set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
if(NOT BUILD_SHARED_LIBS)
  set(pc_static_cflags " -DTILEWISE_STATIC")
  set(pc_static_libs " -pthread")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/tilewise.pc.in ${PROJECT_BINARY_DIR}/tilewise.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tilewise.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
