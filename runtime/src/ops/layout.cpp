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

  static constexpr size_t kMost = 2 * (kMaxAxes + kMaxCores) + 1;  // axes of two tensors, bytes of an element
  Term terms_[kMost];
  size_t count_ = 0;
  __int128 highest_[kMost + 1];
  int64_t divisor_[kMost + 1];
  int work_ = 0;
};

// First byte and the byte after the last one, from the first element.
struct Range {
  int64_t low, high;
};

Range range_of(const Problem& problem, size_t parameter) {
  Range range{0, problem.bytes()};
  for (size_t at = 0; at < problem.axis_count(); ++at) {
    const int64_t reach = (problem.axis(at).size - 1) * problem.axis(at).strides[parameter] * problem.bytes();
    (reach < 0 ? range.low : range.high) += reach;
  }
  return range;
}

bool is_same(const Problem& problem, size_t parameter) {
  if (problem.data[parameter] != problem.data[problem.output]) return false;
  for (size_t at = 0; at < problem.axis_count(); ++at)
    if (problem.axis(at).strides[parameter] != problem.axis(at).strides[problem.output]) return false;
  return true;
}

bool shares_memory(const Problem& problem, size_t parameter) {
  const Range out = range_of(problem, problem.output), in = range_of(problem, parameter);
  const auto distance = static_cast<__int128>(reinterpret_cast<intptr_t>(problem.data[parameter])) -
                        reinterpret_cast<intptr_t>(problem.data[problem.output]);
  if (distance + in.low >= out.high || distance + in.high <= out.low) return false;
  // a byte of both: offset in the output - offset in the input = distance; the output's offsets counted from its first byte, the input's
  // down from its last
  Sums sums;
  for (size_t at = 0; at < problem.axis_count(); ++at) {
    const Axis& a = problem.axis(at);
    sums.add(std::abs(a.strides[problem.output]) * problem.bytes(), a.size - 1);
    sums.add(std::abs(a.strides[parameter]) * problem.bytes(), a.size - 1);
  }
  sums.add(1, 2 * (problem.bytes() - 1));
  return sums.reach(distance + in.high - 1 - out.low);
}

// Whether a batch axis extends a core axis, and tensors without that core axis are broadcast along it.
bool extends(const Problem& problem, const Axis& core, const Axis& batch, size_t place) {
  if (core.size * static_cast<__int128>(batch.size) > INT32_MAX) return false;
  for (size_t i = 0; i < problem.function->parameter_count; ++i) {
    if (!problem.is_tensor(i)) continue;
    const bool has = problem.function->parameters[i].has_core(place);
    if (has ? core.size > 1 && batch.strides[i] != core.strides[i] * core.size : batch.strides[i] != 0) return false;
  }
  return true;
}

// Merges batch axes into a core axis along which results are independent. One of size 1 has no strides of its own.
void extend_core(Problem& problem, size_t place) {
  Axis& core = problem.cores[place];
  for (size_t at = 0; at < problem.rank;) {
    const Axis batch = problem.axes[at];
    if (!extends(problem, core, batch, place)) {
      ++at;
      continue;
    }
    for (size_t i = 0; core.size == 1 && i < problem.function->parameter_count; ++i) core.strides[i] = batch.strides[i];
    core.size *= batch.size;
    std::move(problem.axes + at + 1, problem.axes + problem.rank, problem.axes + at);
    --problem.rank;
    at = 0;
  }
}

// Moves the axis along which a strided input is contiguous next to axis 0: blocks of both read and write complete cache lines.
void pair_axes(Problem& problem) {
  for (size_t i = 0; problem.rank > 2 && i < problem.function->parameter_count; ++i) {
    if (!problem.is_tensor(i) || std::abs(problem.axes[0].strides[i]) <= 1) continue;
    for (size_t axis = 2; axis < problem.rank; ++axis) {
      if (std::abs(problem.axes[axis].strides[i]) != 1) continue;
      std::rotate(problem.axes + 1, problem.axes + axis, problem.axes + axis + 1);
      return;
    }
  }
}

// Refuses an output whose elements share memory: strides 0, or axes of which none is proven to step over the ones below it.
int check_output(const Problem& problem) {
  struct Step {
    int64_t stride, size;
  };
  const Function& function = *problem.function;
  const Parameter& output = function.parameters[problem.output];
  Step steps[kMaxAxes + kMaxCores];
  size_t count = 0;
  for (size_t at = 0; at < problem.axis_count(); ++at) {
    const Axis& axis = problem.axis(at);
    if (axis.size == 1 || (at < function.core_count && !output.has_core(at))) continue;
    const int64_t stride = std::abs(axis.strides[problem.output]);
    size_t place = count++;
    for (; place > 0 && steps[place - 1].stride > stride; --place) steps[place] = steps[place - 1];
    steps[place] = {stride, axis.size};
  }
  int64_t extent = 1;  // elements from the first to behind the last of the axes so far
  for (const Step* step = steps; step != steps + count; ++step) {
    if (step->stride == 0)
      return refuse(hipErrorInvalidValue, "%s: %s is broadcast: an axis with several elements has stride 0", function.name, output.name);
    if (step->stride < extent) return refuse(hipErrorInvalidValue, "%s: %s: its strides let elements overlap", function.name, output.name);
    extent += (step->size - 1) * step->stride;
  }
  return hipSuccess;
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
  for (size_t core = 0; core < problem.function->core_count; ++core)
    if ((problem.function->independent >> core & 1) != 0) extend_core(problem, core);
  pair_axes(problem);
}

int check_overlap(const Problem& problem) {
  const Function& function = *problem.function;
  const char* output = function.parameters[problem.output].name;
  if (const int error = check_output(problem)) return error;
  for (size_t i = 0; i < function.parameter_count; ++i) {
    const Parameter& input = function.parameters[i];
    if (input.kind != Kind::input || !problem.is_tensor(i) || problem.has_no_elements(i) || (input.reused && is_same(problem, i)) || !shares_memory(problem, i)) continue;
    return refuse(hipErrorInvalidValue, "%s: %s overlaps %s: %s", function.name, output, input.name,
                  input.reused ? "their elements share memory, but not one by one" : "they must not share memory");
  }
  return hipSuccess;
}

}  // namespace aotforge::ops
