#include "launch.h"

#include <climits>

#include "log.h"

namespace aotforge {
namespace {

constexpr size_t kMaxSteps = 256, kMaxArguments = 256 + 8;

struct Prepared {
  const Kernel* kernel;
  const Functional* functional;
  const Choice* choice;
  Cell* cells;
  FunctionHandle function;
  uint32_t grid[3];
};

constexpr char kBuildMore[] = "./dev build --arch ARCH, with its default profile, makes a pack for all calls that PyTorch makes";

// Result of an attempt to use a value where the call may turn out not to be covered.
hipError_t uncovered(const Device& device, const Kernel& kernel, const char* reason) {
  log_advice(Level::warn, kBuildMore, "%.*s on %s: %s", static_cast<int>(kernel.name.size()), kernel.name.data(), device.arch().c_str(), reason);
  return hipErrorNotSupported;
}

void log_key(const Device& device, const Kernel& kernel, const Cell* cells) {
  if (!log_enabled(Level::warn)) return;
  std::string text;
  const Operator& op = device.dispatch().operators[kernel.operator_index];
  for (const uint16_t at : kernel.keys) {
    text += ' ';
    text += op.values[at].name;
    text += '=';
    text += std::to_string(cells[at].i);
  }
  log_advice(Level::warn, kBuildMore, "%.*s on %s: no image for%s", static_cast<int>(kernel.name.size()), kernel.name.data(),
      device.arch().c_str(), text.c_str());
}

// The integers that decide over the image, for `./dev coverage`; zeros are left out, and of pointers all but the alignment.
void log_call(const Device& device, const Operator& op, const Cell* cells) {
  if (!device.logs_calls()) return;
  std::string text;
  for (size_t at = 0; at < op.values.size(); ++at) {
    const Value& value = op.values[at];
    const int64_t number = value.type == Type::ptr ? cells[at].i & 255 : value.type == Type::f32 ? 0 : cells[at].i;
    if (number == 0) continue;
    text += ' ';
    text += value.name;
    text += '=';
    text += std::to_string(number);
  }
  log(Level::debug, "call %.*s on %s:%s", static_cast<int>(op.name.size()), op.name.data(), device.arch().c_str(), text.c_str());
}

// < 0, 0, > 0 as functional `at` sorts before, at or after the call, by arch and the first `count` keys.
int compare(const Kernel& kernel, size_t at, uint16_t arch, const Cell* cells, size_t count) {
  const Functional& f = kernel.functionals[at];
  if (f.arch != arch) return f.arch < arch ? -1 : 1;
  const int64_t* key = kernel.key_values.data() + at * kernel.keys.size();
  for (size_t i = 0; i < count; ++i) {
    const int64_t value = cells[kernel.keys[i]].i;
    if (key[i] != value) return key[i] < value ? -1 : 1;
  }
  return 0;
}

const Functional* find_functional(const Kernel& kernel, uint16_t arch, const Cell* cells) {
  const size_t keys = kernel.keys.size(), count = kernel.functionals.size();
  size_t low = 0, high = count;  // the first functional that does not sort before the call
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (compare(kernel, middle, arch, cells, keys) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const bool found = low < count && compare(kernel, low, arch, cells, kernel.ladder ? keys - 1 : keys) == 0;
  return found ? &kernel.functionals[low] : nullptr;
}

// |factor i| of a product.
uint64_t magnitude(const Predicate& p, unsigned i, const Cell* cells, bool* negative) {
  const Cell cell = cells[p.values[i]];
  *negative = (p.unsigned_mask >> i & 1) == 0 && cell.i < 0;
  return *negative ? 0 - cell.u : cell.u;
}

bool product_is_multiple(const Predicate& p, const Cell* cells) {
  const auto divisor = static_cast<uint64_t>(p.low);  // at most 32 bits, so remainders multiply in 64
  uint64_t remainder = 1;
  bool negative;
  for (unsigned i = 0; i < p.count; ++i) remainder = remainder * (magnitude(p, i, cells, &negative) % divisor) % divisor;
  return remainder % divisor == 0;
}

// Products beyond 64 bits are in no range, except that one factor of zero makes them zero.
bool product_in_range(const Predicate& p, const Cell* cells) {
  uint64_t size = 1;
  bool negative = false;
  for (unsigned i = 0; i < p.count; ++i) {
    bool sign;
    const uint64_t factor = magnitude(p, i, cells, &sign);
    if (factor == 0) return p.low <= 0 && 0 <= p.high;
    size = factor > UINT64_MAX / size ? UINT64_MAX : size * factor;
    negative ^= sign;
  }
  if (size > static_cast<uint64_t>(INT64_MAX) + negative) return false;
  const auto product = static_cast<int64_t>(negative ? 0 - size : size);
  return p.low <= product && product <= p.high;
}

bool holds(const Predicate& p, const Cell* cells) {
  const Cell cell = cells[p.values[0]];
  switch (p.test) {
    case Test::multiple_of_power: return (cell.u & static_cast<uint64_t>(p.low)) == 0;
    case Test::multiple: return cell.i % p.low == 0;
    case Test::multiple_unsigned: return cell.u % static_cast<uint64_t>(p.low) == 0;
    case Test::range: return p.low <= cell.i && cell.i <= p.high;
    case Test::range_unsigned:
      return (p.low <= 0 || cell.u >= static_cast<uint64_t>(p.low)) && p.high >= 0 && cell.u <= static_cast<uint64_t>(p.high);
    case Test::product_multiple: return product_is_multiple(p, cells);
    case Test::product_range: return product_in_range(p, cells);
  }
  return false;
}

const Choice* find_choice(const Dispatch& dispatch, const Functional& functional, const Cell* cells) {
  const Choice* choice = dispatch.choices.data() + functional.first_choice;
  for (const Choice* end = choice + functional.choice_count; choice != end; ++choice) {
    const Predicate* p = dispatch.predicates.data() + choice->first_predicate;
    const Predicate* last = p + choice->predicate_count;
    while (p != last && holds(*p, cells)) ++p;
    if (p == last) return choice;
  }
  return nullptr;
}

bool fits(const Parameter& parameter, Cell cell) {
  if (parameter.from == parameter.to) return true;
  const bool negative = parameter.from != Type::u64 && cell.i < 0;
  switch (parameter.to) {
    case Type::i32: return parameter.from == Type::u64 ? cell.u <= INT32_MAX : cell.i >= INT32_MIN && cell.i <= INT32_MAX;
    case Type::i64: return parameter.from != Type::u64 || cell.u <= INT64_MAX;
    case Type::u64: return !negative;
    default: return false;
  }
}

// Product of an axis' factors, UINT64_MAX for anything over 32 bits. False when a value is negative.
bool axis_size(const Term* term, int count, const Cell* cells, uint64_t* size) {
  uint64_t product = 1;
  bool zero = false, over = false;
  for (const Term* end = term + count; term != end; ++term) {
    const Cell cell = cells[term->value];
    if (term->type != Type::u64 && cell.i < 0) return false;
    const uint64_t factor = cell.u / term->divisor + (cell.u % term->divisor != 0);
    if (factor == 0) zero = true;
    if (zero || over) continue;
    if (factor > UINT32_MAX / product) over = true; else product *= factor;
  }
  *size = zero ? 0 : over ? UINT64_MAX : product;
  return true;
}

// The grid's three axes, all zero when one is. Null, or the reason why the launch is impossible.
const char* compute_grid(const Device& device, const Choice& choice, const Cell* cells, uint32_t* grid) {
  const Dispatch& dispatch = device.dispatch();
  const GridLimits limits = device.api().grid_limits(choice.threads);
  const Term* term = dispatch.terms.data() + choice.first_term;
  uint64_t size[3];
  for (int axis = 0; axis < 3; term += choice.term_counts[axis++])
    if (!axis_size(term, choice.term_counts[axis], cells, &size[axis])) return "a grid factor is negative";
  const bool empty = size[0] == 0 || size[1] == 0 || size[2] == 0;
  const bool over = size[0] > limits.x || size[1] > limits.yz || size[2] > limits.yz;
  if (!empty && over) return "the grid is larger than a device takes";
  for (int axis = 0; axis < 3; ++axis) grid[axis] = empty ? 0 : static_cast<uint32_t>(size[axis]);
  return nullptr;
}

// Refuses a step that no image can serve because of its grid. Conditions may depend on tensors that have not been acquired, grids do not.
hipError_t check_grid(const Device& device, const Prepared& step) {
  const Choice* choice = device.dispatch().choices.data() + step.functional->first_choice;
  const char* reason = nullptr;
  uint32_t grid[3];
  for (const Choice* end = choice + step.functional->choice_count; choice != end; ++choice)
    if ((reason = compute_grid(device, *choice, step.cells, grid)) == nullptr) return hipSuccess;
  return uncovered(device, *step.kernel, reason);
}

hipError_t prepare(const Device& device, Prepared& step) {
  const Dispatch& dispatch = device.dispatch();
  step.choice = find_choice(dispatch, *step.functional, step.cells);
  if (step.choice == nullptr) return uncovered(device, *step.kernel, "no image whose conditions hold");
  for (const Parameter& parameter : step.kernel->parameters)
    if (!fits(parameter, step.cells[parameter.value])) return uncovered(device, *step.kernel, "a value does not fit its parameter");
  if (const char* reason = compute_grid(device, *step.choice, step.cells, step.grid))
    return uncovered(device, *step.kernel, reason);
  return hipSuccess;
}

bool is_empty(const Prepared& step) { return step.grid[0] == 0; }

hipError_t start(const Device& device, const Prepared& step, StreamHandle stream) {
  void* arguments[kMaxArguments];
  static const void* const null_pointer = nullptr;
  size_t count = 0;
  for (const Parameter& parameter : step.kernel->parameters) arguments[count++] = &step.cells[parameter.value];
  for (unsigned i = 0; i < step.kernel->null_pointers; ++i) arguments[count++] = const_cast<const void**>(&null_pointer);
  if (const int null = device.api().null_argument(step.function, arguments, count); null >= 0) {
    const Operator& op = device.dispatch().operators[step.kernel->operator_index];
    const std::string_view value = op.values[step.kernel->parameters[static_cast<size_t>(null)].value].name;
    log(Level::warn, "%.*s on %s: %.*s is a null pointer", static_cast<int>(step.kernel->name.size()), step.kernel->name.data(),
        device.arch().c_str(), static_cast<int>(value.size()), value.data());
    return hipErrorInvalidValue;
  }
  const LaunchShape shape{step.grid, step.choice->threads, step.choice->shared_bytes, count};
  const hipError_t error = device.api().launch(step.function, shape, stream, arguments);
  if (error != hipSuccess)
    log(Level::error, "%.*s on %s: launch failed: %s", static_cast<int>(step.kernel->name.size()), step.kernel->name.data(),
        device.arch().c_str(), device.api().describe(error));
  return error;
}

hipError_t find_steps(const Device& device, const Operator& op, const Call& call, Prepared* steps) {
  for (size_t i = 0; i < call.required_count; ++i)
    if (!op.consulted.test(call.required[i])) {
      const Value& value = op.values[call.required[i]];
      log_advice(Level::warn, kBuildMore, "%.*s on %s: no kernel heeds %.*s", static_cast<int>(op.name.size()), op.name.data(),
                 device.arch().c_str(), static_cast<int>(value.name.size()), value.name.data());
      return hipErrorNotSupported;
    }
  for (uint32_t i = 0; i < op.kernel_count; ++i) {
    const Kernel& kernel = device.dispatch().kernels[op.first_kernel + i];
    steps[i].kernel = &kernel;
    steps[i].cells = call.cells;
    steps[i].functional = find_functional(kernel, device.arch_index(), call.cells);
    if (steps[i].functional == nullptr) {
      log_key(device, kernel, call.cells);
      return hipErrorNotSupported;
    }
    if (call.lazy_count == 0) continue;
    if (const hipError_t error = check_grid(device, steps[i]); error != hipSuccess) return error;
  }
  return hipSuccess;
}

}  // namespace

hipError_t launch(Device& device, int ordinal, const Call* calls, size_t count, StreamHandle stream) {
  const auto operator_of = [&](const Call& call) -> const Operator& {
    return device.dispatch().operators[static_cast<size_t>(call.operator_index)];
  };
  Prepared steps[kMaxSteps];
  size_t total = 0;
  for (const Call* call = calls; call != calls + count; ++call) {
    const Operator& op = operator_of(*call);
    log_call(device, op, call->cells);
    if (op.kernel_count == 0 || op.kernel_count > kMaxSteps - total) return hipErrorNotSupported;
    if (const hipError_t error = find_steps(device, op, *call, steps + total); error != hipSuccess) return error;
    total += op.kernel_count;
  }
  const CurrentDevice current(device.api(), ordinal, stream);
  if (current.ok != hipSuccess) return current.ok;
  for (const Call* call = calls; call != calls + count; ++call)
    for (size_t i = 0; i < call->lazy_count; ++i)
      if (call->lazies[i]->wanted(operator_of(*call).consulted))
        if (const hipError_t error = call->lazies[i]->fill(call->cells); error != hipSuccess) return error;
  for (size_t i = 0; i < total; ++i)
    if (const hipError_t error = prepare(device, steps[i]); error != hipSuccess) return error;
  for (size_t i = 0; i < total; ++i)
    if (!is_empty(steps[i]))
      if (const hipError_t error = device.function(steps[i].choice->slot, &steps[i].function); error != hipSuccess) return error;
  for (size_t i = 0; i < total; ++i)
    if (!is_empty(steps[i]))
      if (const hipError_t error = start(device, steps[i], stream); error != hipSuccess) return error;
  return hipSuccess;
}

}  // namespace aotforge
