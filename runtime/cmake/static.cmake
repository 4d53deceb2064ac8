# libaotriton_v2.a: all that the shared library is made of, in one archive. libstdc++ and libgcc are the program's own.

aotforge_add_readers(aotriton_v2)
set_target_properties(aotriton_v2 PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(aotriton_v2 INTERFACE ${CMAKE_DL_LIBS})
target_link_options(aotriton_v2 INTERFACE -pthread)
