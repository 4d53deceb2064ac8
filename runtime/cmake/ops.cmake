# The operator library: libaotforge_ops.so and libaotforge_ops.a with the functions that the kernel families declare, and the CMake package
# aotforge_ops. Each contains the launcher and the readers of packs; neither needs the other, nor libaotriton_v2.
if(NOT AOTFORGE_OPS_DIR OR WIN32 OR AOTRITON_NO_SHARED)
  return()
endif()
if(NOT EXISTS "${AOTFORGE_OPS_DIR}/functions.cpp")
  message(FATAL_ERROR "AOTFORGE_OPS_DIR: ${AOTFORGE_OPS_DIR} has no functions.cpp; aotforge/library/operator_functions.py writes it")
endif()

add_library(aotforge_functions OBJECT
  "${AOTFORGE_OPS_DIR}/functions.cpp" src/ops/call.cpp src/ops/error.cpp src/ops/layout.cpp src/ops/problem.cpp src/ops/tvm_ffi.cpp)
target_include_directories(aotforge_functions PRIVATE "${AOTFORGE_OPS_DIR}/include" include src src/standin)
aotforge_compile_options(aotforge_functions)
aotforge_compile_together(aotforge_functions)

# The launcher without AOTriton's interface: `--gc-sections` drops attention, which nothing here calls.
add_library(aotforge_ops SHARED "$<TARGET_OBJECTS:aotforge_functions>" "$<TARGET_OBJECTS:aotforge_core>")
aotforge_compile_options(aotforge_ops)
target_link_libraries(aotforge_ops PRIVATE aotforge_readers ${CMAKE_DL_LIBS})
aotforge_link_options(aotforge_ops "${AOTFORGE_OPS_DIR}/exports.map")
set_target_properties(aotforge_ops PROPERTIES LINKER_LANGUAGE CXX EXPORT_NAME ops)

add_library(aotforge_ops_static STATIC "$<TARGET_OBJECTS:aotforge_functions>" "$<TARGET_OBJECTS:aotforge_core>")
aotforge_add_readers(aotforge_ops_static)
set_target_properties(aotforge_ops_static PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME aotforge_ops EXPORT_NAME ops_static)
target_link_libraries(aotforge_ops_static INTERFACE ${CMAKE_DL_LIBS} stdc++)
target_link_options(aotforge_ops_static INTERFACE -pthread)
foreach(target aotforge_ops aotforge_ops_static)
  target_include_directories(${target} INTERFACE "$<INSTALL_INTERFACE:include>")
endforeach()

install(TARGETS aotforge_ops aotforge_ops_static EXPORT aotforge_opsTargets
  LIBRARY DESTINATION lib COMPONENT runtime NAMELINK_COMPONENT development
  ARCHIVE DESTINATION lib COMPONENT development)
install(FILES include/aotforge/tensor.h "${AOTFORGE_OPS_DIR}/include/aotforge/ops.h" DESTINATION include/aotforge COMPONENT development)
install(EXPORT aotforge_opsTargets NAMESPACE aotforge:: FILE aotforge_opsTargets.cmake DESTINATION lib/cmake/aotforge_ops COMPONENT development)
configure_package_config_file(cmake/aotforge_opsConfig.cmake.in aotforge_opsConfig.cmake INSTALL_DESTINATION lib/cmake/aotforge_ops)
write_basic_package_version_file(aotforge_opsConfigVersion.cmake VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/aotforge_opsConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/aotforge_opsConfigVersion.cmake"
  DESTINATION lib/cmake/aotforge_ops COMPONENT development)
