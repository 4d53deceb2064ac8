#include "ops/call.h"

#include <cmath>
#include <cstring>
#include <string>

#include "launch.h"
#include "log.h"
#include "ops/error.h"
#include "ops/problem.h"

namespace aotforge::ops {
namespace {

// A number as operator values have it.
struct Number {
  int64_t bits;
  float single;
};

// A number in 64 bits: of integers itself, of floats the bits of a double.
int number_bits(const Problem& problem, size_t parameter, const Argument& argument, int64_t* out) {
  if (problem.dtype->code == AOTFORGE_FLOAT || problem.dtype->code == AOTFORGE_BFLOAT) {
    std::memcpy(out, &argument.number, sizeof *out);
    return hipSuccess;
  }
  *out = argument.integer;
  if (argument.is_integer) return hipSuccess;
  if (!(std::abs(argument.number) < 0x1p63) || std::trunc(argument.number) != argument.number)
    return refuse(hipErrorInvalidValue, "%s: %s: %g is not a 64-bit integer, and the tensors are of %s", problem.function->name,
                  problem.function->parameters[parameter].name, argument.number, problem.dtype->name);
  *out = static_cast<int64_t>(argument.number);
  return hipSuccess;
}

// The place of an option's value.
int option_place(const Function& function, size_t parameter, const Argument& argument, int64_t* out) {
  const Parameter& option = function.parameters[parameter];
  *out = argument.integer;
  if (*out >= 0 && static_cast<size_t>(*out) < option.option_count) return hipSuccess;
  std::string known;
  for (size_t i = 0; i < option.option_count; ++i)
    known += (i != 0 ? ", " : "") + std::string(option.options[i]) + " (" + std::to_string(i) + ")";
  return refuse(hipErrorInvalidValue, "%s: %s: %lld is not a valid option; those are %s", function.name, option.name,
                static_cast<long long>(argument.integer), known.c_str());
}

// Whether strides for which the form's operator has no value are what it takes for granted.
bool takes_strides(const Problem& problem, const Form& form, size_t parameter) {
  for (size_t core = 0; core < problem.function->core_count; ++core) {
    const Axis& axis = problem.cores[core];
    const bool is_given = (form.core_strides[parameter] >> core & 1) != 0 || !problem.function->parameters[parameter].has_core(core);
    if (!is_given && axis.size > 1 && axis.strides[parameter] != 1) return false;
  }
  for (size_t axis = 0; axis < problem.rank; ++axis) {
    const int64_t implied = form.dense && axis == 0 ? 1 : 0;
    if ((form.strides[parameter] >> axis & 1) == 0 && problem.axes[axis].strides[parameter] != implied) return false;
  }
  return true;
}

bool serves(const Problem& problem, const Form& form) {
  if (problem.rank > form.rank) return false;
  const int64_t row = problem.rank == 0 ? 1 : problem.axes[0].size, rows = problem.rank < 2 ? 1 : problem.axes[1].size;
  if (row < form.least || row * rows < form.least_area) return false;
  for (size_t core = 0; core < problem.function->core_count; ++core)
    if (problem.cores[core].size > INT32_MAX) return false;
  for (size_t i = 0; i < problem.function->parameter_count; ++i)
    if (problem.is_tensor(i) && !takes_strides(problem, form, i)) return false;
  return true;
}

const Form* find_form(const Problem& problem) {
  for (size_t i = 0; i < problem.function->form_count; ++i)
    if (serves(problem, problem.function->forms[i])) return &problem.function->forms[i];
  return nullptr;
}

// A launch: the first `rank` axes of a problem, axis rank - 1 in part, at the given elements.
struct Piece {
  const Problem& problem;
  const Form& form;
  const Number* numbers;
  char* data[kMaxParameters];
  size_t rank;
  int64_t outer;     // size of axis rank - 1
  int64_t elements;

