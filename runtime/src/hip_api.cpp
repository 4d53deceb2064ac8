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

// The object that defines HIP in our own lookup scope, as a handle of its own, so that every entry point comes from one copy.
void* loaded_in_scope() {
  void* launch = ::dlsym(RTLD_DEFAULT, "hipModuleLaunchKernel");
  Dl_info info;
  if (launch == nullptr || ::dladdr(launch, &info) == 0 || info.dli_fname == nullptr) return nullptr;
  void* handle = ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return handle != nullptr ? handle : RTLD_DEFAULT;  // linked into the program itself
}

// Sets `found`; RTLD_DEFAULT is itself a null pointer in glibc.
void* find_library(bool* found) {
  *found = true;
  if (::dlsym(RTLD_DEFAULT, "hipModuleLaunchKernel") != nullptr) return loaded_in_scope();
  for (const char* name : kLoaded)
    if (void* handle = ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) return handle;
  for (const char* name : kInstalled)
    if (void* handle = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL)) return handle;
  *found = false;
  return nullptr;
}

template <typename Function>
void resolve(void* library, const char* name, Function& out) {
  void* address = ::dlsym(library, name);
  static_assert(sizeof address == sizeof out, "function pointers are pointers");
  std::memcpy(&out, &address, sizeof out);
}

}  // namespace

hipError_t HipApi::load() {
  bool found = false;
  void* library = find_library(&found);
  if (!found) {
    const char* reason = ::dlerror();
    log(Level::error, "HIP is not available: %s", reason != nullptr ? reason : "libamdhip64.so not found");
    return hipErrorSharedObjectInitFailed;
  }
  resolve(library, "hipGetDevice", get_device);
  resolve(library, "hipSetDevice", set_device);
  resolve(library, "hipGetDevicePropertiesR0600", get_properties_r0600);
  resolve(library, "hipGetDeviceProperties", get_properties);
  resolve(library, "hipDeviceGetAttribute", get_attribute);
  resolve(library, "hipStreamGetDevice", stream_get_device);
  resolve(library, "hipModuleLoadData", module_load);
  resolve(library, "hipModuleLoadDataEx", module_load_ex);
  resolve(library, "hipModuleUnload", module_unload);
  resolve(library, "hipModuleGetFunction", module_function);
  resolve(library, "hipModuleLaunchKernel", launch);
  resolve(library, "hipGetErrorString", error_string);
  const bool properties = get_properties_r0600 != nullptr || get_properties != nullptr;
  const bool modules = module_load != nullptr || module_load_ex != nullptr;
  if (get_device && set_device && properties && modules && get_attribute && module_unload && module_function && launch)
    return hipSuccess;
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
