// HIP, looked up at run time: the copy that the process already uses, else an installed one (process.h).
#pragma once

#include <hip/hip_runtime.h>

#include <cstddef>

namespace aotforge {

struct HipLibrary;

constexpr size_t kArchNameSize = 256;

// Opaque handles of HIP's module interface.
using HipModule = struct ihipModule_t*;
using HipFunction = struct ihipModuleSymbol_t*;

struct HipApi {
  hipError_t (*get_device)(int*) = nullptr;
  hipError_t (*set_device)(int) = nullptr;
  hipError_t (*get_properties_r0600)(void*, int) = nullptr;  // ROCm 6 and later
  hipError_t (*get_properties)(void*, int) = nullptr;        // HIP 5's layout, in every release
  hipError_t (*get_attribute)(int*, int, int) = nullptr;
  hipError_t (*stream_get_device)(hipStream_t, int*) = nullptr;  // null before HIP 5.3
  hipError_t (*module_load)(HipModule*, const void*) = nullptr;
  hipError_t (*module_load_ex)(HipModule*, const void*, unsigned, int*, void**) = nullptr;
  hipError_t (*module_unload)(HipModule) = nullptr;
  hipError_t (*module_function)(HipFunction*, HipModule, const char*) = nullptr;
  hipError_t (*launch)(HipFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, hipStream_t,
                       void**, void**) = nullptr;
  const char* (*error_string)(hipError_t) = nullptr;
  hipError_t (*peek_last_error)() = nullptr;  // may be null

  // Look everything up. hipErrorSharedObjectInitFailed: no HIP found; hipErrorSharedObjectSymbolNotFound: one too old.
  hipError_t load();

  // The same among the libraries that the process has already, quietly. False: HIP is not loaded, or too old.
  bool load_present();

  // Device that work on `stream` runs on.
  hipError_t device_of(hipStream_t stream, int* device) const {
    return stream_get_device != nullptr ? stream_get_device(stream, device) : get_device(device);
  }

  // The arch's name without features ("gfx90a" of "gfx90a:sramecc+:xnack-"), zero-terminated, in a buffer of kArchNameSize.
  hipError_t arch_name(int device, char* name) const;

  hipError_t compute_units(int device, int* count) const;

  hipError_t load_module(HipModule* module, const void* image) const {
    return module_load != nullptr ? module_load(module, image) : module_load_ex(module, image, 0, nullptr, nullptr);
  }

  // For log lines; never null.
  const char* describe(hipError_t error) const;

  // See to it that hipGetLastError reports an error on this thread: HIP's own of just now if it has one, else
  // hipErrorInvalidValue, by a call that HIP refuses before it looks at a device.
  void leave_error_behind() const;

 private:
  // Every entry point of `library`. False: some are missing.
  bool resolve_all(const HipLibrary& library);
  bool load_present(bool* by_name);  // sets it when a library of HIP's name is loaded
};

// Makes `device` current during its lifetime and restores the caller's. `ok` is not hipSuccess when it cannot.
class CurrentDevice {
 public:
  CurrentDevice(const HipApi& hip, int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  hipError_t ok;

 private:
  const HipApi& hip_;
  int before_ = -1;
};

}  // namespace aotforge
