// A checked call of an elementwise function: tensors of one device and element type, broadcast to the output's shape.
#pragma once

#include "ops/function.h"

namespace aotforge::ops {

// Strides by parameter, in elements.
struct Axis {
  int64_t size;
  int64_t strides[kMaxParameters];
};

// By parameter; entries of numbers are not used. `axes` has the innermost first.
struct Problem {
  const Function* function;
  const ElementType* dtype;
  size_t output;
  char* data[kMaxParameters];
  Axis axes[kMaxAxes];
  size_t rank;
  int64_t elements;
  int32_t device_type, device_id;

  bool is_tensor(size_t parameter) const { return function->parameters[parameter].kind != Kind::number; }
  int64_t bytes() const { return dtype->bits / 8; }
};

// Checks everything that does not need a driver. 0, or an error with its text.
int make_problem(const Function& function, const Argument* arguments, Problem& out);

// Drops axes of size 1, orders the others by the output's strides, and merges axes that are one in every tensor.
void merge_axes(Problem& problem);

// Of a merged problem: elements of the output share memory with each other, or with other elements of an input.
int check_overlap(const Problem& problem);

}  // namespace aotforge::ops
