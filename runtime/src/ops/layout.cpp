// Order and merging of axes, and overlap of memory.
#include <hip/hip_runtime.h>

#include <algorithm>
#include <numeric>

#include "ops/error.h"
#include "ops/problem.h"

namespace aotforge::ops {
namespace {

bool is_one_axis(const Problem& problem, const Axis& inner, const Axis& outer) {
  for (size_t i = 0; i < problem.function->parameter_count; ++i)
    if (problem.is_tensor(i) && outer.strides[i] != inner.strides[i] * inner.size) return false;
  return true;
}

// The output's strides become positive: the axis starts at its other end.
void turn_axis(Problem& problem, Axis& axis) {
  for (size_t i = 0; i < problem.function->parameter_count; ++i) {
    if (!problem.is_tensor(i)) continue;
    problem.data[i] += (axis.size - 1) * axis.strides[i] * problem.bytes();
    axis.strides[i] = -axis.strides[i];
  }
}

// Whether the sum of step * x over terms, 0 <= x <= most, has a value. Positive steps.
struct Term {
  int64_t step, most;
};

class Sums {
 public:
  void add(int64_t step, int64_t most) {
    if (step == 0 || most == 0) return;
    for (size_t i = 0; i < count_; ++i)
      if (terms_[i].step == step) {
        terms_[i].most += most;
        return;
      }
    terms_[count_++] = {step, most};
  }

  // True also when it takes too long to find out.
  bool reach(__int128 target) {
    std::sort(terms_, terms_ + count_, [](const Term& a, const Term& b) { return a.step > b.step; });
    highest_[count_] = 0;
    divisor_[count_] = 0;
    for (size_t i = count_; i-- > 0;) {
      highest_[i] = highest_[i + 1] + static_cast<__int128>(terms_[i].step) * terms_[i].most;
      divisor_[i] = std::gcd(divisor_[i + 1], terms_[i].step);
    }
    work_ = 100000;
    return search(0, target);
  }

 private:
  bool search(size_t at, __int128 target) {
    if (target < 0 || target > highest_[at]) return false;
    if (at == count_) return target == 0;
    if (target % divisor_[at] != 0) return false;
    const __int128 step = terms_[at].step, rest = target - highest_[at + 1];
    const __int128 least = rest > 0 ? (rest + step - 1) / step : 0;
    const __int128 most = std::min<__int128>(terms_[at].most, target / step);
    for (__int128 x = least; x <= most; ++x) {
      if (--work_ < 0) return true;
      if (search(at + 1, target - x * step)) return true;
    }
    return false;
  }

  Term terms_[2 * kMaxAxes + 2];
  size_t count_ = 0;
  __int128 highest_[2 * kMaxAxes + 3];
  int64_t divisor_[2 * kMaxAxes + 3];
  int work_ = 0;
};

// First byte and the byte after the last one, from the first element.
struct Range {
  int64_t low, high;
};

Range range_of(const Problem& problem, size_t parameter) {
  Range range{0, problem.bytes()};
  for (size_t axis = 0; axis < problem.rank; ++axis) {
    const int64_t reach = (problem.axes[axis].size - 1) * problem.axes[axis].strides[parameter] * problem.bytes();
    (reach < 0 ? range.low : range.high) += reach;
  }
  return range;
}

bool is_same(const Problem& problem, size_t parameter) {
  if (problem.data[parameter] != problem.data[problem.output]) return false;
  for (size_t axis = 0; axis < problem.rank; ++axis)
    if (problem.axes[axis].strides[parameter] != problem.axes[axis].strides[problem.output]) return false;
  return true;
}

bool shares_memory(const Problem& problem, size_t parameter) {
  const Range out = range_of(problem, problem.output), in = range_of(problem, parameter);
  const auto distance = static_cast<__int128>(reinterpret_cast<intptr_t>(problem.data[parameter])) -
                        reinterpret_cast<intptr_t>(problem.data[problem.output]);
  if (distance + in.low >= out.high || distance + in.high <= out.low) return false;
  // a byte of both: offset in the output - offset in the input = distance; the input's offsets counted down from its last byte
  Sums sums;
  for (size_t axis = 0; axis < problem.rank; ++axis) {
    const Axis& a = problem.axes[axis];
    sums.add(a.strides[problem.output] * problem.bytes(), a.size - 1);
    sums.add(std::abs(a.strides[parameter]) * problem.bytes(), a.size - 1);
  }
  sums.add(1, 2 * (problem.bytes() - 1));
  return sums.reach(distance + in.high - 1);
}

}  // namespace

void merge_axes(Problem& problem) {
  const auto stride = [&](const Axis& axis) { return axis.strides[problem.output]; };
  size_t kept = 0;
  for (size_t axis = 0; axis < problem.rank; ++axis) {
    if (problem.axes[axis].size == 1) continue;
    Axis current = problem.axes[axis];
    if (stride(current) < 0) turn_axis(problem, current);
    size_t at = kept++;
    for (; at > 0 && stride(problem.axes[at - 1]) > stride(current); --at) problem.axes[at] = problem.axes[at - 1];
    problem.axes[at] = current;
  }
  problem.rank = kept > 0 ? 1 : 0;
  for (size_t axis = 1; axis < kept; ++axis) {
    Axis& inner = problem.axes[problem.rank - 1];
    const Axis outer = problem.axes[axis];
    if (is_one_axis(problem, inner, outer)) {
      inner.size *= outer.size;
    } else {
      problem.axes[problem.rank++] = outer;
    }
  }
}

int check_overlap(const Problem& problem) {
  const Function& function = *problem.function;
  const char* output = function.parameters[problem.output].name;
  int64_t extent = 1;  // elements from the first to behind the last of the axes so far
  for (size_t axis = 0; axis < problem.rank; ++axis) {
    const int64_t stride = problem.axes[axis].strides[problem.output];
    if (stride == 0) return refuse(hipErrorInvalidValue, "%s: %s is broadcast: an axis with several elements has stride 0", function.name, output);
    if (stride < extent) return refuse(hipErrorInvalidValue, "%s: %s: its strides let elements overlap", function.name, output);
    extent += (problem.axes[axis].size - 1) * stride;
  }
  for (size_t i = 0; i < function.parameter_count; ++i)
    if (function.parameters[i].kind == Kind::input && !is_same(problem, i) && shares_memory(problem, i))
      return refuse(hipErrorInvalidValue, "%s: %s overlaps %s: their elements share memory, but not one by one", function.name, output,
                    function.parameters[i].name);
  return hipSuccess;
}

}  // namespace aotforge::ops
