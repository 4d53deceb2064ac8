// This machine's processor as a device: images are machine code for a level of x86-64, whose programs run on a pool of threads.
//
// There is one device, 0, and no stream but null: a call has finished when it returns.
#pragma once

#include "device_api.h"

namespace aotforge {

class CpuPool;

class CpuApi final : public DeviceApi {
 public:
  CpuApi();
  ~CpuApi();

  // Find the processor's level. hipErrorNotSupported: no images exist for this processor or system; hipErrorNoBinaryForGpu:
  // AOTFORGE_CPU_LEVEL is a level that the processor lacks.
  hipError_t load();

  const char* name() const override { return "CPU"; }
  hipError_t device_of(StreamHandle stream, int* device) const override;
  hipError_t arch_name(int device, char* name) const override;
  bool lower_arch(char* name) const override;
  hipError_t make_current(int device, StreamHandle stream, int64_t* token) const override;
  void restore(int64_t token) const override;
  hipError_t load_module(ModuleHandle* module, const void* image, size_t size) const override;
  hipError_t function(FunctionHandle* out, ModuleHandle module, const char* symbol, int device) const override;
  hipError_t pointer_device(const void* pointer, int* device) const override;
  int null_argument(FunctionHandle function, void* const* arguments, size_t count) const override;
  GridLimits grid_limits(unsigned threads) const override;
  hipError_t launch(FunctionHandle function, const LaunchShape& shape, StreamHandle stream, void** arguments) const override;
  const char* describe(hipError_t error) const override;

 private:
  unsigned level_ = 0;       // position among the levels, the highest first
  CpuPool* pool_ = nullptr;  // from load() on
};

// The most threads of a launch that the calling thread makes; 0: as the environment has it. Returns what was set before.
unsigned set_cpu_threads(unsigned threads);

}  // namespace aotforge
