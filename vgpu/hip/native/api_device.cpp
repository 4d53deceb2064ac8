// Devices: how many, which is current, what they are.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "properties.h"
#include "world.h"

using namespace virtual_hip;

namespace {

constexpr int kMaxThreads = 1024, kMaxGrid = 65536, kClockKhz = 1'502'000, kVersion = VIRTUAL_HIP_MAJOR * 10'000'000;

const Device& device_at(int number) { return *world().devices[static_cast<size_t>(number)]; }

// The 16 digits, as text: HIP's 16 bytes of a UUID.
void copy_uuid(char (&out)[16], const Device& device) { std::memcpy(out, uuid_of(device.number).c_str() + 4, sizeof out); }

void copy_name(char (&out)[256], const std::string& name) { std::strncpy(out, name.c_str(), sizeof out - 1); }

// What both layouts have in common.
template <typename Properties>
int properties(void* out, int number) {
  if (out == nullptr) return kInvalidValue;
  if (!world().has(number)) return kInvalidDevice;
  const Device& device = device_at(number);
  Properties found{};
  copy_name(found.name, device.target->name);
  copy_name(found.gcnArchName, device.arch_name);
  found.totalGlobalMem = device.target->memory_gib << 30;
  found.sharedMemPerBlock = found.maxSharedMemoryPerMultiProcessor = device.target->lds_bytes;
  found.regsPerBlock = 65536;
  found.warpSize = device.target->lanes;
  found.maxThreadsPerBlock = kMaxThreads;
  std::fill(found.maxThreadsDim, found.maxThreadsDim + 3, kMaxThreads);
  found.maxGridSize[0] = 0x7fffffff;
  found.maxGridSize[1] = found.maxGridSize[2] = kMaxGrid;
  found.clockRate = kClockKhz;
  found.totalConstMem = 0x7fffffff;
  found.major = device.target->major;
  found.minor = device.target->minor;
  found.multiProcessorCount = device.compute_units;
  found.maxThreadsPerMultiProcessor = 2048;
  found.concurrentKernels = 1;
  found.pciBusID = device.number + 1;
  found.canMapHostMemory = 1;
  if constexpr (std::is_same_v<Properties, PropertiesR0600>) copy_uuid(found.uuid, device);
  std::memcpy(out, &found, sizeof found);
  return kSuccess;
}

int attribute(int which, const Device& device, int* out) {
  switch (which) {  // numbers of hipDeviceAttribute_t
    case 3: case 8: case 85: *out = 1; return kSuccess;      // CanMapHostMemory, ConcurrentKernels, UnifiedAddressing
    case 5: *out = kClockKhz; return kSuccess;
    case 23: *out = device.target->major; return kSuccess;
    case 61: *out = device.target->minor; return kSuccess;
    case 26: case 27: case 28: case 56: *out = kMaxThreads; return kSuccess;
    case 29: *out = 0x7fffffff; return kSuccess;
    case 30: case 31: *out = kMaxGrid; return kSuccess;
    case 57: *out = 2048; return kSuccess;
    case 63: *out = device.compute_units; return kSuccess;
    case 67: *out = device.number + 1; return kSuccess;
    case 74: case 75: case 76: case 10002: *out = static_cast<int>(device.target->lds_bytes); return kSuccess;
    case 87: *out = device.target->lanes; return kSuccess;
    case 10015: *out = device.target->lanes == 32 ? 2 * device.compute_units : device.compute_units; return kSuccess;
    default:
      report("hipDeviceGetAttribute: attribute " + std::to_string(which) + " is not modelled");
      return kInvalidValue;
  }
}

}  // namespace

HIP_API int hipInit(unsigned flags) {
  return entry("hipInit", [&] { return flags != 0 ? kInvalidValue : world().devices.empty() ? kNoDevice : kSuccess; });
}

HIP_API int hipGetDeviceCount(int* count) {
  return entry("hipGetDeviceCount", [&] {
    if (count == nullptr) return kInvalidValue;
    *count = static_cast<int>(world().devices.size());
    return *count == 0 ? kNoDevice : kSuccess;
  });
}

HIP_API int hipGetDevice(int* device) {
  return entry("hipGetDevice", [&] {
    if (device == nullptr) return kInvalidValue;
    if (world().devices.empty()) return kNoDevice;
    *device = current_device();
    return kSuccess;
  });
}

HIP_API int hipSetDevice(int device) {
  return entry("hipSetDevice", [&] {
    if (world().devices.empty()) return kNoDevice;
    if (!world().has(device)) return kInvalidDevice;
    current_device() = device;
    return kSuccess;
  });
}

#if VIRTUAL_HIP_MAJOR >= 6
HIP_API int hipGetDevicePropertiesR0600(void* out, int device) {
  return entry("hipGetDevicePropertiesR0600", [&] { return properties<PropertiesR0600>(out, device); });
}

HIP_API int hipStreamGetDevice(Stream* stream, int* device) {
  return entry("hipStreamGetDevice", [&] {
    if (device == nullptr) return kInvalidValue;
    if (world().devices.empty()) return kNoDevice;
    const Stream* found = resolve(stream);
    if (found == nullptr) return kInvalidHandle;
    *device = found->device;
    return kSuccess;
  });
}
#endif

HIP_API int hipGetDeviceProperties(void* out, int device) {
  return entry("hipGetDeviceProperties", [&] { return properties<PropertiesLegacy>(out, device); });
}

HIP_API int hipDeviceGetAttribute(int* out, int which, int device) {
  return entry("hipDeviceGetAttribute", [&]() -> int {
    if (out == nullptr) return kInvalidValue;
    if (!world().has(device)) return kInvalidDevice;
    return attribute(which, device_at(device), out);
  });
}

HIP_API int hipDeviceGetName(char* out, int size, int device) {
  return entry("hipDeviceGetName", [&] {
    if (out == nullptr || size <= 0) return kInvalidValue;
    if (!world().has(device)) return kInvalidDevice;
    std::strncpy(out, device_at(device).target->name, static_cast<size_t>(size));
    out[size - 1] = 0;
    return kSuccess;
  });
}

HIP_API int hipDeviceGetUuid(char (*out)[16], int device) {
  return entry("hipDeviceGetUuid", [&] {
    if (out == nullptr) return kInvalidValue;
    if (!world().has(device)) return kInvalidDevice;
    copy_uuid(*out, device_at(device));
    return kSuccess;
  });
}

HIP_API int hipDeviceCanAccessPeer(int* out, int device, int peer) {
  return entry("hipDeviceCanAccessPeer", [&] {
    if (out == nullptr) return kInvalidValue;
    if (!world().has(device) || !world().has(peer)) return kInvalidDevice;
    *out = 0;
    return kSuccess;
  });
}

HIP_API int hipRuntimeGetVersion(int* version) {
  return entry("hipRuntimeGetVersion", [&] {
    if (version == nullptr) return kInvalidValue;
    *version = kVersion;
    return kSuccess;
  });
}

HIP_API int hipDriverGetVersion(int* version) {
  return entry("hipDriverGetVersion", [&] {
    if (version == nullptr) return kInvalidValue;
    *version = kVersion;
    return kSuccess;
  });
}
