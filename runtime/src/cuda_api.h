// CUDA's driver API, looked up at run time in libcuda.so.1 (nvcuda.dll), which the driver installs.
#pragma once

#include "device_api.h"
#include "process.h"

namespace aotforge {

class CudaApi final : public DeviceApi {
 public:
  // Look everything up and initialise the driver. hipErrorSharedObjectInitFailed: there is no driver;
  // hipErrorSharedObjectSymbolNotFound: one older than CUDA 12. The driver's own errors are passed on: hipErrorNoDevice.
  hipError_t load();

  const char* name() const override { return "CUDA"; }
  hipError_t device_of(StreamHandle stream, int* device) const override;
  hipError_t arch_name(int device, char* name) const override;
  hipError_t make_current(int device, StreamHandle stream, int64_t* token) const override;
  void restore(int64_t token) const override;
  hipError_t load_module(ModuleHandle* module, const void* image, size_t size) const override;
  hipError_t function(FunctionHandle* out, ModuleHandle module, const char* symbol, int device) const override;
  hipError_t pointer_device(const void* pointer, int* device) const override;
  GridLimits grid_limits(unsigned threads) const override;
  hipError_t launch(FunctionHandle function, const LaunchShape& shape, StreamHandle stream, void** arguments) const override;
  const char* describe(hipError_t error) const override;

 private:
  using Context = struct CUctx_st*;
  using Result = int;

  // Context of the stream; of null and the other special streams the current one.
  hipError_t context_of(StreamHandle stream, Context* context, bool* is_current) const;

  Result (*init_)(unsigned) = nullptr;
  Result (*get_error_string_)(Result, const char**) = nullptr;
  Result (*device_attribute_)(int*, int, int) = nullptr;
  Result (*current_context_)(Context*) = nullptr;
  Result (*push_context_)(Context) = nullptr;
  Result (*pop_context_)(Context*) = nullptr;
  Result (*context_device_)(int*) = nullptr;
  Result (*stream_context_)(StreamHandle, Context*) = nullptr;
  Result (*load_library_)(ModuleHandle*, const void*, int*, void**, unsigned, int*, void**, unsigned) = nullptr;
  Result (*library_kernel_)(FunctionHandle*, ModuleHandle, const char*) = nullptr;
  Result (*kernel_function_)(void**, FunctionHandle) = nullptr;
  Result (*kernel_attribute_)(int*, int, FunctionHandle, int) = nullptr;
  Result (*set_kernel_attribute_)(int, int, FunctionHandle, int) = nullptr;
  Result (*pointer_attributes_)(unsigned, int*, void**, uint64_t) = nullptr;
  Result (*launch_)(FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, StreamHandle, void**,
                    void**) = nullptr;
};

}  // namespace aotforge
