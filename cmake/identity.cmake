# config.h as it is installed states which sources the library was built from, as releases do. No source of the library reads that, so the copy in the
# build folder does not have it: else every changed file would compile all of them.

aotforge_level_version(${AOTFORGE_API_LEVEL} AOTFORGE_VERSION)
set(identity "${AOTRITON_GIT_SHA1}")
if(identity MATCHES "^0*$")
  set(identity "$ENV{AOTRITON_CI_SUPPLIED_SHA1}")
endif()
if(NOT identity MATCHES "^[0-9a-f]*$")
  message(FATAL_ERROR "AOTRITON_CI_SUPPLIED_SHA1=${identity} is not a digest: 40 hexadecimal digits, or leave it out")
endif()
set(AOTFORGE_INSTALLED_CONFIG "${CMAKE_CURRENT_BINARY_DIR}/installed/config.h")
file(GLOB_RECURSE runtime_files RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS runtime/*)
list(FILTER runtime_files EXCLUDE REGEX "^runtime/(tests|fuzz|hip_double|cuda_double)/|/\\.")
add_custom_command(OUTPUT "${AOTFORGE_INSTALLED_CONFIG}"
  COMMAND "${CMAKE_COMMAND}" "-DSOURCES=${CMAKE_CURRENT_SOURCE_DIR}/runtime" "-DVERSION=${AOTFORGE_VERSION}" "-DOUTPUT=${AOTFORGE_INSTALLED_CONFIG}" "-DSHA1=${identity}"
          -P "${CMAKE_CURRENT_SOURCE_DIR}/cmake/write_config.cmake"
  DEPENDS ${runtime_files} cmake/write_config.cmake
  COMMENT "Digest of the library's sources" VERBATIM)
add_custom_target(aotforge_identity ALL DEPENDS "${AOTFORGE_INSTALLED_CONFIG}")
