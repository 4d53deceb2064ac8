# The C sources of zstd, which runtime/ compiles: AOTFORGE_ZSTD_DIR, else out of the archive that manifests/runtime.yaml pins. The archive is
# AOTFORGE_ZSTD_SOURCE, else one that is kept, else it is fetched: with CMake, else with pip, which knows mirrors.

file(STRINGS manifests/runtime.yaml pin_lines REGEX "^  (package|version|file|sha256):" ENCODING UTF-8)
foreach(line IN LISTS pin_lines)
  string(REGEX MATCH "^  ([a-z0-9]+): *([^ ]+)$" matched "${line}")
  set(zstd_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS manifests/runtime.yaml)

# Servers and indexes may send without end: 64 MiB for a file (128 in shells that count in KiB), 2 GiB of memory.
set(aotforge_limited sh -c "ulimit -f 131072 2>/dev/null || : && ulimit -v 2097152 2>/dev/null || : && exec \"$@\"" sh)  # a lower limit is kept

# Whether `path` has the pinned bytes. These are then in `copy`, in a folder that only this user can enter: another user, whose folder `path` may be in,
# can exchange it at any time for a pipe, for whose writer CMake would wait, or for a file or device without end.
function(aotforge_copy_pinned path copy result)
  set(${result} FALSE PARENT_SCOPE)
  execute_process(COMMAND find -H "${path}" -maxdepth 0 -type f -size -131072 OUTPUT_VARIABLE found ERROR_QUIET)
  if(found)
    file(WRITE "${copy}" "")
    # GNU dd does not wait for the writer of a pipe; others do not know nonblock
    execute_process(COMMAND ${aotforge_limited} sh -c "dd if=\"$1\" of=\"$2\" bs=65536 count=1024 iflag=fullblock,nonblock || exec head -c 67108864 <\"$1\" >\"$2\""
      sh "${path}" "${copy}" TIMEOUT 20 ERROR_QUIET)
    file(SHA256 "${copy}" digest)
    if(digest STREQUAL zstd_sha256)
      set(${result} TRUE PARENT_SCOPE)
    endif()
  endif()
endfunction()

