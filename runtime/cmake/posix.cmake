# How the shared libraries are linked on Linux.

# libgcc stays shared: with a copy of our own, an exception that a caller's LazyTensor callback throws would abort the process on its
# way through our frames (the two unwinders do not share their tables). Every glibc system has libgcc_s.so.1.
# `exports`: the version script.
function(aotforge_link_options target exports)
  target_link_options(${target} PRIVATE
    -static-libstdc++ -shared-libgcc -pthread
    LINKER:--exclude-libs,ALL LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack LINKER:--gc-sections LINKER:-Bsymbolic
    LINKER:--build-id=sha1 "LINKER:--version-script=${exports}")
  if(NOT AOTFORGE_SANITIZE)
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
  set_target_properties(${target} PROPERTIES LINK_DEPENDS "${exports}")
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT AOTFORGE_SANITIZE)
    target_link_options(${target} PRIVATE LINKER:--strip-all)
  endif()
endfunction()

# Programs need libaotriton_v2.so.X.Y.Z by that name: a version, and the SONAME is the complete of it.
function(aotforge_link target version)
  aotforge_link_options(${target} "${CMAKE_CURRENT_SOURCE_DIR}/src/exports.map")
  set_target_properties(${target} PROPERTIES VERSION ${version} SOVERSION ${version})
endfunction()
aotforge_link(aotriton_v2 ${PROJECT_VERSION})
