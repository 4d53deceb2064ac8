# API levels: runtime/api_levels.txt has them, the default first; compat/api_levels.yaml has their interfaces.
set(levels_file "${CMAKE_CURRENT_LIST_DIR}/../api_levels.txt")
file(STRINGS "${levels_file}" AOTFORGE_API_LEVELS ENCODING UTF-8)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${levels_file}")
list(GET AOTFORGE_API_LEVELS 0 AOTFORGE_DEFAULT_LEVEL)

# `result` becomes three numbers, 0.13.0 of 0.13b.
function(aotforge_level_version level result)
  if(NOT level IN_LIST AOTFORGE_API_LEVELS)
    list(JOIN AOTFORGE_API_LEVELS ", " known)
    message(FATAL_ERROR "AOTFORGE_API_LEVEL=${level} is not an API level of this library: ${known}")
  endif()
  string(REGEX REPLACE "b$" "" version "${level}")
  if(NOT version MATCHES "\\..*\\.")
    string(APPEND version ".0")
  endif()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()
