# lib/, include/ and lib/cmake/aotriton/, relocatable. `lib` on every distribution: the layout is part of the interface.
include(CMakePackageConfigHelpers)

# the DLL as well: PyTorch looks for it beside its import library
# components: `runtime` is what programs load, `development` what they are compiled with
install(TARGETS aotriton_v2 EXPORT aotritonTargets
  LIBRARY DESTINATION lib COMPONENT runtime NAMELINK_COMPONENT development
  RUNTIME DESTINATION lib COMPONENT runtime
  ARCHIVE DESTINATION lib COMPONENT development)
if(WIN32)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/aotriton_v2.lib" DESTINATION lib COMPONENT development)
endif()
set(AOTFORGE_ABSENT "")
if(PROJECT_VERSION VERSION_GREATER_EQUAL 0.13)
  set(AOTFORGE_ABSENT PATTERN v2 EXCLUDE)  # these levels have no calls of version 2
endif()
install(DIRECTORY include/aotriton include/aotforge DESTINATION include COMPONENT development
  FILES_MATCHING PATTERN "*.h" ${AOTFORGE_ABSENT} PATTERN tensor.h EXCLUDE)
if(NOT AOTFORGE_INSTALLED_CONFIG)  # a project around this one may have another copy
  set(AOTFORGE_INSTALLED_CONFIG "${CMAKE_CURRENT_BINARY_DIR}/include/aotriton/config.h")
endif()
install(FILES "${AOTFORGE_INSTALLED_CONFIG}" DESTINATION include/aotriton COMPONENT development)
install(EXPORT aotritonTargets FILE aotritonTargets.cmake DESTINATION lib/cmake/aotriton COMPONENT development)
configure_package_config_file(cmake/aotritonConfig.cmake.in aotritonConfig.cmake INSTALL_DESTINATION lib/cmake/aotriton)
write_basic_package_version_file(aotritonConfigVersion.cmake VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/aotritonConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/aotritonConfigVersion.cmake"
  DESTINATION lib/cmake/aotriton COMPONENT development)
