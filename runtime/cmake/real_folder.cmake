# Sets `out` to the folder `path` as the system finds it; empty if it is not there. CMake takes `..` behind a link for the folder above the link,
# where another user could have made one.
function(aotforge_real_folder out path)
  set(found "${path}")
  if(CMAKE_HOST_UNIX)
    execute_process(COMMAND sh -c "CDPATH= cd -P -- \"$1\" && pwd -P" sh "${path}" OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()
