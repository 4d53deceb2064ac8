// Errors in words, and what this library has beside HIP.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "queue.h"

using namespace virtual_hip;

namespace {

struct Words {
  int error;
  const char *name, *text;
};

constexpr Words kWords[] = {
    {kSuccess, "hipSuccess", "no error"},
    {kInvalidValue, "hipErrorInvalidValue", "invalid argument"},
    {kOutOfMemory, "hipErrorOutOfMemory", "out of memory"},
    {kInvalidConfiguration, "hipErrorInvalidConfiguration", "invalid configuration argument"},
    {kInvalidDevicePointer, "hipErrorInvalidDevicePointer", "invalid device pointer"},
    {kInvalidMemcpyDirection, "hipErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {kInvalidDeviceFunction, "hipErrorInvalidDeviceFunction", "invalid device function"},
    {kNoDevice, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {kInvalidDevice, "hipErrorInvalidDevice", "invalid device ordinal"},
    {kInvalidImage, "hipErrorInvalidImage", "device kernel image is invalid"},
    {kNoBinary, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"},
    {kFileNotFound, "hipErrorFileNotFound", "file not found"},
    {kInitFailed, "hipErrorSharedObjectInitFailed", "shared object initialization failed"},
    {kOperatingSystem, "hipErrorOperatingSystem", "OS call failed or operation not supported on this OS"},
    {kInvalidHandle, "hipErrorInvalidHandle", "invalid resource handle"},
    {kNotFound, "hipErrorNotFound", "named symbol not found"},
    {kNotReady, "hipErrorNotReady", "device not ready"},
    {kIllegalAddress, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {kLaunchTimeOut, "hipErrorLaunchTimeOut", "the launch timed out and was terminated"},
    {kAlreadyRegistered, "hipErrorHostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped"},
    {kNotRegistered, "hipErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"},
    {kLaunchFailure, "hipErrorLaunchFailure", "unspecified launch failure"},
    {kNotSupported, "hipErrorNotSupported", "operation not supported"},
    {kUnknown, "hipErrorUnknown", "unknown error"},
};

const Words& words_of(int error) {
  for (const Words& one : kWords)
    if (one.error == error) return one;
  return kWords[sizeof kWords / sizeof *kWords - 1];
}

}  // namespace

HIP_API int hipGetLastError() { return std::exchange(last_error(), kSuccess); }
HIP_API int hipPeekAtLastError() { return last_error(); }
HIP_API const char* hipGetErrorString(int error) { return words_of(error).text; }
HIP_API const char* hipGetErrorName(int error) { return words_of(error).name; }

// A device as new: its memory and modules are gone, and so is a kernel's fault.
HIP_API int hipDeviceReset() {
  return entry("hipDeviceReset", [] {
    World& w = world();
    if (w.devices.empty()) return kNoDevice;
    const int number = current_device();
    drain_device(number);
    const std::lock_guard<std::mutex> guard(w.lock);
    for (auto at = w.allocations.begin(); at != w.allocations.end();) {
      const bool ours = at->second.device == number;
      if (ours && at->second.kind != Kind::registered) std::free(reinterpret_cast<void*>(at->second.base));
      at = ours ? w.allocations.erase(at) : std::next(at);
    }
    for (auto at = w.functions.begin(); at != w.functions.end();)
      at = at->second->module->device == number ? w.functions.erase(at) : std::next(at);
    for (auto at = w.modules.begin(); at != w.modules.end();) at = at->second->device == number ? w.modules.erase(at) : std::next(at);
    w.devices[static_cast<size_t>(number)]->used = 0;
    w.devices[static_cast<size_t>(number)]->failed = kSuccess;
    return kSuccess;
  });
}

// The last error's words; the caller's buffer. Returns the size needed.
HIP_API size_t aotforge_virtual_report(char* out, size_t size) {
  const std::string text = last_report();
  if (out != nullptr && size > text.size()) std::memcpy(out, text.c_str(), text.size() + 1);
  return text.size() + 1;
}

// Failures to come, as `fail` of AOTFORGE_VIRTUAL; an empty text forgets those that have not happened.
HIP_API void aotforge_virtual_fail(const char* specification) {
  const std::lock_guard<std::mutex> guard(world().lock);
  if (specification == nullptr || *specification == 0) return world().failures.clear();
  world().fail_from(specification);
}
