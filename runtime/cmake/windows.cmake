# How the DLL is linked (mingw-w64). Its exports are src/windows/exports.def: the interface's symbols as mingw mangles them, and the MSVC
# names of the entry points that programs of either compiler can call. Everything static: KERNEL32 and msvcrt are all it imports.

set(AOTFORGE_EXPORTS "${CMAKE_CURRENT_SOURCE_DIR}/src/windows/exports.def")
target_sources(aotriton_v2 PRIVATE src/windows/msvc.cpp)
target_link_options(aotriton_v2 PRIVATE
  -static LINKER:--no-insert-timestamp LINKER:--gc-sections LINKER:--nxcompat LINKER:--dynamicbase LINKER:--high-entropy-va
  "${AOTFORGE_EXPORTS}")
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_link_options(aotriton_v2 PRIVATE LINKER:--strip-all)
endif()
# aotriton_v2.dll and libaotriton_v2.dll.a
set_target_properties(aotriton_v2 PROPERTIES PREFIX "" LINK_DEPENDS "${AOTFORGE_EXPORTS}")

# aotriton_v2.lib, the import library that Microsoft's linker and lld-link read
function(aotforge_import_library target definition out)
  add_custom_command(OUTPUT "${out}"
    COMMAND "${AOTFORGE_LLVM_LIB}" /nologo /machine:x64 "/def:${definition}" "/out:${out}"
    DEPENDS "${definition}" VERBATIM)
  add_custom_target(${target}_import_library ALL DEPENDS "${out}")
endfunction()

# LLVM 14's (Debian 12's without a number) does not know /def
find_program(AOTFORGE_LLVM_LIB NAMES llvm-lib-19 llvm-lib-22 llvm-lib-21 llvm-lib-20 llvm-lib-18 llvm-lib-17 llvm-lib-16 llvm-lib
  DOC "makes import libraries for MSVC-targeting linkers")
if(NOT AOTFORGE_LLVM_LIB)
  message(FATAL_ERROR "llvm-lib is needed for aotriton_v2.lib (Debian: apt-get install llvm-19)")
endif()
aotforge_import_library(aotriton_v2 "${AOTFORGE_EXPORTS}" "${CMAKE_CURRENT_BINARY_DIR}/aotriton_v2.lib")
