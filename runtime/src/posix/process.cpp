#include "process.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "state.h"

namespace aotforge {
namespace {

// The process' own lookup scope comes first: one more place than there are names.
constexpr const char* kLoaded[] = {nullptr, "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};
constexpr const char* kInstalled[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};

// Locates HIP. Not hipModuleLaunchKernel: tracers and shims define that one in front of HIP's own.
constexpr const char* kAnchors[] = {"hipGetDevicePropertiesR0600", "hipGetDeviceProperties"};

// The object that defines HIP in our own lookup scope, as a handle of its own, so that entry points come from one copy.
// RTLD_DEFAULT (HIP is linked into the program itself) is a null pointer in glibc.
bool hip_in_scope(DriverLibrary& out) {
  void* anchor = nullptr;
  for (const char* name : kAnchors)
    if (anchor == nullptr) anchor = ::dlsym(RTLD_DEFAULT, name);
  out = {RTLD_DEFAULT, true, false};
  if (anchor == nullptr) return false;
  Dl_info info;
  if (::dladdr(anchor, &info) == 0 || info.dli_fname == nullptr) return true;
  void* handle = ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) out.handle = handle;
  return true;
}

std::string program_file() {
  std::string path(256, '\0');
  for (;;) {
    const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
    if (size < 0) return {};
    if (static_cast<size_t>(size) < path.size()) return path.substr(0, static_cast<size_t>(size));
    path.resize(2 * path.size());
  }
}

// Where the process was when the library was loaded: the loader's name may be relative to it. Empty: unknown, or not needed.
char g_folder_at_load[PATH_MAX];

// The name that the loader has for the object with this code, and whether that object is the program itself.
bool own_object(Dl_info* info, bool* is_program) {
  static const char anchor = 0;
  link_map* object = nullptr;
  if (::dladdr1(&anchor, info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0) return false;
  *is_program = object != nullptr && object->l_name != nullptr && object->l_name[0] == '\0';
  return info->dli_fname != nullptr;
}

// Before any code of the program can change the folder: a name that stays relative would later lead to a file of another folder.
__attribute__((constructor)) void at_load() {
  Dl_info info;
  bool is_program = false;
  if (!own_object(&info, &is_program) || is_program || info.dli_fname[0] == '/') return;
  if (::getcwd(g_folder_at_load, sizeof g_folder_at_load) == nullptr) g_folder_at_load[0] = '\0';
}

__attribute__((destructor)) void at_unload() { unload(); }  // dlclose, and the end of the process

}  // namespace

std::string library_file() {
  Dl_info info;
  bool is_program = false;
  if (!own_object(&info, &is_program)) return {};
  // linked into the program, we are where it is, which argv[0] need not name
  if (is_program) return program_file();
  if (info.dli_fname[0] == '/') return info.dli_fname;
  return g_folder_at_load[0] == '/' ? std::string(g_folder_at_load) + '/' + info.dli_fname : std::string();
}

std::string trusted_variable(const char* name) {
  const char* value = ::secure_getenv(name);
  return value != nullptr ? value : "";
}

bool in_forked_child(void (*act)()) { return ::pthread_atfork(nullptr, nullptr, act) == 0; }

void* DriverLibrary::symbol(const char* name) const {
  void* address = ::dlsym(handle, name);
  return address == nullptr && in_scope ? ::dlsym(RTLD_DEFAULT, name) : address;
}

const size_t kLoadedHips = sizeof kLoaded / sizeof kLoaded[0], kInstalledHips = sizeof kInstalled / sizeof kInstalled[0];

bool loaded_hip(size_t which, DriverLibrary& out) {
  if (kLoaded[which] == nullptr) return hip_in_scope(out);
  out = {::dlopen(kLoaded[which], RTLD_LAZY | RTLD_NOLOAD), false, true};
  return out.handle != nullptr;
}

bool installed_hip(size_t which, DriverLibrary& out) {
  out = {::dlopen(kInstalled[which], RTLD_LAZY | RTLD_LOCAL), false, true};
  return out.handle != nullptr;
}

bool cuda_library(DriverLibrary& out) {
  out = {::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL), false, true};
  return out.handle != nullptr;
}

std::string library_trouble(const char* name) {
  const char* reason = ::dlerror();
  return reason != nullptr ? reason : std::string(name) + " not found";
}

std::string hip_trouble() { return library_trouble("libamdhip64.so"); }

}  // namespace aotforge
