/* POSIX dynamic loading on Windows: dlopen, dlclose, dlsym, dlerror, dladdr.
 *
 * Source and binary compatible with dlfcn-win32 1.4.2: same names, values and structure. Beyond it, paths are UTF-8 of any
 * length (the process' code page is the fallback), and every function may be called from any thread. See docs/windows.md.
 *
 * Define DLFCN_WIN32_SHARED to import from dl.dll without a thunk; leave it undefined for the static library.
 */
#ifndef DLFCN_H
#define DLFCN_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(DLFCN_WIN32_SHARED) && defined(DLFCN_WIN32_EXPORTS)
#define DLFCN_EXPORT __declspec(dllexport)
#elif defined(DLFCN_WIN32_SHARED)
#define DLFCN_EXPORT __declspec(dllimport)
#else
#define DLFCN_EXPORT
#endif

/* Modes of dlopen. Windows binds imports when a module is loaded, so that LAZY means NOW; without LOCAL a module is global. */
#define RTLD_NOW 0
#define RTLD_LAZY RTLD_NOW
#define RTLD_GLOBAL (1 << 1)
#define RTLD_LOCAL (1 << 2)

/* Handles for dlsym: the program with all global modules; the modules loaded after the caller's. */
#define RTLD_DEFAULT ((void *)0)
#define RTLD_NEXT ((void *)-1)

typedef struct dl_info {
  const char *dli_fname; /* path of the module, UTF-8; stays valid until dl itself is unloaded */
  void *dli_fbase;       /* load address of the module */
  const char *dli_sname; /* nearest exported name at or below the address, or NULL */
  void *dli_saddr;       /* address of that name, or NULL */
} Dl_info;

/* A handle on the module `file` (UTF-8), on the program itself for NULL, or NULL: dlerror has the reason. */
DLFCN_EXPORT void *dlopen(const char *file, int mode);

/* 0, or another number: dlerror has the reason. */
DLFCN_EXPORT int dlclose(void *handle);

/* The address of `name`, or NULL: dlerror has the reason. A handle on the program also finds what global modules export. */
DLFCN_EXPORT void *dlsym(void *handle, const char *name);

/* This thread's error since the last call (UTF-8), or NULL. Valid until this thread's next call of a function named here. */
DLFCN_EXPORT char *dlerror(void);

/* Fills `info` for code or data at `addr`, through an import thunk too. 0: no module has that address. Leaves dlerror alone. */
DLFCN_EXPORT int dladdr(const void *addr, Dl_info *info);

#ifdef __cplusplus
}
#endif

#endif
