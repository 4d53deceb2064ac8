// Images for processors are files for Linux.
#include "cpu_api.h"

#include "log.h"

namespace aotforge {

CpuApi::CpuApi() = default;
CpuApi::~CpuApi() = default;

hipError_t CpuApi::load() {
  log(Level::error, "images for processors are not supported on Windows");
  return hipErrorNotSupported;
}

// Never called: load() fails.
hipError_t CpuApi::device_of(StreamHandle, int*) const { return hipErrorNotSupported; }
hipError_t CpuApi::arch_name(int, char*) const { return hipErrorNotSupported; }
bool CpuApi::lower_arch(char*) const { return false; }
hipError_t CpuApi::make_current(int, StreamHandle, int64_t*) const { return hipErrorNotSupported; }
void CpuApi::restore(int64_t) const {}
hipError_t CpuApi::load_module(ModuleHandle*, const void*, size_t) const { return hipErrorNotSupported; }
hipError_t CpuApi::function(FunctionHandle*, ModuleHandle, const char*, int) const { return hipErrorNotSupported; }
hipError_t CpuApi::pointer_device(const void*, int*) const { return hipErrorNotSupported; }
int CpuApi::null_argument(FunctionHandle, void* const*, size_t) const { return -1; }
GridLimits CpuApi::grid_limits(unsigned) const { return {}; }
hipError_t CpuApi::launch(FunctionHandle, const LaunchShape&, StreamHandle, void**) const { return hipErrorNotSupported; }
const char* CpuApi::describe(hipError_t) const { return "not supported"; }

unsigned set_cpu_threads(unsigned) { return 0; }

}  // namespace aotforge
