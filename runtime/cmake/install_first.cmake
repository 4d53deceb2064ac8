# Of cmake --install, before all else: names of folders that CMake would take for others.
if(CMAKE_HOST_WIN32)
  return()
endif()

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
# CMake's own install scripts remove files that such a path matches
get_filename_component(given "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}" ABSOLUTE)
if(given MATCHES "[][*?;]")
  message(FATAL_ERROR "${given} has one of [ ] * ? ; in its path, which CMake interprets.\nNext step: name another folder")
endif()
