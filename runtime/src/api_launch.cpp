// aotforge_launch: any packed operator by named values.
#include <aotforge/launch.h>

#include <algorithm>
#include <string_view>

#include "launch.h"
#include "log.h"

namespace aotforge {
namespace {

hipError_t complain(const char* op, const char* value, const char* reason) {
  log(Level::warn, "aotforge_launch: %s: %s: %s", op, value, reason);
  return hipErrorInvalidValue;
}

Cell cell_of(const aotforge_value& value) {
  Cell cell{};
  switch (value.type) {
    case AOTFORGE_PTR: cell.p = value.as.ptr; break;
    case AOTFORGE_I32: cell.i = value.as.i32; break;
    case AOTFORGE_I64: cell.i = value.as.i64; break;
    case AOTFORGE_U64: cell.u = value.as.u64; break;
    default: cell.f = value.as.f32; break;
  }
  return cell;
}

hipError_t gather(const char* name, const Operator& op, const aotforge_value* values, size_t count, Cell* cells) {
  ValueSet given;
  for (size_t i = 0; i < count; ++i) {
    if (values[i].name == nullptr) return complain(name, "(null)", "value without a name");
    const std::string_view wanted = values[i].name;
    const auto found = std::find_if(op.values.begin(), op.values.end(), [&](const Value& value) { return value.name == wanted; });
    if (found == op.values.end()) return complain(name, values[i].name, "the operator has no such value");
    const auto at = static_cast<size_t>(found - op.values.begin());
    if (given.test(at)) return complain(name, values[i].name, "given twice");
    if (values[i].type != static_cast<int32_t>(op.values[at].type)) return complain(name, values[i].name, "is of another type");
    given.set(at);
    cells[at] = cell_of(values[i]);
  }
  for (size_t at = 0; at < op.values.size(); ++at)
    if (!given.test(at)) return complain(name, std::string(op.values[at].name).c_str(), "is missing");
  return hipSuccess;
}

struct Request {
  const char* name;
  const aotforge_value* values;
  size_t count;
};

hipError_t launch_named(State& state, const Request& request, Api api, StreamHandle stream) {
  const auto [name, values, count] = request;
  if (name == nullptr) return complain("(null)", "op", "is a null pointer");
  if (values == nullptr && count != 0) return complain(name, "values", "is a null pointer");
  Device* device = nullptr;
  int ordinal = -1;
  if (const hipError_t error = state.device(api, stream, &device, &ordinal); error != hipSuccess) return error;
  const int index = device->dispatch().find_operator(name);
  if (index < 0) {
    log(Level::warn, "aotforge_launch: %s: no operator of that name for %s", name, device->arch().c_str());
    return hipErrorNotSupported;
  }
  Cell cells[kMaxValues];
  const Operator& op = device->dispatch().operators[static_cast<size_t>(index)];
  if (const hipError_t error = gather(name, op, values, count, cells); error != hipSuccess) return error;
  const Call call{index, cells, nullptr, 0, nullptr, 0};
  return launch(*device, ordinal, &call, 1, stream);
}

}  // namespace
}  // namespace aotforge

extern "C" int aotforge_launch(const char* op, const aotforge_value* values, size_t count, int32_t device, void* stream) {
  if (device != AOTFORGE_HIP && device != AOTFORGE_CUDA && device != AOTFORGE_CPU) {
    aotforge::log(aotforge::Level::warn, "aotforge_launch: device %d is none of AOTFORGE_HIP, AOTFORGE_CUDA, AOTFORGE_CPU", device);
    return hipErrorInvalidDevice;
  }
  const aotforge::Api api = device == AOTFORGE_HIP    ? aotforge::Api::hip
                            : device == AOTFORGE_CUDA ? aotforge::Api::cuda
                                                      : aotforge::Api::cpu;
  const hipError_t result = aotforge::guarded([&](aotforge::State& state) {
    return aotforge::launch_named(state, {op, values, count}, api, stream);
  });
  return api == aotforge::Api::hip ? aotforge::announced(result) : result;  // the others keep no last error
}

extern "C" uint32_t aotforge_cpu_threads(uint32_t threads) { return aotforge::set_cpu_threads(threads); }
