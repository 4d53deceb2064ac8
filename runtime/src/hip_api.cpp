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
constexpr int kUnregistered = 0, kHipDeviceMemory = 2, kLegacyDeviceMemory = 1;  // hipMemoryType since HIP 6, and in HIP 5
constexpr int kMultiprocessorCount = 63;  // hipDeviceAttributeMultiprocessorCount in HIP 5 to 7

}  // namespace

bool HipApi::resolve_all(const DriverLibrary& library) {
  resolve(library, "hipGetDevice", get_device_);
  resolve(library, "hipSetDevice", set_device_);
  resolve(library, "hipGetDevicePropertiesR0600", get_properties_r0600_);
  resolve(library, "hipGetDeviceProperties", get_properties_);
  resolve(library, "hipDeviceGetAttribute", get_attribute_);
  resolve(library, "hipStreamGetDevice", stream_get_device_);
  resolve(library, "hipModuleLoadData", module_load_);
  resolve(library, "hipModuleLoadDataEx", module_load_ex_);
  resolve(library, "hipModuleUnload", module_unload_);
  resolve(library, "hipModuleGetFunction", module_function_);
  resolve(library, "hipModuleLaunchKernel", launch_);
  resolve(library, "hipPointerGetAttributes", pointer_attributes_);
  resolve(library, "hipGetErrorString", error_string_);
  resolve(library, "hipPeekAtLastError", peek_last_error_);
  const bool properties = get_properties_r0600_ != nullptr || get_properties_ != nullptr;
  const bool modules = module_load_ != nullptr || module_load_ex_ != nullptr;
  return get_device_ && set_device_ && properties && modules && get_attribute_ && module_unload_ && module_function_ && launch_;
}

bool HipApi::load_present(bool* by_name) {
  DriverLibrary library;
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
  DriverLibrary library;
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
  const bool recent = get_properties_r0600_ != nullptr;
  const hipError_t error = recent ? get_properties_r0600_(properties, device) : get_properties_(properties, device);
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
  return get_attribute_(count, kMultiprocessorCount, device);
}

const char* HipApi::describe(hipError_t error) const {
  const char* text = error_string_ != nullptr ? error_string_(error) : nullptr;
  return text != nullptr ? text : "unknown error";
}

void HipApi::leave_error_behind() const {
  if (peek_last_error_ != nullptr && peek_last_error_() != hipSuccess) return;
  if (module_function_(nullptr, nullptr, nullptr) == hipSuccess) log(Level::error, "HIP took a call without arguments");
}

hipError_t HipApi::device_of(StreamHandle stream, int* device) const {
  return stream_get_device_ != nullptr ? stream_get_device_(static_cast<hipStream_t>(stream), device) : get_device_(device);
}

// The token is the device that was current, -1 when it was the same.
hipError_t HipApi::make_current(int device, StreamHandle, int64_t* token) const {
  int current = -1;
  if (const hipError_t error = get_device_(&current); error != hipSuccess) return error;
  *token = current == device ? -1 : current;
  return current == device ? hipSuccess : set_device_(device);
}

void HipApi::restore(int64_t token) const {
  const int before = static_cast<int>(token);
  if (before >= 0 && set_device_(before) != hipSuccess) log(Level::error, "device %d cannot be made current again", before);
}

hipError_t HipApi::load_module(ModuleHandle* module, const void* image, size_t) const {
  return module_load_ != nullptr ? module_load_(module, image) : module_load_ex_(module, image, 0, nullptr, nullptr);
}

hipError_t HipApi::function(FunctionHandle* out, ModuleHandle module, const char* symbol, int) const {
  return module_function_(out, module, symbol);
}

hipError_t HipApi::pointer_device(const void* pointer, int* device) const {
  *device = -1;
  if (pointer_attributes_ == nullptr) return hipSuccess;
  struct {
    int type, device;
    char rest[256];  // addresses and flags, which differ from release to release
  } found = {};
  if (const hipError_t error = pointer_attributes_(&found, pointer); error != hipSuccess) return error;
  const bool recent = get_properties_r0600_ != nullptr;
  if (recent && found.type == kUnregistered) return hipErrorInvalidValue;
  if (found.type == (recent ? kHipDeviceMemory : kLegacyDeviceMemory)) *device = found.device;
  return hipSuccess;
}

// HIP takes UINT16_MAX + 1 workgroups along y and z, and 2^32 - 1 threads along x.
GridLimits HipApi::grid_limits(unsigned threads) const { return {UINT32_MAX / threads, 65536}; }

hipError_t HipApi::launch(FunctionHandle function, const LaunchShape& shape, StreamHandle stream, void** arguments) const {
  return launch_(function, shape.grid[0], shape.grid[1], shape.grid[2], shape.threads, 1, 1, shape.shared_bytes,
                 static_cast<hipStream_t>(stream), arguments, nullptr);
}

}  // namespace aotforge
