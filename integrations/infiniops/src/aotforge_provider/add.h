// InfiniOps' operator `Add` on the operator library, for one device.
#ifndef INFINI_OPS_AOTFORGE_PROVIDER_ADD_H_
#define INFINI_OPS_AOTFORGE_PROVIDER_ADD_H_

#include "aotforge_provider/view.h"
#include "base/add.h"

namespace infini::ops::aotforge {

template <Device::Type kDev>
class Add : public ::infini::ops::Add {
 public:
  using ::infini::ops::Add::Add;
  using ::infini::ops::Add::operator();

  void operator()(const Tensor input, const Tensor other, const double alpha, Tensor out) const override {
    const aotforge_tensor left = View<kDev>(input), right = View<kDev>(other), result = View<kDev>(out);
    Check(aotforge_add(&left, &right, alpha, &result, this->stream_));
  }
};

}  // namespace infini::ops::aotforge

#endif
