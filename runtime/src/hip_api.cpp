#include "hip_api.h"

#include <cstring>

#include "log.h"
#include "process.h"

namespace aotforge {
namespace {

// hipDeviceProp_t: its size and where gcnArchName is, per layout; a margin for layouts that grow.
constexpr size_t kR0600Size = 1472, kR0600Arch = 1160;
constexpr size_t kLegacySize = 792, kLegacyArch = 396;
constexpr size_t kPropertiesRoom = 4096;
static_assert(kR0600Arch + kArchNameSize <= kR0600Size && kLegacyArch + kArchNameSize <= kLegacySize, "layouts");
constexpr int kMultiprocessorCount = 63;  // hipDeviceAttributeMultiprocessorCount in HIP 5 to 7

template <typename Function>
void resolve(const HipLibrary& library, const char* name, Function& out) {
  void* address = library.symbol(name);
  static_assert(sizeof address == sizeof out, "function pointers are pointers");
  std::memcpy(&out, &address, sizeof out);
}

}  // namespace

bool HipApi::resolve_all(const HipLibrary& library) {
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
  resolve(library, "hipPeekAtLastError", peek_last_error);
  const bool properties = get_properties_r0600 != nullptr || get_properties != nullptr;
  const bool modules = module_load != nullptr || module_load_ex != nullptr;
  return get_device && set_device && properties && modules && get_attribute && module_unload && module_function && launch;
}

bool HipApi::load_present(bool* by_name) {
  HipLibrary library;
  for (size_t i = 0; i < kLoadedHips; ++i) {
    if (!loaded_hip(i, library)) continue;
    *by_name = *by_name || library.by_name;
    if (resolve_all(library)) return true;  // else what was found is a shim's alone
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
  HipLibrary library;
  for (size_t i = 0; i < kInstalledHips; ++i) {
    if (found || !installed_hip(i, library)) continue;  // a second copy beside one that is loaded would share nothing with it
    found = true;
    if (resolve_all(library)) return hipSuccess;
  }
  if (!found) {
    log(Level::error, "HIP is not available: %s", hip_trouble().c_str());
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
