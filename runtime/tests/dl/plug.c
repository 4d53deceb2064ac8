// A module to open, built several times: NAME_ONLY is a symbol of its own, ID what its functions return.
#include "dlfcn.h"

#define EXPORT __declspec(dllexport)

EXPORT int value_of_data = ID;

EXPORT int which(void) { return ID; }

EXPORT int NAME_ONLY(void) { return ID; }

// A name that the program exports as well.
EXPORT int prefer(void) { return ID; }

// `name` in the modules after this one.
EXPORT void *next_of(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  return found;
}
