#include "hip_api.h"

#include <dlfcn.h>

#include <cstring>

#include "log.h"

namespace aotforge {
namespace {

// hipDeviceProp_t: its size and where gcnArchName is, per layout; a margin for layouts that grow.
constexpr size_t kR0600Size = 1472, kR0600Arch = 1160;
constexpr size_t kLegacySize = 792, kLegacyArch = 396;
constexpr size_t kPropertiesRoom = 4096;
static_assert(kR0600Arch + kArchNameSize <= kR0600Size && kLegacyArch + kArchNameSize <= kLegacySize, "layouts");
constexpr int kMultiprocessorCount = 63;  // hipDeviceAttributeMultiprocessorCount in HIP 5 to 7

constexpr const char* kLoaded[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};
constexpr const char* kInstalled[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};

// What tells where HIP is. Not hipModuleLaunchKernel: tracers and shims define that one in front of HIP's own.
constexpr const char* kAnchors[] = {"hipGetDevicePropertiesR0600", "hipGetDeviceProperties"};

// The object that defines HIP in our own lookup scope, as a handle of its own, so that entry points come from one copy. Sets
// `found`; RTLD_DEFAULT (HIP is linked into the program itself) is a null pointer in glibc.
void* loaded_in_scope(bool* found) {
  void* anchor = nullptr;
  for (const char* name : kAnchors)
    if (anchor == nullptr) anchor = ::dlsym(RTLD_DEFAULT, name);
  *found = anchor != nullptr;
  Dl_info info;
  if (anchor == nullptr || ::dladdr(anchor, &info) == 0 || info.dli_fname == nullptr) return RTLD_DEFAULT;
  void* handle = ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return handle != nullptr ? handle : RTLD_DEFAULT;
}

template <typename Function>
void resolve(void* library, bool in_scope, const char* name, Function& out) {
  void* address = ::dlsym(library, name);
  if (address == nullptr && in_scope) address = ::dlsym(RTLD_DEFAULT, name);
  static_assert(sizeof address == sizeof out, "function pointers are pointers");
  std::memcpy(&out, &address, sizeof out);
}

}  // namespace

bool HipApi::resolve_all(void* library, bool in_scope) {
  resolve(library, in_scope, "hipGetDevice", get_device);
  resolve(library, in_scope, "hipSetDevice", set_device);
  resolve(library, in_scope, "hipGetDevicePropertiesR0600", get_properties_r0600);
  resolve(library, in_scope, "hipGetDeviceProperties", get_properties);
  resolve(library, in_scope, "hipDeviceGetAttribute", get_attribute);
  resolve(library, in_scope, "hipStreamGetDevice", stream_get_device);
  resolve(library, in_scope, "hipModuleLoadData", module_load);
  resolve(library, in_scope, "hipModuleLoadDataEx", module_load_ex);
  resolve(library, in_scope, "hipModuleUnload", module_unload);
  resolve(library, in_scope, "hipModuleGetFunction", module_function);
  resolve(library, in_scope, "hipModuleLaunchKernel", launch);
  resolve(library, in_scope, "hipGetErrorString", error_string);
  resolve(library, in_scope, "hipPeekAtLastError", peek_last_error);
  const bool properties = get_properties_r0600 != nullptr || get_properties != nullptr;
  const bool modules = module_load != nullptr || module_load_ex != nullptr;
  return get_device && set_device && properties && modules && get_attribute && module_unload && module_function && launch;
}

bool HipApi::load_present(bool* by_name) {
  bool anchored = false;
  void* library = loaded_in_scope(&anchored);
  if (anchored && resolve_all(library, true)) return true;  // else the anchor is a shim's alone
  for (const char* name : kLoaded)
    if (void* handle = ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {
      *by_name = true;
      if (resolve_all(handle, false)) return true;
    }
  return false;
}

bool HipApi::load_present() {
  bool by_name = false;
  return load_present(&by_name);
}

hipError_t HipApi::load() {
  bool found = false;
  if (load_present(&found)) return hipSuccess;
  for (const char* name : kInstalled)  // a second copy beside one that is loaded would share nothing with it
    if (void* handle = found ? nullptr : ::dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {
      found = true;
      if (resolve_all(handle, false)) return hipSuccess;
    }
  if (!found) {
    const char* reason = ::dlerror();
    log(Level::error, "HIP is not available: %s", reason != nullptr ? reason : "libamdhip64.so not found");
    return hipErrorSharedObjectInitFailed;
  }
  log(Level::error, "the HIP library lacks entry points that are in every release from 5 to 7");
  return hipErrorSharedObjectSymbolNotFound;
}

hipError_t HipApi::arch_name(int device, char* name) const {
  alignas(16) char properties[kPropertiesRoom] = {};
  const bool recent = get_properties_r0600 != nullptr;
  const hipError_t error = recent ? get_properties_r0600(properties, device) : get_properties(properties, device);
  if (error != hipSuccess) {
    log(Level::error, "device %d: properties cannot be read: %s", device, describe(error));
    return error;
  }
  std::memcpy(name, properties + (recent ? kR0600Arch : kLegacyArch), kArchNameSize);
  name[kArchNameSize - 1] = 0;
  name[std::strcspn(name, ":")] = 0;
  return hipSuccess;
}

hipError_t HipApi::compute_units(int device, int* count) const {
  return get_attribute(count, kMultiprocessorCount, device);
}

const char* HipApi::describe(hipError_t error) const {
  const char* text = error_string != nullptr ? error_string(error) : nullptr;
  return text != nullptr ? text : "unknown error";
}

void HipApi::leave_error_behind() const {
  if (peek_last_error != nullptr && peek_last_error() != hipSuccess) return;
  if (module_function(nullptr, nullptr, nullptr) == hipSuccess) log(Level::error, "HIP took a call without arguments");
}

CurrentDevice::CurrentDevice(const HipApi& hip, int device) : ok(hipSuccess), hip_(hip) {
  int current = -1;
  ok = hip.get_device(&current);
  if (ok != hipSuccess || current == device) return;
  ok = hip.set_device(device);
  if (ok == hipSuccess) before_ = current;
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0 && hip_.set_device(before_) != hipSuccess)
    log(Level::error, "device %d cannot be made current again", before_);
}

}  // namespace aotforge
