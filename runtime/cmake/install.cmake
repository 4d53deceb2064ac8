# lib/, include/ and lib/cmake/aotriton/, relocatable. `lib` on every distribution: the layout is part of the interface.
include(CMakePackageConfigHelpers)

# the DLL as well: PyTorch looks for it beside its import library
install(TARGETS aotriton_v2 EXPORT aotritonTargets LIBRARY DESTINATION lib RUNTIME DESTINATION lib ARCHIVE DESTINATION lib)
if(WIN32)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/aotriton_v2.lib" DESTINATION lib)
endif()
install(DIRECTORY include/aotriton include/aotforge DESTINATION include FILES_MATCHING PATTERN "*.h")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/include/aotriton/config.h" DESTINATION include/aotriton)
install(EXPORT aotritonTargets FILE aotritonTargets.cmake DESTINATION lib/cmake/aotriton)
configure_package_config_file(cmake/aotritonConfig.cmake.in aotritonConfig.cmake INSTALL_DESTINATION lib/cmake/aotriton)
write_basic_package_version_file(aotritonConfigVersion.cmake VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/aotritonConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/aotritonConfigVersion.cmake"
  DESTINATION lib/cmake/aotriton)
