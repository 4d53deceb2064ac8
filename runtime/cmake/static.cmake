# libaotriton_v2.a: all that the shared library is made of, in one archive. libstdc++ and libgcc are the program's own.

# The readers and zstd as one object, whose C symbols stay inside: a program may link a zstd of its own. Names of C++ functions stay as they are, for
# inline ones are shared with the program's other objects, and so is DW.ref.*, the compiler's pointer to the exception personality.
set(inside "${CMAKE_CURRENT_BINARY_DIR}/aotforge_inside${CMAKE_CXX_OUTPUT_EXTENSION}")
add_custom_command(OUTPUT "${inside}"
  COMMAND "${CMAKE_LINKER}" -r -o "${inside}" "$<TARGET_OBJECTS:aotforge_readers>" "$<TARGET_OBJECTS:aotforge_zstd>"
  COMMAND "${CMAKE_OBJCOPY}" --wildcard "--keep-global-symbol=_Z*" "--keep-global-symbol=DW.ref.*" "${inside}"
  DEPENDS "$<TARGET_OBJECTS:aotforge_readers>" "$<TARGET_OBJECTS:aotforge_zstd>"
  COMMENT "Linking readers and zstd into one object" VERBATIM COMMAND_EXPAND_LISTS)
target_sources(aotriton_v2 PRIVATE "${inside}")
set_source_files_properties("${inside}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
add_dependencies(aotriton_v2 aotforge_readers aotforge_zstd)
set_target_properties(aotriton_v2 PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(aotriton_v2 INTERFACE ${CMAKE_DL_LIBS})
target_link_options(aotriton_v2 INTERFACE -pthread)
