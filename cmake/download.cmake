# cmake -DURL=... -DFILE=... -P download.cmake: writes FILE and prints what happened. A program of its own, so that the shell can limit the file's size.
cmake_minimum_required(VERSION 3.18)
file(DOWNLOAD "${URL}" "${FILE}" STATUS status TIMEOUT 120 INACTIVITY_TIMEOUT 20)
list(GET status 1 text)
execute_process(COMMAND "${CMAKE_COMMAND}" -E echo "${text}")
