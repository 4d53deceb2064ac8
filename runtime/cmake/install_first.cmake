# Of cmake --install, before all else. On Windows the prefix's access rights decide.
if(CMAKE_HOST_WIN32)
  return()
endif()

# CMake makes files with the modes of the umask and sets their modes afterwards: others could open a file meanwhile, and write it later; folders that lead
# to others keep their modes. So AOTFORGE_SCRIPT is executed with the umask 022, and AOTFORGE_INSTALLED is set.
execute_process(COMMAND sh -c umask RESULT_VARIABLE failed OUTPUT_VARIABLE mask OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(AOTFORGE_INSTALLED FALSE)
if(NOT failed AND NOT mask MATCHES "^0*22$")
  execute_process(COMMAND sh -c "umask 022 && exec \"$@\"" sh
    "${CMAKE_COMMAND}" "-DCMAKE_INSTALL_PREFIX=${CMAKE_INSTALL_PREFIX}" "-DCMAKE_INSTALL_COMPONENT=${CMAKE_INSTALL_COMPONENT}"
    "-DCMAKE_INSTALL_CONFIG_NAME=${CMAKE_INSTALL_CONFIG_NAME}" "-DCMAKE_INSTALL_DO_STRIP=${CMAKE_INSTALL_DO_STRIP}"
    "-DCMAKE_INSTALL_LOCAL_ONLY=${CMAKE_INSTALL_LOCAL_ONLY}" -P "${AOTFORGE_SCRIPT}" RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "the installation ended with an error, above")
  endif()
  set(AOTFORGE_INSTALLED TRUE)
endif()

set(AOTFORGE_CHECK_FOLDERS "${CMAKE_CURRENT_LIST_DIR}/check_folders.sh")

# Stops when another user could exchange the prefix or folders in it.
function(aotforge_check_folders)
  get_filename_component(build "${AOTFORGE_SCRIPT}" DIRECTORY)
  set(prefix "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
  if(prefix STREQUAL "")
    set(prefix "/")
  endif()
  execute_process(COMMAND sh "${AOTFORGE_CHECK_FOLDERS}" "${build}" "${prefix}" ${ARGV} RESULT_VARIABLE failed OUTPUT_VARIABLE text
    ERROR_VARIABLE errors OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    message(FATAL_ERROR "nothing was installed: ${text}${errors}")
  endif()
endfunction()

# file(INSTALL) replaces a ~ at the start, and a backslash
foreach(given "$ENV{DESTDIR}" "${CMAKE_INSTALL_PREFIX}")
  if("${given}" MATCHES "^~|\\\\")
    message(FATAL_ERROR "\"${given}\", of DESTDIR or the prefix, would be another folder for CMake.\n"
      "Next step: name a folder without ~ at the start and without backslashes")
  endif()
endforeach()

if(NOT "$ENV{DESTDIR}" STREQUAL "" AND CMAKE_INSTALL_PREFIX MATCHES "^[^/]")
  message(FATAL_ERROR "the prefix \"${CMAKE_INSTALL_PREFIX}\" is relative: in DESTDIR, CMake would add the current folder.\n"
    "Next step: name it from the root folder on")
endif()
# its own scripts remove files that such a path matches
get_filename_component(given "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}" ABSOLUTE)
if(given MATCHES "[][*?;]")
  message(FATAL_ERROR "${given} has one of [ ] * ? ; in its path, which CMake interprets.\nNext step: name another folder")
endif()

if(NOT AOTFORGE_INSTALLED AND NOT AOTFORGE_CHECKED)  # every component of every project begins with this script
  aotforge_check_folders(lib/aotriton.images lib/cmake/aotriton lib/cmake/aotforge_ops include/aotriton include/aotforge share/licenses/aotriton)
  set(AOTFORGE_CHECKED TRUE)
endif()
