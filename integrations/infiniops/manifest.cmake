# The operator library as a provider of InfiniOps: include this file in its src/CMakeLists.txt after `add_library(infiniops ...)`.
# CMAKE_PREFIX_PATH (or aotforge_ops_DIR) names the prefix of the library. No CUDA or ROCm, and no GPU.
find_package(aotforge_ops CONFIG REQUIRED)

set(INFINI_OPS_AOTFORGE_SOURCES "")
set(INFINI_OPS_AOTFORGE_INCLUDE_DIRS "${CMAKE_CURRENT_LIST_DIR}/src")
set(INFINI_OPS_AOTFORGE_LIBRARIES aotforge::ops)

target_include_directories(infiniops PRIVATE ${INFINI_OPS_AOTFORGE_INCLUDE_DIRS})
target_link_libraries(infiniops PUBLIC ${INFINI_OPS_AOTFORGE_LIBRARIES})
