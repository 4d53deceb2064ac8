// What the library needs of a vendor's driver: one interface, with HIP, CUDA and this machine's processor behind it. Drivers are looked
// up at run time.
//
// Results are hipError_t: CUDA's CUresult has the same numbers for the same errors.
#pragma once

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

namespace aotforge {

constexpr size_t kArchNameSize = 256;

enum class Api : unsigned { hip, cuda, cpu };
constexpr unsigned kApiCount = 3;

// Opaque handles of a driver.
using ModuleHandle = struct OpaqueModule*;
using FunctionHandle = struct OpaqueFunction*;
using StreamHandle = void*;

// The largest numbers of workgroups along x, and along y and z.
struct GridLimits {
  uint64_t x, yz;
};

struct LaunchShape {
  const uint32_t* grid;
  unsigned threads, shared_bytes;
  size_t argument_count;
};

class DeviceApi {
 public:
  // For log lines.
  virtual const char* name() const = 0;

  // Device that work on `stream` runs on.
  virtual hipError_t device_of(StreamHandle stream, int* device) const = 0;

  // The arch's name as packs have it ("gfx90a", "sm_90"), zero-terminated, in a buffer of kArchNameSize.
  virtual hipError_t arch_name(int device, char* name) const = 0;

  // Replaces an arch's name by that of the next one whose images the device executes, too. False: there is none.
  virtual bool lower_arch(char*) const { return false; }

  // Make the device of `stream` current for this thread. `token` goes to restore(), which is called only after success.
  virtual hipError_t make_current(int device, StreamHandle stream, int64_t* token) const = 0;
  virtual void restore(int64_t token) const = 0;

  // The device is current. `image` stays valid as long as the module.
  virtual hipError_t load_module(ModuleHandle* module, const void* image, size_t size) const = 0;
  virtual hipError_t function(FunctionHandle* out, ModuleHandle module, const char* symbol, int device) const = 0;

  // Device of the memory at `pointer`; -1 for memory that every device may use. hipErrorInvalidValue: the driver does not know it.
  virtual hipError_t pointer_device(const void* pointer, int* device) const = 0;

  // The first argument that is a null pointer where the image's kernel needs memory; -1: there is none, or the image does not state it.
  virtual int null_argument(FunctionHandle, void* const*, size_t) const { return -1; }

  virtual GridLimits grid_limits(unsigned threads) const = 0;
  virtual hipError_t launch(FunctionHandle function, const LaunchShape& shape, StreamHandle stream, void** arguments) const = 0;

  // For log lines; never null.
  virtual const char* describe(hipError_t error) const = 0;

 protected:
  DeviceApi() = default;
  DeviceApi(const DeviceApi&) = default;
  DeviceApi& operator=(const DeviceApi&) = default;
  ~DeviceApi() = default;
};

// Makes the device of `stream` current during its lifetime and restores what was. `ok` is not hipSuccess when it cannot.
class CurrentDevice {
 public:
  CurrentDevice(const DeviceApi& api, int device, StreamHandle stream) : ok(api.make_current(device, stream, &token_)), api_(api) {}
  ~CurrentDevice() {
    if (ok == hipSuccess) api_.restore(token_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int64_t token_ = -1;

 public:
  const hipError_t ok;

 private:
  const DeviceApi& api_;
};

}  // namespace aotforge
