// HIP, looked up at run time: the copy that the process already uses, else an installed one (process.h).
#pragma once

#include "device_api.h"

namespace aotforge {

struct DriverLibrary;

class HipApi final : public DeviceApi {
 public:
  // Look everything up. hipErrorSharedObjectInitFailed: no HIP found; hipErrorSharedObjectSymbolNotFound: one too old.
  hipError_t load();

  // The same among the libraries that the process has already, quietly. False: HIP is not loaded, or too old.
  bool load_present();

  const char* name() const override { return "HIP"; }
  hipError_t device_of(StreamHandle stream, int* device) const override;
  hipError_t arch_name(int device, char* name) const override;  // without features: "gfx90a" of "gfx90a:sramecc+:xnack-"
  hipError_t make_current(int device, StreamHandle stream, int64_t* token) const override;
  void restore(int64_t token) const override;
  hipError_t load_module(ModuleHandle* module, const void* image, size_t size) const override;
  hipError_t function(FunctionHandle* out, ModuleHandle module, const char* symbol, int device) const override;
  hipError_t pointer_device(const void* pointer, int* device) const override;
  GridLimits grid_limits(unsigned threads) const override;
  hipError_t launch(FunctionHandle function, const LaunchShape& shape, StreamHandle stream, void** arguments) const override;
  const char* describe(hipError_t error) const override;

  hipError_t compute_units(int device, int* count) const;

  // See to it that hipGetLastError reports an error on this thread: HIP's own of just now if it has one, else
  // hipErrorInvalidValue, by a call that HIP refuses before it looks at a device.
  void leave_error_behind() const;

 private:
  // Every entry point of `library`. False: some are missing.
  bool resolve_all(const DriverLibrary& library);
  bool load_present(bool* by_name);  // sets it when a library of HIP's name is loaded

  hipError_t (*get_device_)(int*) = nullptr;
  hipError_t (*set_device_)(int) = nullptr;
  hipError_t (*get_properties_r0600_)(void*, int) = nullptr;  // ROCm 6 and later
  hipError_t (*get_properties_)(void*, int) = nullptr;        // HIP 5's layout, in every release
  hipError_t (*get_attribute_)(int*, int, int) = nullptr;
  hipError_t (*stream_get_device_)(hipStream_t, int*) = nullptr;  // null before HIP 5.3
  hipError_t (*module_load_)(ModuleHandle*, const void*) = nullptr;
  hipError_t (*module_load_ex_)(ModuleHandle*, const void*, unsigned, int*, void**) = nullptr;
  hipError_t (*module_unload_)(ModuleHandle) = nullptr;
  hipError_t (*module_function_)(FunctionHandle*, ModuleHandle, const char*) = nullptr;
  hipError_t (*launch_)(FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, hipStream_t,
                       void**, void**) = nullptr;
  hipError_t (*pointer_attributes_)(void*, const void*) = nullptr;  // may be null
  const char* (*error_string_)(hipError_t) = nullptr;
  hipError_t (*peek_last_error_)() = nullptr;  // may be null
};

}  // namespace aotforge
