# Kernel images: none, ready ones, or built by the pipeline. Either way the packs come to lie in `images` in the build folder, and one script installs
# them pack by pack. The settings of this step are a file, so that a changed option runs it again under every generator.

if(AOTRITON_NOIMAGE_MODE)
  if(AOTRITON_IMAGES)
    message(FATAL_ERROR "AOTRITON_NOIMAGE_MODE=ON and AOTRITON_IMAGES contradict each other: leave one of them out")
  endif()
  message(STATUS "aotforge: the library without images")
  return()
endif()

# gfx90a:sramecc+ is gfx90a; lists come with semicolons, commas or spaces
string(REGEX REPLACE "[;, ]+" ";" wanted "${AOTRITON_TARGET_ARCH}")
list(TRANSFORM wanted REPLACE ":.*" "")
list(REMOVE_DUPLICATES wanted)
list(REMOVE_ITEM wanted "")
set(folder "${CMAKE_CURRENT_BINARY_DIR}/images")
set(settings "${CMAKE_CURRENT_BINARY_DIR}/images.settings.cmake")

if(AOTRITON_IMAGES)
  set(ready "")
  set(inputs "")
  foreach(path IN LISTS AOTRITON_IMAGES)
    get_filename_component(absolute "${path}" ABSOLUTE BASE_DIR "${CMAKE_BINARY_DIR}")
    if(NOT EXISTS "${absolute}")
      message(FATAL_ERROR "AOTRITON_IMAGES: ${absolute} is not there. It names image tarballs "
        "(aotriton-<version>-images-<pack>.tar.gz), pack folders, folders of packs or release folders")
    endif()
    list(APPEND ready "${absolute}")
    if(IS_DIRECTORY "${absolute}")
      file(GLOB_RECURSE found CONFIGURE_DEPENDS "${absolute}/*.aoti" "${absolute}/*.aotd" "${absolute}/__signature__"
        "${absolute}/*-images-*.tar.*" "${absolute}/SHA256SUMS")
      list(APPEND inputs ${found})
    else()
      list(APPEND inputs "${absolute}")
      get_filename_component(beside "${absolute}" DIRECTORY)
      if(EXISTS "${beside}/SHA256SUMS")
        list(APPEND inputs "${beside}/SHA256SUMS")
      endif()
    endif()
  endforeach()
  message(STATUS "aotforge: ready images from ${AOTRITON_IMAGES}")
  set(script "${CMAKE_CURRENT_SOURCE_DIR}/cmake/take_images.cmake")
else()
  if(NOT wanted)
    message(FATAL_ERROR "no images can be built: AOTRITON_TARGET_ARCH does not name an arch.\n"
      "Next step: -DAOTRITON_TARGET_ARCH=gfx908 (several: \"gfx908;gfx90a\"), or -DAOTRITON_NOIMAGE_MODE=ON for the library alone, or "
      "-DAOTRITON_IMAGES=<ready images>")
  endif()
  file(STRINGS manifests/architectures.yaml known REGEX "^  gfx[0-9a-f]+:$" ENCODING UTF-8)
  list(TRANSFORM known REPLACE "^  (gfx[0-9a-f]+):" "\\1")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS manifests/architectures.yaml)
  # PyTorch passes every arch that it is built for, also those without kernels
  set(strangers ${wanted})
  list(REMOVE_ITEM strangers ${known})
  list(JOIN known ", " known_text)
  if(strangers)
    list(REMOVE_ITEM wanted ${strangers})
    list(JOIN strangers ", " text)
    if(NOT wanted)
      message(FATAL_ERROR "AOTRITON_TARGET_ARCH: there are no kernels for ${text}. Known archs: ${known_text}")
    endif()
    message(WARNING "AOTRITON_TARGET_ARCH: there are no kernels for ${text}; images are built for the others. Known archs: ${known_text}")
  endif()
  list(JOIN wanted ", " text)
  message(STATUS "aotforge: images for ${text}")
  file(GLOB_RECURSE inputs RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS
    kernels/*.py manifests/*.yaml aotforge/*.py aotforge/*.c aotforge/*.h aotforge/*.cpp requirements/build.txt runtime/src/operators.def tasks.py)
  list(APPEND inputs dev)
  set(script "${CMAKE_CURRENT_SOURCE_DIR}/cmake/build_images.cmake")
endif()

set(text "")
set(SETTING_SOURCE "${CMAKE_CURRENT_SOURCE_DIR}")
set(SETTING_HOME "${AOTFORGE_HOME}")
if(NOT AOTFORGE_HOME)
  set(SETTING_HOME "${CMAKE_CURRENT_BINARY_DIR}/aotforge")
endif()
set(SETTING_KEPT "${AOTFORGE_CACHE}")
set(SETTING_PYTHON "${AOTFORGE_PYTHON}")
set(SETTING_ARCHS "${wanted}")
set(SETTING_READY "${ready}")
set(SETTING_OUTPUT "${folder}")
set(SETTING_PROFILE "${AOTFORGE_PROFILE}")
set(SETTING_VERIFY "${AOTFORGE_VERIFY}")
set(SETTING_JOBS "${AOTFORGE_JOBS}")
set(SETTING_MINUTES "${AOTRITON_GPU_BUILD_TIMEOUT}")
foreach(name SOURCE HOME KEPT PYTHON ARCHS READY OUTPUT PROFILE VERIFY JOBS MINUTES)
  string(APPEND text "set(${name} [==[${SETTING_${name}}]==])\n")
endforeach()
file(GENERATE OUTPUT "${settings}" CONTENT "${text}")  # left alone when it has this text already

set(stamp "${CMAKE_CURRENT_BINARY_DIR}/images.stamp")
add_custom_command(OUTPUT "${stamp}"
  COMMAND "${CMAKE_COMMAND}" "-DSETTINGS=${settings}" -P "${script}"
  COMMAND "${CMAKE_COMMAND}" -E touch "${stamp}"
  DEPENDS ${inputs} "${settings}" "${script}"
  COMMENT "Kernel images" USES_TERMINAL VERBATIM)
add_custom_target(aotforge_images ALL DEPENDS "${stamp}")

install(CODE "set(AOTFORGE_IMAGES [==[${folder}]==])" COMPONENT images)
install(SCRIPT cmake/install_images.cmake COMPONENT images)
