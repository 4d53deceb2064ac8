// A stand-in for libamdhip64.so (amdhip64_7.dll, amdhip64.dll) that needs no GPU: plays the devices of HIP_DOUBLE_DEVICES, takes code objects apart, records loads and
// launches. HIP_DOUBLE_MAJOR chooses which release it plays: 5 has no hipStreamGetDevice and only the old properties; 6 and 7
// have both layouts. Numbers come from HIP's public headers as collected in the project's facts, never from the runtime.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "launch_record.h"
#include "world.h"

#ifndef HIP_DOUBLE_MAJOR
#error "HIP_DOUBLE_MAJOR is 5, 6 or 7"
#endif

using hip_double::current_device;
using hip_double::world;

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kInvalidDeviceFunction = 98, kNoDevice = 100, kInvalidDevice = 101;
constexpr int kInvalidImage = 200, kNoBinary = 209, kInvalidHandle = 400, kNotFound = 500;
[[maybe_unused]] constexpr size_t kR0600Size = 1472, kR0600Arch = 1160, kLegacySize = 792, kLegacyArch = 396, kArchSize = 256;
constexpr int kMultiprocessorCount = 63;

int properties(void* out, int device, size_t size, size_t arch, const char* call) {
  if (const int error = world().enter(call)) return error;
  if (out == nullptr) return kInvalidValue;
  if (device < 0 || static_cast<size_t>(device) >= world().devices.size()) return kInvalidDevice;
  std::memset(out, 0, size);
  std::strncpy(static_cast<char*>(out) + arch, world().devices[static_cast<size_t>(device)].name.c_str(), kArchSize - 1);
  return kSuccess;
}

int stream_device(hip_double::Stream* stream, int* device) {
  if (world().fixed_stream_device) {
    *device = world().stream_device;
    return kSuccess;
  }
  if (stream == nullptr) {
    *device = current_device();
    return kSuccess;
  }
  const std::lock_guard<std::mutex> guard(world().lock);
  if (world().streams.count(stream) == 0) return kInvalidHandle;
  *device = stream->device;
  return kSuccess;
}

int load(hip_double::Module** out, const void* image, const char* call) {
  if (const int error = world().enter(call)) return error;
  if (out == nullptr || image == nullptr) return kInvalidValue;
  if (world().devices.empty()) return kNoDevice;
  auto module = std::make_unique<hip_double::Module>();
  module->device = current_device();
  const std::string reason = hip_double::read_code_object(image, module->object);
  if (!reason.empty()) return kInvalidImage;
  const std::string& name = world().devices[static_cast<size_t>(module->device)].name;
  const std::string& target = module->object.target;
  const std::string arch = target.substr(target.rfind('-') + 1);
  if (arch.substr(0, arch.find(':')) != name.substr(0, name.find(':'))) return kNoBinary;
  module->digest = hip_double::fingerprint(image, module->object.size);
  const std::lock_guard<std::mutex> guard(world().lock);
  world().note(hip_double::describe_load(*module));
  world().keep_module(module->digest, image, module->object.size);
  *out = module.get();
  world().modules[module.get()] = std::move(module);
  return kSuccess;
}

#ifdef _WIN32
void* aligned_memory(size_t size) { return _aligned_malloc(size, 256); }
void free_aligned(void* memory) { _aligned_free(memory); }
#else
void* aligned_memory(size_t size) { return std::aligned_alloc(256, size); }
void free_aligned(void* memory) { std::free(memory); }
#endif

// The result of a call, remembered for hipGetLastError: by release 5 whatever it is, by later ones if it is an error.
int finish(int result) {
  if (HIP_DOUBLE_MAJOR < 6 || result != kSuccess) hip_double::last_error() = result;
  return result;
}

}  // namespace

