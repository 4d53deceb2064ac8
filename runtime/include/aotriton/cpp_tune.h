// Base of the arguments that tuning builds of the interface use. A release library has none.
#pragma once

#include <aotriton/config.h>

namespace AOTRITON_NS {

struct CppTune {};

}  // namespace AOTRITON_NS
