# Included by each project that installs, before its own rules: their install scripts can be executed alone.

# whatever the umask is, as `./dev install` does
set(CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

foreach(component runtime development images Unspecified)
  install(CODE "set(AOTFORGE_SCRIPT \"\${CMAKE_CURRENT_LIST_FILE}\")
    include([==[${CMAKE_CURRENT_LIST_DIR}/install_first.cmake]==])
    if(AOTFORGE_INSTALLED)
      return()
    endif()" COMPONENT ${component})
endforeach()
