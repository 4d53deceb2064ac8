// hipDeviceProp_t as programs were compiled against it. Names and order are those of HIP's public headers; sizes and offsets are asserted against
// HIP's public headers (R0600: 1472 bytes, gcnArchName at 1160; HIP 5: 792 bytes, gcnArchName at 396).
#pragma once

#include <cstddef>

namespace virtual_hip {

struct PropertiesR0600 {  // ROCm 6 and later
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode;
  int textures_and_surfaces[40];  // maxTexture1D to maxSurfaceCubemapLayered: none
  size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount, unifiedAddressing;
  int memoryClockRate, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor;
  int streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory;
  char unused[1160 - 656];  // isMultiGpuBoard to hipReserved
  char gcnArchName[256];
  size_t maxSharedMemoryPerMultiProcessor;
  char tail[48];
};
static_assert(sizeof(PropertiesR0600) == 1472 && offsetof(PropertiesR0600, gcnArchName) == 1160, "layout of ROCm 6");
static_assert(offsetof(PropertiesR0600, multiProcessorCount) == 388 && offsetof(PropertiesR0600, managedMemory) == 652, "layout of ROCm 6");

struct PropertiesLegacy {  // HIP 5; what the name without a suffix still gives in later releases
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  int clockRate, memoryClockRate, memoryBusWidth;
  size_t totalConstMem;
  int major, minor, multiProcessorCount, l2CacheSize, maxThreadsPerMultiProcessor, computeMode, clockInstructionRate;
  unsigned arch;
  int concurrentKernels, pciDomainID, pciBusID, pciDeviceID;
  size_t maxSharedMemoryPerMultiProcessor;
  int isMultiGpuBoard, canMapHostMemory, gcnArch;
  char gcnArchName[256];
  char tail[792 - 396 - 256];
};
static_assert(sizeof(PropertiesLegacy) == 792 && offsetof(PropertiesLegacy, gcnArchName) == 396, "layout of HIP 5");

}  // namespace virtual_hip
