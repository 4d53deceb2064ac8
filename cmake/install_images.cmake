# Of cmake --install: every pack in AOTFORGE_IMAGES to lib/aotriton.images. A pack that is there already is left alone when it is the same, else it is
# replaced in two renames: running programs keep the files that they have open, and no program ever reads a half-written one.
# install_first.cmake has checked all folders: no other user can write them.

# file(LOCK) takes `..` behind a link for the folder above the link, which nothing has checked. The dot keeps a line end of a folder's name.
execute_process(COMMAND sh -c "CDPATH= cd -P -- \"$1\" && pwd -P && echo ." sh "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib" RESULT_VARIABLE failed
  OUTPUT_VARIABLE lib)
string(REGEX REPLACE "\n[.]\n$" "" lib "${lib}")
if(failed)
  message(FATAL_ERROR "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib cannot be entered")
endif()
set(images "${lib}/aotriton.images")
set(staged "${lib}/.aotriton.images.new")
set(lock "${lib}/.aotriton.images.lock")

execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)

# Names in a folder. Its own path is not a pattern.
function(files_of folder result)
  string(REGEX REPLACE "([[*?])" "[\\1]" pattern "${folder}")
  file(GLOB found RELATIVE "${folder}" "${pattern}/*")
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

function(same_files one other result)
  set(${result} FALSE PARENT_SCOPE)
  # others may have been able to write it, a link leads elsewhere, and the writer of a pipe would be waited for
  execute_process(COMMAND find "${other}" "(" ! -type d ! -type f -o -type d ! -perm 755 -o -type f ! -perm 644 -o ! -user "${user}" ")"
    RESULT_VARIABLE failed OUTPUT_VARIABLE odd ERROR_QUIET)
  if(failed OR odd)
    return()
  endif()
  files_of("${one}" files)
  files_of("${other}" others)
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

files_of("${AOTFORGE_IMAGES}" packs)
if(NOT packs)
  message(FATAL_ERROR "${AOTFORGE_IMAGES} holds no image packs.\nNext step: build before installing; if the folder was removed, remove images.stamp beside it, too")
endif()

# One installation at a time, also from several build folders. The lock is removed at the end, because packagers would ship it: who waited for it may
# then have that of a removed file, while another has that of the next one. With another mode than 600 other users could hold it.
foreach(attempt RANGE 99)
  execute_process(COMMAND sh -c "umask 077 && : >>\"$1\"" sh "${lock}")
  file(LOCK "${lock}" GUARD PROCESS RESULT_VARIABLE failed TIMEOUT 600)
  if(failed MATCHES "Timeout" OR attempt EQUAL 99)
    message(FATAL_ERROR "${lock} is held by another installation: ${failed}.\nNext step: install again when it has ended")
  elseif(failed)  # NFS and Lustre may have no locks
    break()
  endif()
  execute_process(COMMAND sh -c "[ ! -d /proc/$PPID/fd ] || [ -n \"$(find -L /proc/$PPID/fd -maxdepth 1 -samefile \"$1\")\" ]" sh "${lock}"
    RESULT_VARIABLE removed ERROR_QUIET)
  if(NOT removed)
    break()
  endif()
  file(LOCK "${lock}" RELEASE)
endforeach()

aotforge_check_folders(lib/.aotriton.images.new)
file(REMOVE_RECURSE "${staged}")  # of an installation that was ended
file(MAKE_DIRECTORY "${staged}/old")
foreach(pack IN LISTS packs)
  set(target "${images}/${pack}")
  set(new "${staged}/new/${pack}")
  set(old "${staged}/old/${pack}")
  same_files("${AOTFORGE_IMAGES}/${pack}" "${target}" same)
  if(same)
    message(STATUS "Up-to-date: ${target}")
  else()
    message(STATUS "Installing: ${target}")
    file(COPY "${AOTFORGE_IMAGES}/${pack}/" DESTINATION "${new}"
      FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ
      DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
    if(EXISTS "${target}" OR IS_SYMLINK "${target}")
      file(RENAME "${target}" "${old}")
    endif()
    file(RENAME "${new}" "${target}")
  endif()
  files_of("${target}" files)
  foreach(file IN LISTS files)
    list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${CMAKE_INSTALL_PREFIX}/lib/aotriton.images/${pack}/${file}")
  endforeach()
endforeach()
file(REMOVE_RECURSE "${staged}" "${lock}")
