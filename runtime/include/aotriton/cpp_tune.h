// Base of the arguments that tuning builds of the interface use. A release library has none.
#pragma once

#include <aotriton/config.h>

namespace AOTRITON_NS::v2 {

// Kernel indices with a meaning of their own in tuning builds.
enum CppTuneSpecialKernelIndex : int {
  kDefault = -1,
  kSkipGPUCall = -2,
};

struct CppTune {};

}  // namespace AOTRITON_NS::v2
