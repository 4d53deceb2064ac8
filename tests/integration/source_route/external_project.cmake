# The shape of PyTorch's call: CMAKE_CACHE_ARGS for what may be a list, CMAKE_ARGS for the rest, the library named as a byproduct.
cmake_minimum_required(VERSION 3.18)
project(torch LANGUAGES NONE)
include(ExternalProject)
set(PYTORCH_ROCM_ARCH gfx90a gfx908 gfx1010)
set(prefix "${CMAKE_CURRENT_SOURCE_DIR}/torch")
ExternalProject_Add(aotriton_runtime
  GIT_REPOSITORY "${REPOSITORY}"
  GIT_SUBMODULES_RECURSE OFF
  GIT_TAG 0.11.2b
  PREFIX "${CMAKE_CURRENT_BINARY_DIR}/aotriton"
  CMAKE_CACHE_ARGS
  "-DAOTRITON_TARGET_ARCH:STRING=${PYTORCH_ROCM_ARCH}"
  "-DCMAKE_INSTALL_PREFIX:FILEPATH=${prefix}"
  CMAKE_ARGS
  -DCMAKE_BUILD_TYPE=Release
  -DAOTRITON_GPU_BUILD_TIMEOUT=0
  -DAOTRITON_NO_PYTHON=ON
  -DAOTRITON_NOIMAGE_MODE=ON
  -DHIP_PLATFORM=amd
  BUILD_BYPRODUCTS "${prefix}/lib/libaotriton_v2.so"
  USES_TERMINAL_DOWNLOAD TRUE
  USES_TERMINAL_CONFIGURE TRUE
  USES_TERMINAL_BUILD TRUE
  USES_TERMINAL_INSTALL TRUE)
add_custom_command(OUTPUT uses_it COMMAND "${CMAKE_COMMAND}" -E copy "${prefix}/lib/libaotriton_v2.so" uses_it
  DEPENDS "${prefix}/lib/libaotriton_v2.so" VERBATIM)
add_custom_target(user ALL DEPENDS uses_it)
add_dependencies(user aotriton_runtime)  # a byproduct of the build step is there after the install step only