extern "C" {

#ifdef _WIN32
#define HIP_API __declspec(dllexport)
#else
#define HIP_API __attribute__((visibility("default")))
#endif

HIP_API int hipGetDeviceCount(int* count) {
  if (const int error = world().enter("hipGetDeviceCount")) return finish(error);
  *count = static_cast<int>(world().devices.size());
  return finish(*count == 0 ? kNoDevice : kSuccess);
}

HIP_API int hipGetDevice(int* device) {
  if (const int error = world().quiet ? 0 : world().enter("hipGetDevice")) return finish(error);
  if (device == nullptr) return finish(kInvalidValue);
  if (world().devices.empty()) return finish(kNoDevice);
  *device = current_device();
  return finish(kSuccess);
}

HIP_API int hipSetDevice(int device) {
  if (const int error = world().enter("hipSetDevice")) return finish(error);
  if (world().devices.empty()) return finish(kNoDevice);
  if (device < 0 || static_cast<size_t>(device) >= world().devices.size()) return finish(kInvalidDevice);
  current_device() = device;
  return finish(kSuccess);
}

#if HIP_DOUBLE_MAJOR >= 6
HIP_API int hipGetDevicePropertiesR0600(void* out, int device) {
  return finish(properties(out, device, kR0600Size, kR0600Arch, "hipGetDevicePropertiesR0600"));
}

HIP_API int hipStreamGetDevice(hip_double::Stream* stream, int* device) {
  if (world().quiet && stream == nullptr) {
    *device = current_device();
    return finish(kSuccess);
  }
  if (const int error = world().enter("hipStreamGetDevice")) return finish(error);
  if (world().devices.empty()) return finish(kNoDevice);
  return finish(device == nullptr ? kInvalidValue : stream_device(stream, device));
}
#endif

HIP_API int hipGetDeviceProperties(void* out, int device) {
  return finish(properties(out, device, kLegacySize, kLegacyArch, "hipGetDeviceProperties"));
}

HIP_API int hipDeviceGetAttribute(int* out, int attribute, int device) {
  if (const int error = world().enter("hipDeviceGetAttribute")) return finish(error);
  if (out == nullptr || attribute != kMultiprocessorCount) return finish(kInvalidValue);
  if (device < 0 || static_cast<size_t>(device) >= world().devices.size()) return finish(kInvalidDevice);
  *out = world().devices[static_cast<size_t>(device)].compute_units;
  return finish(kSuccess);
}

HIP_API int hipStreamCreate(hip_double::Stream** out) {
  if (const int error = world().enter("hipStreamCreate")) return finish(error);
  if (world().devices.empty()) return finish(kNoDevice);
  *out = new hip_double::Stream{current_device()};
  const std::lock_guard<std::mutex> guard(world().lock);
  world().streams.insert(*out);
  return finish(kSuccess);
}

HIP_API int hipStreamDestroy(hip_double::Stream* stream) {
  const std::lock_guard<std::mutex> guard(world().lock);
  if (world().streams.erase(stream) == 0) return finish(kInvalidHandle);
  delete stream;
  return finish(kSuccess);
}

HIP_API int hipStreamSynchronize(hip_double::Stream*) { return finish(kSuccess); }
HIP_API int hipDeviceSynchronize() { return finish(kSuccess); }

HIP_API int hipMalloc(void** out, size_t size) {
  if (const int error = world().enter("hipMalloc")) return finish(error);
  *out = aligned_memory((size + 255) / 256 * 256 + 256);
  return finish(*out != nullptr ? kSuccess : 2);
}
HIP_API int hipFree(void* memory) {
  free_aligned(memory);
  return finish(kSuccess);
}
HIP_API int hipMemcpy(void* to, const void* from, size_t size, int) {
  if (const int error = world().enter("hipMemcpy")) return finish(error);
  std::memmove(to, from, size);
  return finish(kSuccess);
}
HIP_API int hipMemsetAsync(void* memory, int value, size_t size, hip_double::Stream*) {
  std::memset(memory, value, size);
  return finish(kSuccess);
}

HIP_API int hipModuleLoadData(hip_double::Module** out, const void* image) { return finish(load(out, image, "hipModuleLoadData")); }
HIP_API int hipModuleLoadDataEx(hip_double::Module** out, const void* image, unsigned, int*, void**) {
  return finish(load(out, image, "hipModuleLoadDataEx"));
}

HIP_API int hipModuleUnload(hip_double::Module* module) {
  if (const int error = world().enter("hipModuleUnload")) return finish(error);
  const std::lock_guard<std::mutex> guard(world().lock);
  return finish(world().modules.erase(module) != 0 ? kSuccess : kInvalidHandle);
}

HIP_API int hipModuleGetFunction(hip_double::Function** out, hip_double::Module* module, const char* name) {
  if (out == nullptr || name == nullptr) return finish(kInvalidValue);
  if (const int error = world().enter("hipModuleGetFunction")) return finish(error);
  const std::lock_guard<std::mutex> guard(world().lock);
  if (world().modules.count(module) == 0) return finish(kInvalidHandle);
  const auto kernel = module->object.kernels.find(name);
  if (kernel == module->object.kernels.end()) return finish(kNotFound);
  auto function = std::make_unique<hip_double::Function>(hip_double::Function{module, &kernel->second});
  *out = function.get();
  world().functions[function.get()] = std::move(function);
  return finish(kSuccess);
}

HIP_API int hipModuleLaunchKernel(hip_double::Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                  unsigned bz, unsigned lds, hip_double::Stream* stream, void** parameters, void** extra) {
  if (world().quiet.load(std::memory_order_relaxed)) return finish(hip_double::count_quiet_launch());
  if (const int error = world().enter("hipModuleLaunchKernel")) return finish(error);
  int device = 0;
  if (const int error = stream_device(stream, &device)) return finish(error);
  const hip_double::Launch launch{{gx, gy, gz}, {bx, by, bz}, lds, device, parameters, extra};
  const std::lock_guard<std::mutex> guard(world().lock);
  if (world().functions.count(function) == 0) return finish(kInvalidDeviceFunction);
  if (function->module->device != device || current_device() != device) return finish(kInvalidHandle);
  return finish(hip_double::check_and_record(*function, launch));
}

HIP_API int hipGetLastError() { return std::exchange(hip_double::last_error(), kSuccess); }
HIP_API int hipPeekAtLastError() { return hip_double::last_error(); }

HIP_API const char* hipGetErrorString(int error) {
  switch (error) {
    case kSuccess: return "no error";
    case kNoDevice: return "no ROCm-capable device is detected";
    case kInvalidImage: return "device kernel image is invalid";
    case kNoBinary: return "no kernel image is available for execution on the device";
    case kNotFound: return "named symbol not found";
    default: return "error of the double";
  }
}

// For tests in the same process. JSON lines so far, joined; the caller's buffer. Returns the size needed.
HIP_API size_t hip_double_record(char* out, size_t capacity) {
  const std::lock_guard<std::mutex> guard(world().lock);
  std::string all;
  for (const std::string& line : world().record) all += line + "\n";
  if (out != nullptr && capacity > all.size()) std::memcpy(out, all.c_str(), all.size() + 1);
  return all.size() + 1;
}
HIP_API void hip_double_clear() {
  const std::lock_guard<std::mutex> guard(world().lock);
  world().record.clear();
  world().calls.clear();
  world().failures.clear();
}
HIP_API void hip_double_fail(const char* specification) {
  const std::lock_guard<std::mutex> guard(world().lock);
  world().fail_from(specification);
}
HIP_API long hip_double_calls(const char* name) {
  const std::lock_guard<std::mutex> guard(world().lock);
  const auto found = world().calls.find(name);
  return found != world().calls.end() ? found->second : 0;
}
// Benchmarks and leak tests: launches are counted, nothing is checked or recorded.
HIP_API void hip_double_quiet(int quiet) {
  world().quiet = quiet != 0;
  world().recording = quiet == 0;
}
HIP_API int hip_double_major() { return HIP_DOUBLE_MAJOR; }

}  // extern "C"
