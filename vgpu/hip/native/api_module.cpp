// Modules, kernels and launches.
#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <limits>

#include "program.h"
#include "queue.h"

using namespace virtual_hip;

namespace {

int load(Module** out, const void* image, size_t available = std::numeric_limits<size_t>::max()) {
  if (out == nullptr || image == nullptr) return kInvalidValue;
  const int number = current_device();
  int error = kSuccess;
  auto program = Program::load(image, available, *world().devices[static_cast<size_t>(number)], &error);
  if (program == nullptr) return error;
  auto made = std::make_unique<Module>(Module{number, std::move(program)});
  const std::lock_guard<std::mutex> guard(world().lock);
  *out = made.get();
  world().modules[made.get()] = std::move(made);
  return kSuccess;
}

int load_file(Module** out, const char* path) {
  if (out == nullptr || path == nullptr) return kInvalidValue;
  std::ifstream file(path, std::ios::binary);
  if (!file) return kFileNotFound;
  std::vector<char> image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return image.empty() ? kInvalidImage : load(out, image.data(), image.size());
}

int unload(Module* module) {
  World& w = world();
  const std::lock_guard<std::mutex> guard(w.lock);
  if (w.modules.count(module) == 0) return kInvalidHandle;
  for (auto at = w.functions.begin(); at != w.functions.end();) at = at->second->module == module ? w.functions.erase(at) : std::next(at);
  w.modules.erase(module);
  return kSuccess;
}

int get_function(Function** out, Module* module, const char* name) {
  if (out == nullptr || name == nullptr) return kInvalidValue;
  World& w = world();
  const std::lock_guard<std::mutex> guard(w.lock);
  if (w.modules.count(module) == 0) return kInvalidHandle;
  if (std::string(name) != module->program->kernel()) return kNotFound;
  auto function = std::make_unique<Function>(Function{module});
  *out = function.get();
  w.functions[function.get()] = std::move(function);
  return kSuccess;
}

int launch(Function* function, const LaunchShape& shape, Stream* stream, void** parameters, void** extra) {
  World& w = world();
  Stream* order = resolve(stream);
  if (order == nullptr) return kInvalidHandle;
  std::shared_ptr<Program> program;  // kept while it runs, even if the module is unloaded
  {
    const std::lock_guard<std::mutex> guard(w.lock);
    if (w.functions.count(function) == 0) return kInvalidDeviceFunction;
    if (function->module->device != order->device || current_device() != order->device) return kInvalidHandle;
    program = function->module->program;
  }
  Device& device = *w.devices[static_cast<size_t>(order->device)];
  if (const int error = program->check(device, shape)) return error;
  std::vector<uint64_t> segment;
  if (!program->arguments(parameters, extra, shape, segment)) return kInvalidValue;
  submit(order, [&device, number = order->device, program, shape, segment = std::move(segment)] {
    if (device.failed == kSuccess) program->run(device, number, shape, segment);
  });
  return kSuccess;
}

}  // namespace

HIP_API int hipModuleLoad(Module** out, const char* path) {
  return device_entry("hipModuleLoad", [&] { return load_file(out, path); });
}
HIP_API int hipModuleLoadData(Module** out, const void* image) {
  return device_entry("hipModuleLoadData", [&] { return load(out, image); });
}
HIP_API int hipModuleLoadDataEx(Module** out, const void* image, unsigned, int*, void**) {
  return device_entry("hipModuleLoadDataEx", [&] { return load(out, image); });
}
HIP_API int hipModuleUnload(Module* module) {
  return entry("hipModuleUnload", [&] { return unload(module); });
}
HIP_API int hipModuleGetFunction(Function** out, Module* module, const char* name) {
  return entry("hipModuleGetFunction", [&] { return get_function(out, module, name); });
}
HIP_API int hipModuleLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                  unsigned lds, Stream* stream, void** parameters, void** extra) {
  return device_entry("hipModuleLaunchKernel", [&] {
    return launch(function, {{gx, gy, gz}, {bx, by, bz}, lds}, stream, parameters, extra);
  });
}