  int64_t size(size_t axis) const { return axis >= rank ? 1 : axis + 1 == rank ? outer : problem.axes[axis].size; }
  Cell cell(const Source& source) const {
    Cell cell{};
    switch (source.from) {
      case From::pointer: cell.p = data[source.parameter]; break;
      case From::number: cell.i = numbers[source.parameter].bits; break;
      case From::single: cell.f = numbers[source.parameter].single; break;
      case From::size: cell.i = size(source.axis); break;
      case From::stride: cell.i = source.axis < rank ? problem.axes[source.axis].strides[source.parameter] : 0; break;
      case From::core_size: cell.i = problem.cores[source.axis].size; break;
      case From::core_stride: cell.i = problem.cores[source.axis].strides[source.parameter]; break;
      case From::count: cell.i = elements; break;
      case From::rank: cell.i = static_cast<int64_t>(rank); break;
      case From::dtype: cell.i = problem.dtype->number; break;
      case From::present: cell.i = problem.present[source.parameter] ? 1 : 0; break;
    }
    return cell;
  }
};

// Position of the form's operator in the device's pack; its interface is compared once per pack.
int find_operator(const Device& device, const Form& form, int* index) {
  *index = device.dispatch().find_operator(form.name);
  if (*index < 0) {
    log(Level::warn, "no image of %s for %s is installed", form.name, device.arch().c_str());
    return hipErrorNotSupported;
  }
  const Operator& op = device.dispatch().operators[static_cast<size_t>(*index)];
  thread_local const Operator* checked[4] = {};
  for (const Operator* known : checked)
    if (known == &op) return hipSuccess;
  if (op.interface_hash() != form.interface || op.values.size() != form.source_count) {
    log(Level::error, "operator %s of the pack has another interface than this library's", form.name);
    return hipErrorInvalidSource;
  }
  checked[reinterpret_cast<uintptr_t>(&op) / sizeof(Operator) % 4] = &op;
  return hipSuccess;
}

struct Target {
  Device* device;
  int ordinal;
  StreamHandle stream;
};

int launch_piece(const Piece& piece, const Target& target, int index) {
  Cell cells[kMaxSources];
  for (size_t i = 0; i < piece.form.source_count; ++i) cells[i] = piece.cell(piece.form.sources[i]);
  const Call request{index, cells, nullptr, 0, nullptr, 0};
  return launch(*target.device, target.ordinal, &request, 1, target.stream);
}

// Launches of at most `form.most` elements each.
int launch_pieces(const Problem& problem, const Form& form, const Number* numbers, const Target& target) {
  int index = -1;
  if (const int error = find_operator(*target.device, form, &index)) return error;
  int64_t inner = 1;
  size_t split = 0;  // axes before this one are not divided
  while (split + 1 < problem.rank && inner * problem.axes[split].size <= form.most) inner *= problem.axes[split++].size;
  const int64_t size = problem.rank == 0 ? 1 : problem.axes[split].size, step = std::max<int64_t>(form.most / inner, 1);
  int64_t others = 1;
  for (size_t axis = split + 1; axis < problem.rank; ++axis) others *= problem.axes[axis].size;
  for (int64_t other = 0; other < others; ++other)
    for (int64_t start = 0; start < size; start += step) {
      Piece piece{problem, form, numbers, {}, problem.rank == 0 ? 0 : split + 1, std::min(step, size - start), 0};
      piece.elements = inner * piece.outer;
      for (size_t i = 0; i < problem.function->parameter_count; ++i) {
        if (!problem.is_tensor(i)) continue;
        int64_t offset = problem.rank == 0 ? 0 : start * problem.axes[split].strides[i], rest = other;
        for (size_t axis = split + 1; axis < problem.rank; rest /= problem.axes[axis++].size)
          offset += rest % problem.axes[axis].size * problem.axes[axis].strides[i];
        piece.data[i] = problem.data[i] + offset * problem.bytes();
      }
      if (const int error = launch_piece(piece, target, index)) return error;
    }
  return hipSuccess;
}

int check_pointers(const Problem& problem, const Target& target) {
  const Function& function = *problem.function;
  for (size_t i = 0; i < function.parameter_count; ++i) {
    if (!problem.is_tensor(i) || problem.has_no_elements(i)) continue;
    int found = -1;
    if (target.device->api().pointer_device(problem.data[i], &found) != hipSuccess)
      return refuse(hipErrorInvalidValue, "%s: %s: data is not memory of %s: a pointer to host memory?", function.name,
                    function.parameters[i].name, target.device->api().name());
    if (found >= 0 && found != problem.device_id)
      return refuse(hipErrorInvalidDevice, "%s: %s: data is memory of device %d, and the tensor is on device %d", function.name,
                    function.parameters[i].name, found, problem.device_id);
  }
  return hipSuccess;
}

int run(State& state, const Problem& problem, const Form& form, const Number* numbers, StreamHandle stream) {
  const Api api = problem.device_type == AOTFORGE_DEVICE_ROCM   ? Api::hip
                  : problem.device_type == AOTFORGE_DEVICE_CUDA ? Api::cuda
                                                                : Api::cpu;
  Target target{nullptr, -1, stream};
  if (const int error = state.device(api, stream, &target.device, &target.ordinal)) return error;
  if (target.ordinal != problem.device_id)
    return refuse(hipErrorInvalidDevice, "%s: stream: it belongs to device %d, and the tensors are on device %d%s", problem.function->name,
                  target.ordinal, problem.device_id, stream == nullptr ? ": a null stream is that of the current device" : "");
  if (const int error = check_pointers(problem, target)) return error;
  return launch_pieces(problem, form, numbers, target);
}

int checked_call(const Function& function, const Argument* arguments, StreamHandle stream) {
  Problem problem;
  if (const int error = make_problem(function, arguments, problem)) return error;
  Number numbers[kMaxParameters] = {};
  for (size_t i = 0; i < function.parameter_count; ++i)
    if (function.parameters[i].kind == Kind::option) {
      if (const int error = option_place(function, i, arguments[i], &numbers[i].bits)) return error;
    } else if (function.parameters[i].kind == Kind::number) {
      numbers[i].single = static_cast<float>(arguments[i].number);
      if (const int error = number_bits(problem, i, arguments[i], &numbers[i].bits)) return error;
    }
  if (problem.is_empty) return hipSuccess;
  merge_axes(problem);
  if (const int error = check_overlap(problem)) return error;
  const Form* form = find_form(problem);
  if (form == nullptr)
    return refuse(hipErrorNotSupported, "%s: %s: no form of this function takes these strides and %zu batch axes after merging", function.name,
                  function.parameters[problem.output].name, problem.rank);
  LogCapture captured;
  const int error = guarded([&](State& state) {
    return static_cast<hipError_t>(run(state, problem, *form, numbers, stream));
  });
  if (error != hipSuccess && last_error()[0] == '\0')
    return refuse(error, "%s: %s", function.name, captured.text()[0] != '\0' ? captured.text() : "the call failed in the driver");
  return error;
}

}  // namespace

int call(const Function& function, const Argument* arguments, void* stream) {
  clear_error();
  return checked_call(function, arguments, stream);
}

}  // namespace aotforge::ops
