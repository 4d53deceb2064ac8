// Calls of the operator library's functions: check, merge axes, choose a form, launch.
#pragma once

#include "ops/function.h"

namespace aotforge::ops {

// The result of an entry point. `arguments` has one of each parameter.
int call(const Function& function, const Argument* arguments, void* stream);

}  // namespace aotforge::ops
