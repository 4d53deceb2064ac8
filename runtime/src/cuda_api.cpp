#include "cuda_api.h"

#include <climits>
#include <cstdio>
#include <cstring>

#include "log.h"

namespace aotforge {
namespace {

// CUdevice_attribute and CUfunction_attribute.
constexpr int kMajor = 75, kMinor = 76, kSharedPerBlockOptIn = 97;
constexpr int kStaticShared = 1, kMaxDynamicShared = 8;
constexpr int kMemoryType = 2, kIsManaged = 8, kDeviceOrdinal = 9;  // CUpointer_attribute
constexpr unsigned kCudaDeviceMemory = 2;                           // CUmemorytype
constexpr hipError_t kNoContext = static_cast<hipError_t>(201);  // CUDA_ERROR_INVALID_CONTEXT

hipError_t result(int code) { return static_cast<hipError_t>(code); }

}  // namespace

hipError_t CudaApi::load() {
  DriverLibrary library;
  if (!cuda_library(library)) {
    log(Level::error, "CUDA is not available: %s", library_trouble("the NVIDIA driver").c_str());
    return hipErrorSharedObjectInitFailed;
  }
  const bool complete =
      resolve(library, "cuInit", init_) && resolve(library, "cuGetErrorString", get_error_string_) &&
      resolve(library, "cuDeviceGetAttribute", device_attribute_) && resolve(library, "cuCtxGetCurrent", current_context_) &&
      resolve(library, "cuCtxPushCurrent_v2", push_context_) && resolve(library, "cuCtxPopCurrent_v2", pop_context_) &&
      resolve(library, "cuCtxGetDevice", context_device_) && resolve(library, "cuStreamGetCtx", stream_context_) &&
      resolve(library, "cuLibraryLoadData", load_library_) && resolve(library, "cuLibraryGetKernel", library_kernel_) &&
      resolve(library, "cuKernelGetFunction", kernel_function_) && resolve(library, "cuKernelGetAttribute", kernel_attribute_) &&
      resolve(library, "cuKernelSetAttribute", set_kernel_attribute_) && resolve(library, "cuLaunchKernel", launch_) &&
      resolve(library, "cuPointerGetAttributes", pointer_attributes_);
  if (!complete) {
    log(Level::error, "the CUDA driver lacks entry points that are in every driver since CUDA 12");
    return hipErrorSharedObjectSymbolNotFound;
  }
  const hipError_t error = result(init_(0));
  if (error != hipSuccess) log(Level::error, "CUDA cannot be initialised: %s", describe(error));
  return error;
}

hipError_t CudaApi::context_of(StreamHandle stream, Context* context, bool* is_current) const {
  Context current = nullptr;
  if (const int code = current_context_(&current); code != 0) return result(code);
  if (const int code = stream_context_(stream, context); code != 0) return result(code);
  *is_current = *context == current;
  return *context != nullptr ? hipSuccess : kNoContext;
}

hipError_t CudaApi::device_of(StreamHandle stream, int* device) const {
  int64_t token = -1;
  if (const hipError_t error = make_current(-1, stream, &token); error != hipSuccess) return error;
  const hipError_t error = result(context_device_(device));
  restore(token);
  return error;
}

hipError_t CudaApi::arch_name(int device, char* name) const {
  int major = 0, minor = 0;
  int code = device_attribute_(&major, kMajor, device);
  if (code == 0) code = device_attribute_(&minor, kMinor, device);
  if (code != 0) {
    log(Level::error, "device %d: its compute capability cannot be read: %s", device, describe(result(code)));
    return result(code);
  }
  std::snprintf(name, kArchNameSize, "sm_%d%d", major, minor);
  return hipSuccess;
}

// The token is 1 when a context was pushed.
hipError_t CudaApi::make_current(int, StreamHandle stream, int64_t* token) const {
  Context context = nullptr;
  bool is_current = false;
  if (const hipError_t error = context_of(stream, &context, &is_current); error != hipSuccess) return error;
  *token = is_current ? 0 : 1;
  return is_current ? hipSuccess : result(push_context_(context));
}

void CudaApi::restore(int64_t token) const {
  Context popped = nullptr;
  if (token == 1 && pop_context_(&popped) != 0) log(Level::error, "the CUDA context cannot be popped");
}

// A library serves every context of its device, where a module would serve the one in which it was loaded.
hipError_t CudaApi::load_module(ModuleHandle* module, const void* image, size_t) const {
  return result(load_library_(module, image, nullptr, nullptr, 0, nullptr, nullptr, 0));
}

hipError_t CudaApi::function(FunctionHandle* out, ModuleHandle module, const char* symbol, int device) const {
  if (const int code = library_kernel_(out, module, symbol); code != 0) return result(code);
  void* loaded = nullptr;  // drivers load lazily: an image that does not fit the device is reported here, not at the launch
  if (const int code = kernel_function_(&loaded, *out); code != 0) return result(code);
  // more than 48 KiB of shared memory only on request
  int most = 0, fixed = 0;
  int code = device_attribute_(&most, kSharedPerBlockOptIn, device);
  if (code == 0) code = kernel_attribute_(&fixed, kStaticShared, *out, device);
  if (code == 0) code = set_kernel_attribute_(kMaxDynamicShared, most - fixed, *out, device);
  return result(code);
}

// One call of the driver for all that is needed.
hipError_t CudaApi::pointer_device(const void* pointer, int* device) const {
  unsigned type = 0, managed = 0;  // 32 bits each, also the boolean
  int owner = -1, attributes[] = {kMemoryType, kIsManaged, kDeviceOrdinal};
  void* out[] = {&type, &managed, &owner};
  if (const int code = pointer_attributes_(3, attributes, out, reinterpret_cast<uint64_t>(pointer)); code != 0) return result(code);
  if (owner < 0) return hipErrorInvalidValue;  // the driver's answer for memory that it does not know is a success
  *device = type == kCudaDeviceMemory && managed == 0 ? owner : -1;
  return hipSuccess;
}

GridLimits CudaApi::grid_limits(unsigned) const { return {INT32_MAX, UINT16_MAX}; }

hipError_t CudaApi::launch(FunctionHandle function, const LaunchShape& shape, StreamHandle stream, void** arguments) const {
  return result(launch_(function, shape.grid[0], shape.grid[1], shape.grid[2], shape.threads, 1, 1, shape.shared_bytes, stream,
                        arguments, nullptr));
}

const char* CudaApi::describe(hipError_t error) const {
  const char* text = nullptr;
  if (error == kNoContext) return "no CUDA context is current on this thread, and the stream has none";
  return get_error_string_ != nullptr && get_error_string_(error, &text) == 0 && text != nullptr ? text : "unknown error";
}

}  // namespace aotforge
