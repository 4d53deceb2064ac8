# API levels: manifests/release.yaml has the same ones, and compat/api_levels.yaml their interfaces.
set(AOTFORGE_API_LEVELS 0.11.2b 0.12.1b 0.13b 0.14.2b)

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
