# Of cmake --install: every pack in AOTFORGE_IMAGES to lib/aotriton.images. A pack that is there already is left alone when it is the same, else it is
# replaced in two renames: running programs keep the files that they have open, and no program ever reads a half-written one.

set(images "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/aotriton.images")

execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)

function(same_files one other result)
  set(${result} FALSE PARENT_SCOPE)
  # others may have been able to write it, a link leads elsewhere, and the writer of a pipe would be waited for
  execute_process(COMMAND find "${other}" "(" ! -type d ! -type f -o -type d ! -perm 755 -o -type f ! -perm 644 -o ! -user "${user}" ")"
    RESULT_VARIABLE failed OUTPUT_VARIABLE odd ERROR_QUIET)
  if(failed OR odd)
    return()
  endif()
  file(GLOB files RELATIVE "${one}" "${one}/*")
  file(GLOB others RELATIVE "${other}" "${other}/*")
  if(NOT "${files}" STREQUAL "${others}")
    return()
  endif()
  foreach(file IN LISTS files)
    file(SHA256 "${one}/${file}" digest)
    file(SHA256 "${other}/${file}" other_digest)
    if(NOT digest STREQUAL other_digest)
      return()
    endif()
  endforeach()
  set(${result} TRUE PARENT_SCOPE)
endfunction()

# CMake has made it by now, or found it there
execute_process(COMMAND find "${images}" -maxdepth 0 -type d -user "${user}" -perm /022 -exec chmod go-w "{}" "+" ERROR_QUIET)
execute_process(COMMAND find "${images}" -maxdepth 0 "(" ! -uid 0 ! -user "${user}" -o -type d -perm /022 ")" RESULT_VARIABLE failed OUTPUT_VARIABLE of_others
  ERROR_QUIET)
if(failed OR of_others)
  message(FATAL_ERROR "${images} belongs to another user, or others can write it: they could exchange images in it.\nNext step: remove it, or install into another prefix")
endif()

file(GLOB packs RELATIVE "${AOTFORGE_IMAGES}" "${AOTFORGE_IMAGES}/*")
if(NOT packs)
  message(FATAL_ERROR "${AOTFORGE_IMAGES} holds no image packs.\nNext step: build before installing; if the folder was removed, remove images.stamp beside it, too")
endif()
foreach(pack IN LISTS packs)
  set(target "${images}/${pack}")
  set(new "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/.${pack}.new")
  set(old "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/.${pack}.old")
  same_files("${AOTFORGE_IMAGES}/${pack}" "${target}" same)
  if(same)
    message(STATUS "Up-to-date: ${target}")
  else()
    message(STATUS "Installing: ${target}")
    file(REMOVE_RECURSE "${new}" "${old}")
    file(COPY "${AOTFORGE_IMAGES}/${pack}/" DESTINATION "${new}"
      FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ
      DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
    if(EXISTS "${target}" OR IS_SYMLINK "${target}")
      file(RENAME "${target}" "${old}")
    endif()
    file(RENAME "${new}" "${target}")
    file(REMOVE_RECURSE "${old}")
  endif()
  file(GLOB files RELATIVE "${target}" "${target}/*")
  foreach(file IN LISTS files)
    list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${CMAKE_INSTALL_PREFIX}/lib/aotriton.images/${pack}/${file}")
  endforeach()
endforeach()
