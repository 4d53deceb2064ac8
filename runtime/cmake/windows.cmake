# How the DLL is linked (mingw-w64). Its exports are src/windows/exports-<level>.def: the interface's symbols as mingw mangles them, and the MSVC
# names of the entry points that programs of either compiler can call. Everything static: KERNEL32 and msvcrt are all it imports.
# Without --disable-auto-image-base, ld derives the preferred address from the path of its output: other bytes in every build folder.

set(AOTFORGE_EXPORTS "${CMAKE_CURRENT_SOURCE_DIR}/src/windows/exports-${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}.def")
target_sources(aotforge_api PRIVATE src/windows/msvc.cpp)
target_link_options(aotriton_v2 PRIVATE
  -static LINKER:--no-insert-timestamp LINKER:--disable-auto-image-base LINKER:--gc-sections LINKER:--nxcompat LINKER:--dynamicbase LINKER:--high-entropy-va
  "${AOTFORGE_EXPORTS}")
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_link_options(aotriton_v2 PRIVATE LINKER:--strip-all)
endif()
# aotriton_v2.dll and libaotriton_v2.dll.a
set_target_properties(aotriton_v2 PROPERTIES PREFIX "" LINK_DEPENDS "${AOTFORGE_EXPORTS}")

# aotriton_v2.lib, the import library that Microsoft's linker and lld-link read: of the exported names alone
file(STRINGS "${AOTFORGE_EXPORTS}" lines REGEX "^[^;]")
list(TRANSFORM lines REPLACE " = .*" "")
list(JOIN lines "\n" lines)
file(GENERATE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/names.def" CONTENT "${lines}\n")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${AOTFORGE_EXPORTS}")
find_program(AOTFORGE_LLVM_DLLTOOL NAMES llvm-dlltool-19 llvm-dlltool llvm-dlltool-22 llvm-dlltool-18 llvm-dlltool-16 llvm-dlltool-14
  REQUIRED DOC "writes import libraries for MSVC-targeting linkers")
add_custom_command(OUTPUT aotriton_v2.lib
  COMMAND "${AOTFORGE_LLVM_DLLTOOL}" -m i386:x86-64 -d "${CMAKE_CURRENT_BINARY_DIR}/names.def" -l aotriton_v2.lib
  DEPENDS "${CMAKE_CURRENT_BINARY_DIR}/names.def" VERBATIM)
add_custom_target(aotriton_v2_lib ALL DEPENDS aotriton_v2.lib)

# bin/dropin.exe, which puts lib/ into an installed PyTorch
add_executable(dropin src/windows/dropin.c)
target_compile_definitions(dropin PRIVATE UNICODE AOTFORGE_MAJOR=${PROJECT_VERSION_MAJOR} AOTFORGE_MINOR=${PROJECT_VERSION_MINOR})
target_compile_options(dropin PRIVATE -municode ${AOTFORGE_WARNINGS})
target_link_options(dropin PRIVATE -municode -static -s
  LINKER:--no-insert-timestamp LINKER:--nxcompat LINKER:--dynamicbase LINKER:--high-entropy-va)
install(TARGETS dropin RUNTIME DESTINATION bin COMPONENT runtime)
