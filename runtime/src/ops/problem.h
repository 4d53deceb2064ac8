// A checked call of a function: tensors of one device and element type, whose batch axes are those of the output.
#pragma once

#include "ops/function.h"

namespace aotforge::ops {

// Strides by parameter, in elements.
struct Axis {
  int64_t size;
  int64_t strides[kMaxParameters];
};

// By parameter; entries of numbers and of inputs that were left out are not used. `axes` are the batch axes, the innermost first; `cores` those of Function::cores, with
// stride 0 in tensors that lack them. `elements` counts batch elements; `is_empty`: the output has none.
struct Problem {
  const Function* function;
  const ElementType* dtype;
  size_t output;
  char* data[kMaxParameters];
  bool present[kMaxParameters];
  Axis cores[kMaxCores];
  Axis axes[kMaxAxes];
  size_t rank;
  int64_t elements;
  bool is_empty;
  int32_t device_type, device_id;

  bool is_tensor(size_t parameter) const { return present[parameter]; }
  // Of an output that has some: core axes of the tensor are empty.
  bool has_no_elements(size_t parameter) const {
    for (size_t core = 0; core < function->core_count; ++core)
      if (cores[core].size == 0 && function->parameters[parameter].has_core(core)) return true;
    return false;
  }
  int64_t bytes() const { return dtype->bits / 8; }
  size_t axis_count() const { return function->core_count + rank; }
  const Axis& axis(size_t at) const { return at < function->core_count ? cores[at] : axes[at - function->core_count]; }
};

// Checks everything that does not need a driver. 0, or an error with its text.
int make_problem(const Function& function, const Argument* arguments, Problem& out);

// Drops batch axes of size 1, orders the others by the output's strides, and merges those that are one in every tensor, also with
// independent core axes. Axis 1 is then one along which an input that is strided along axis 0 is contiguous, if there is one.
void merge_axes(Problem& problem);

// Of a merged problem: elements of the output share memory with each other, or with an input in a way that the function does not allow.
int check_overlap(const Problem& problem);

}  // namespace aotforge::ops
