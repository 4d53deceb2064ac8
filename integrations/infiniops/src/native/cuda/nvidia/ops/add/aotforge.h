// Implementation 8 of `Add` for Nvidia: the slot of kernels that are compiled ahead of time.
#ifndef INFINI_OPS_NVIDIA_ADD_AOTFORGE_H_
#define INFINI_OPS_NVIDIA_ADD_AOTFORGE_H_

#include "aotforge_provider/add.h"

namespace infini::ops {

template <>
class Operator<Add, Device::Type::kNvidia, 8> : public aotforge::Add<Device::Type::kNvidia> {
 public:
  using aotforge::Add<Device::Type::kNvidia>::Add;
};

}  // namespace infini::ops

#endif