function(aotforge_fetch_with_cmake archive trouble)
  set(url "${AOTFORGE_ZSTD_URL}")
  if(NOT url)
    string(SUBSTRING "${zstd_package}" 0 1 letter)
    set(url "https://files.pythonhosted.org/packages/source/${letter}/${zstd_package}/${zstd_file}")
  endif()
  message(STATUS "Downloading ${url}")
  file(REMOVE "${archive}")
  execute_process(COMMAND ${aotforge_limited} "${CMAKE_COMMAND}" "-DURL=${url}" "-DFILE=${archive}" -P cmake/download.cmake
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(text STREQUAL "")
    set(text "it sends more than 64 MiB, or the download was ended (${status})")
  endif()
  set(${trouble} "${url}: ${text}" PARENT_SCOPE)
endfunction()

# pip executes the build backend of a source distribution to read its metadata. Left to itself it takes the newest one of the index, which no hash
# pins; the pinned one is fetched first, as aotforge/library/sources.py does for `./dev`.
function(aotforge_fetch_with_pip folder)
  file(STRINGS aotforge/library/sources.py pins REGEX "^_BACKEND(_SHA256)? = " ENCODING UTF-8)
  string(REGEX MATCHALL "\"[^\"]+\"" pins "${pins}")
  list(TRANSFORM pins REPLACE "\"" "")
  list(GET pins 0 backend)
  list(GET pins 1 backend_sha256)
  set(pip -m pip download --quiet --disable-pip-version-check --retries 1 --no-deps --require-hashes)
  set(python "${AOTFORGE_PYTHON}")
  if(NOT python)
    find_program(AOTFORGE_SYSTEM_PYTHON NAMES python3 DOC "runs pip when CMake cannot download")
    mark_as_advanced(AOTFORGE_SYSTEM_PYTHON)
    set(python "${AOTFORGE_SYSTEM_PYTHON}")
  endif()
  if(NOT python OR folder MATCHES ":")  # PYTHONPATH would have parts of it
    return()
  endif()
  file(REMOVE_RECURSE "${folder}/backend")
  file(WRITE "${folder}/backend/requirements.txt" "${backend} --hash=sha256:${backend_sha256}\n")
  execute_process(COMMAND ${aotforge_limited} "${python}" ${pip} --only-binary :all: --dest . -r requirements.txt WORKING_DIRECTORY "${folder}/backend"
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET TIMEOUT 300)
  file(GLOB wheels "${folder}/backend/*.whl")
  list(LENGTH wheels count)
  if(failed OR NOT count EQUAL 1)
    return()
  endif()
  file(MAKE_DIRECTORY "${folder}/backend/modules")
  execute_process(COMMAND "${CMAKE_COMMAND}" -E tar xf "${wheels}" WORKING_DIRECTORY "${folder}/backend/modules" RESULT_VARIABLE failed)
  file(WRITE "${folder}/requirements.txt" "${zstd_package}==${zstd_version} --hash=sha256:${zstd_sha256}\n")
  if(NOT failed)
    execute_process(
      COMMAND ${aotforge_limited} "${CMAKE_COMMAND}" -E env "PYTHONPATH=${folder}/backend/modules" "${python}" ${pip} --no-binary "${zstd_package}" --no-build-isolation
              --dest . -r requirements.txt
      WORKING_DIRECTORY "${folder}" RESULT_VARIABLE ignored OUTPUT_QUIET ERROR_QUIET TIMEOUT 300)
  endif()
  file(REMOVE_RECURSE "${folder}/backend")
endfunction()

# Writes an archive with the pinned bytes to `copy`, or stops.
function(aotforge_take_zstd_archive copy)
  if(AOTFORGE_ZSTD_SOURCE)
    get_filename_component(named "${AOTFORGE_ZSTD_SOURCE}" ABSOLUTE BASE_DIR "${CMAKE_BINARY_DIR}")
    aotforge_copy_pinned("${named}" "${copy}" good)
    if(NOT good)
      message(FATAL_ERROR "AOTFORGE_ZSTD_SOURCE=${named} is not there, or not the pinned ${zstd_file} (SHA-256 ${zstd_sha256})")
    endif()
    return()
  endif()
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/zstd-source")
  set(trouble "AOTFORGE_ZSTD_URL not tried")
  foreach(attempt kept cmake pip)
    if(attempt STREQUAL "cmake")
      aotforge_fetch_with_cmake("${folder}/${zstd_file}" trouble)
    elseif(attempt STREQUAL "pip")
      file(REMOVE "${folder}/${zstd_file}")
      aotforge_fetch_with_pip("${folder}")
    endif()
    foreach(place "${folder}" "${AOTFORGE_CACHE}/sources/${zstd_sha256}" "${AOTFORGE_HOME}/cache/sources/${zstd_sha256}")
      aotforge_copy_pinned("${place}/${zstd_file}" "${copy}" good)
      if(good)
        return()
      endif()
    endforeach()
  endforeach()
  message(FATAL_ERROR "${zstd_file}, whose C sources the library needs, cannot be fetched (${trouble}; nor with pip), or it has "
    "other bytes than the pinned ones.\n"
    "Next step: get it on a machine with a network and give its path, -DAOTFORGE_ZSTD_SOURCE=/path/to/${zstd_file} (also an environment "
    "variable), or name a mirror, -DAOTFORGE_ZSTD_URL=https://...; its SHA-256 is ${zstd_sha256}")
endfunction()

string(FIND "${AOTFORGE_ZSTD_DIR}" "${CMAKE_CURRENT_BINARY_DIR}/zstd-" begins)
if(NOT AOTFORGE_ZSTD_DIR OR begins EQUAL 0)
  string(SUBSTRING "${zstd_sha256}" 0 16 short)
  set(unpacked "${CMAKE_CURRENT_BINARY_DIR}/zstd-${short}")
  string(REGEX REPLACE "\\.tar\\.gz$" "" top "${zstd_file}")
  if(NOT EXISTS "${unpacked}/${top}/zstd/zstd.c")
    file(REMOVE_RECURSE "${unpacked}.new")
    execute_process(COMMAND mkdir -m 700 "${unpacked}.new")
    # by a name that is ASCII: in the C locale CMake extracts nothing from others, without an error
    aotforge_take_zstd_archive("${unpacked}.new/archive")
    execute_process(COMMAND "${CMAKE_COMMAND}" -E tar xf archive "${top}/zstd" WORKING_DIRECTORY "${unpacked}.new" RESULT_VARIABLE failed)
    if(failed OR NOT EXISTS "${unpacked}.new/${top}/zstd/zstd.c")
      message(FATAL_ERROR "${zstd_file} cannot be unpacked to ${unpacked}.new: ${failed}")
    endif()
    file(REMOVE "${unpacked}.new/archive")
    execute_process(COMMAND chmod 755 "${unpacked}.new")
    file(REMOVE_RECURSE "${unpacked}")
    file(RENAME "${unpacked}.new" "${unpacked}")
  endif()
  set(AOTFORGE_ZSTD_DIR "${unpacked}/${top}/zstd" CACHE PATH "folder with zstd.c, zstd.h and zstd_errors.h" FORCE)
endif()
