# The decoder. Warnings in other people's code are theirs.
add_library(aotforge_zstd STATIC src/zstd_decoder.c)
target_include_directories(aotforge_zstd PRIVATE "${AOTFORGE_ZSTD_DIR}")
target_compile_options(aotforge_zstd PRIVATE -w -fvisibility=hidden -ffunction-sections -fdata-sections
  "$<$<C_COMPILER_ID:GNU>:-fwhole-program>")
target_compile_definitions(aotforge_zstd PRIVATE ZSTDLIB_VISIBLE= ZSTDLIB_STATIC_API= ZSTDERRORLIB_VISIBLE= ZDICTLIB_VISIBLE=)
set_target_properties(aotforge_zstd PROPERTIES POSITION_INDEPENDENT_CODE ON)

# Compiles the sources of a target as one: headers are read once, which takes half of the compiler's time.
function(aotforge_compile_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
endfunction()

set(AOTFORGE_SYSTEM posix)
set(AOTFORGE_CPU_SOURCES src/posix/cpu_image.cpp src/posix/cpu_level.cpp src/posix/cpu_pool.cpp)
if(WIN32)
  set(AOTFORGE_SYSTEM windows)
  set(AOTFORGE_CPU_SOURCES "")
  set(AOTFORGE_SYSTEM_SOURCES src/windows/text.cpp)
endif()

# Readers of untrusted bytes, apart from everything that needs HIP, so that fuzzers and tests link them alone.
add_library(aotforge_readers STATIC
  src/container.cpp src/dispatch.cpp src/log.cpp src/sha256.cpp src/zstd_frame.cpp
  src/${AOTFORGE_SYSTEM}/system.cpp ${AOTFORGE_SYSTEM_SOURCES})
target_include_directories(aotforge_readers PUBLIC src PRIVATE "${AOTFORGE_ZSTD_DIR}")
target_compile_options(aotforge_readers PRIVATE ${AOTFORGE_WARNINGS} -ffunction-sections -fdata-sections)
target_link_libraries(aotforge_readers PRIVATE aotforge_zstd)
set_target_properties(aotforge_readers PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
aotforge_compile_together(aotforge_readers)

# All that does not depend on the API level. The public types in it (TensorView, DType) are the same at every level.
add_library(aotforge_core OBJECT
  src/api_launch.cpp src/attention.cpp src/backward.cpp src/cuda_api.cpp src/device.cpp src/forward.cpp src/hip_api.cpp src/launch.cpp
  src/operators.cpp src/pack.cpp src/state.cpp src/varlen.cpp src/${AOTFORGE_SYSTEM}/process.cpp src/${AOTFORGE_SYSTEM}/cpu_api.cpp
  ${AOTFORGE_CPU_SOURCES})
set(AOTFORGE_API_SOURCES src/api_util.cpp src/api_v2.cpp src/api_v3.cpp)
set(AOTFORGE_LINKAGE SHARED)
if(AOTRITON_NO_SHARED)
  set(AOTFORGE_LINKAGE STATIC)
endif()

function(aotforge_compile_options target)
  target_compile_options(${target} PRIVATE ${AOTFORGE_WARNINGS} -ffunction-sections -fdata-sections
    "$<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>")
  set_target_properties(${target} PROPERTIES
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN OFF DEFINE_SYMBOL "" POSITION_INDEPENDENT_CODE ON)
endfunction()
aotforge_compile_options(aotforge_core)
aotforge_compile_together(aotforge_core)
target_include_directories(aotforge_core PRIVATE include "${CMAKE_CURRENT_BINARY_DIR}/include" src src/standin)

add_library(aotforge_api OBJECT ${AOTFORGE_API_SOURCES})
target_include_directories(aotforge_api PRIVATE include "${CMAKE_CURRENT_BINARY_DIR}/include" src src/standin)
aotforge_compile_options(aotforge_api)
aotforge_compile_together(aotforge_api)

# No sources of its own: Ninja links them behind the objects of other targets, make before them, and the bytes would differ.
add_library(aotriton_v2 ${AOTFORGE_LINKAGE} "$<TARGET_OBJECTS:aotforge_api>" "$<TARGET_OBJECTS:aotforge_core>")
set_target_properties(aotriton_v2 PROPERTIES LINKER_LANGUAGE CXX)
add_library(aotriton::aotriton_v2 ALIAS aotriton_v2)
target_include_directories(aotriton_v2
  PUBLIC "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>" "$<BUILD_INTERFACE:${CMAKE_CURRENT_BINARY_DIR}/include>"
         "$<INSTALL_INTERFACE:include>")
target_compile_features(aotriton_v2 INTERFACE cxx_std_17)
aotforge_compile_options(aotriton_v2)
# The readers and zstd as one object of a static library, whose C symbols stay inside: a program may link a zstd of its own. Names of C++
# functions stay as they are, for inline ones are shared with the program's other objects, and so is DW.ref.*, the compiler's pointer to the
# exception personality.
function(aotforge_add_readers target)
  set(inside "${CMAKE_CURRENT_BINARY_DIR}/aotforge_inside${CMAKE_CXX_OUTPUT_EXTENSION}")
  if(NOT TARGET aotforge_inside)
    add_custom_command(OUTPUT "${inside}"
      COMMAND "${CMAKE_LINKER}" -r -o "${inside}" "$<TARGET_OBJECTS:aotforge_readers>" "$<TARGET_OBJECTS:aotforge_zstd>"
      COMMAND "${CMAKE_OBJCOPY}" --wildcard "--keep-global-symbol=_Z*" "--keep-global-symbol=DW.ref.*" "${inside}"
      DEPENDS "$<TARGET_OBJECTS:aotforge_readers>" "$<TARGET_OBJECTS:aotforge_zstd>"
      COMMENT "Linking readers and zstd into one object" VERBATIM COMMAND_EXPAND_LISTS)
    add_custom_target(aotforge_inside DEPENDS "${inside}")
    add_dependencies(aotforge_inside aotforge_readers aotforge_zstd)
  endif()
  target_sources(${target} PRIVATE "${inside}")
  set_source_files_properties("${inside}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  add_dependencies(${target} aotforge_inside)
endfunction()

if(AOTRITON_NO_SHARED)
  include(cmake/static.cmake)
else()
  target_compile_definitions(aotforge_core PRIVATE AOTFORGE_STATIC_LIBSTDCXX)
  target_link_libraries(aotriton_v2 PRIVATE aotforge_readers ${CMAKE_DL_LIBS})
  include(cmake/${AOTFORGE_SYSTEM}.cmake)
endif()

# For tests: the library at every other level, in levels/<level>, from the same core.
function(aotforge_other_levels)
  if(AOTRITON_NO_SHARED OR WIN32)
    return()
  endif()
  foreach(level IN LISTS AOTFORGE_API_LEVELS)
    if(level STREQUAL AOTFORGE_API_LEVEL)
      continue()
    endif()
    aotforge_level_version(${level} version)
    string(REPLACE "." ";" numbers "${version}")
    list(GET numbers 0 AOTRITON_VERSION_MAJOR)
    list(GET numbers 1 AOTRITON_VERSION_MINOR)
    list(GET numbers 2 AOTRITON_VERSION_PATCH)
    set(folder "${CMAKE_CURRENT_BINARY_DIR}/levels/${level}")
    configure_file(include/aotriton/config.h.in "${folder}/include/aotriton/config.h" @ONLY)
    set(target aotriton_v2_${level})
    add_library(${target} SHARED ${AOTFORGE_API_SOURCES} "$<TARGET_OBJECTS:aotforge_core>")
    target_include_directories(${target} PUBLIC "${folder}/include" include PRIVATE src src/standin)
    aotforge_compile_options(${target})
    aotforge_compile_together(${target})
    target_link_libraries(${target} PRIVATE aotforge_readers ${CMAKE_DL_LIBS})
    aotforge_link(${target} ${version})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME aotriton_v2 LIBRARY_OUTPUT_DIRECTORY "${folder}")
  endforeach()
endfunction()
