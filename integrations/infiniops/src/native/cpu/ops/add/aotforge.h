// Implementation 8 of `Add` for Cpu: the slot of kernels that are compiled ahead of time.
#ifndef INFINI_OPS_CPU_ADD_AOTFORGE_H_
#define INFINI_OPS_CPU_ADD_AOTFORGE_H_

#include "aotforge_provider/add.h"

namespace infini::ops {

template <>
class Operator<Add, Device::Type::kCpu, 8> : public aotforge::Add<Device::Type::kCpu> {
 public:
  using aotforge::Add<Device::Type::kCpu>::Add;
};

}  // namespace infini::ops

#endif
