# cmake -DSETTINGS=FILE -P build_images.cmake: image packs by the pipeline, in OUTPUT.
cmake_minimum_required(VERSION 3.18)
include("${SETTINGS}")

set(ENV{AOTFORGE_HOME} "${HOME}")
if(KEPT)
  set(ENV{AOTFORGE_CACHE} "${KEPT}")
endif()
if(PYTHON)
  set(ENV{AOTFORGE_PYTHON} "${PYTHON}")
endif()
list(JOIN ARCHS "," archs)
set(command "${SOURCE}/dev" compile --arch "${archs}" --output "${OUTPUT}" --minutes "${MINUTES}")
if(JOBS)
  list(APPEND command --jobs "${JOBS}")
endif()
if(PROFILE)
  list(APPEND command --profile "${PROFILE}")
endif()
if(NOT VERIFY)
  list(APPEND command --no-verify)
endif()
file(REMOVE "${OUTPUT}.state")  # of ready images that were there before
execute_process(COMMAND ${command} RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "the images were not built: ./dev compile ended with ${result}, and its output above has the reason.\n"
    "Next step: repair that and build again (finished kernels are kept), or configure with ready images, "
    "-DAOTRITON_IMAGES=<tarball or release folder>, or with none, -DAOTRITON_NOIMAGE_MODE=ON")
endif()
