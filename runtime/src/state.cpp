#include "state.h"

#include "log.h"
#include "process.h"

#ifdef AOTFORGE_STATIC_LIBSTDCXX
namespace __gnu_cxx {
void __freeres();  // frees libstdc++'s reserve for exceptions; ours alone when it is linked statically
}
#endif

namespace aotforge {
namespace {

// Constant-initialised and trivially destroyed, so there is no order to get wrong.
std::atomic<State*> g_state{nullptr};
std::atomic<unsigned> g_inside{0};
std::atomic<bool> g_fork_handled{false};

void after_fork_in_child() {
  g_state.store(nullptr);  // abandoned, not freed: another thread of the parent may have held its locks
  g_inside.store(0);
}

State* current_state() {
  if (State* state = g_state.load(std::memory_order_acquire)) return state;
  if (!g_fork_handled.exchange(true) && !in_forked_child(after_fork_in_child)) {
    g_fork_handled.store(false);
    throw std::bad_alloc();
  }
  auto fresh = std::make_unique<State>();
  State* expected = nullptr;
  if (!g_state.compare_exchange_strong(expected, fresh.get())) return expected;
  return fresh.release();
}

}  // namespace

// A call in another thread keeps the state alive: it saw the pointer before we took it away, so it had counted itself before that.
void unload() {
  State* state = g_state.exchange(nullptr);
  if (g_inside.load() != 0) return;
  delete state;
#ifdef AOTFORGE_STATIC_LIBSTDCXX
  __gnu_cxx::__freeres();
#endif
}

Entry::Entry() {
  g_inside.fetch_add(1);
  try {
    state_ = current_state();
  } catch (...) {
    g_inside.fetch_sub(1);
    throw;
  }
}

Entry::~Entry() { g_inside.fetch_sub(1, std::memory_order_release); }

hipError_t State::hip(const HipApi** out) {
  *out = hip_ready_.load(std::memory_order_acquire);
  if (*out != nullptr) return hipSuccess;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (hip_ready_.load(std::memory_order_relaxed) == nullptr) {
    HipApi fresh;
    if (const hipError_t error = fresh.load(); error != hipSuccess) return error;
    keep(fresh);
  }
  *out = &hip_;
  return hipSuccess;
}

const HipApi* State::hip_if_loaded() {
  if (const HipApi* ready = hip_ready_.load(std::memory_order_acquire)) return ready;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const HipApi* ready = hip_ready_.load(std::memory_order_relaxed)) return ready;
  HipApi fresh;
  return fresh.load_present() ? keep(fresh) : nullptr;
}

const HipApi* State::keep(const HipApi& found) {
  hip_ = found;
  hip_ready_.store(&hip_, std::memory_order_release);
  return &hip_;
}

hipError_t State::cuda(const CudaApi** out) {
  *out = cuda_ready_.load(std::memory_order_acquire);
  if (*out != nullptr) return hipSuccess;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (cuda_ready_.load(std::memory_order_relaxed) == nullptr) {
    CudaApi fresh;
    if (const hipError_t error = fresh.load(); error != hipSuccess) return error;
    cuda_ = fresh;
    cuda_ready_.store(&cuda_, std::memory_order_release);
  }
  *out = &cuda_;
  return hipSuccess;
}

hipError_t State::cpu(const CpuApi** out) {
  *out = cpu_ready_.load(std::memory_order_acquire);
  if (*out != nullptr) return hipSuccess;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (cpu_ready_.load(std::memory_order_relaxed) == nullptr) {
    if (const hipError_t error = cpu_.load(); error != hipSuccess) return error;
    cpu_ready_.store(&cpu_, std::memory_order_release);
  }
  *out = &cpu_;
  return hipSuccess;
}

hipError_t State::find_api(Api api, const DeviceApi** out) {
  if (api == Api::cpu) {
    const CpuApi* found = nullptr;
    const hipError_t error = cpu(&found);
    *out = found;
    return error;
  }
  if (api == Api::hip) {
    const HipApi* found = nullptr;
    const hipError_t error = hip(&found);
    *out = found;
    return error;
  }
  const CudaApi* found = nullptr;
  const hipError_t error = cuda(&found);
  *out = found;
  return error;
}

hipError_t State::device(Api which, StreamHandle stream, Device** out, int* ordinal) {
  const DeviceApi* api = nullptr;
  if (const hipError_t error = find_api(which, &api); error != hipSuccess) return error;
  int number = -1;
  if (const hipError_t error = api->device_of(stream, &number); error != hipSuccess) {
    log(Level::error, "the stream's device is unknown: %s", api->describe(error));
    return error;
  }
  if (number < 0 || number >= kMaxDevices) return hipErrorInvalidDevice;
  if (ordinal != nullptr) *ordinal = number;
  *out = devices_[static_cast<unsigned>(which)][number].load(std::memory_order_acquire);
  return *out != nullptr ? hipSuccess : make_device(which, *api, number, out);
}

hipError_t State::make_device(Api which, const DeviceApi& api, int ordinal, Device** out) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::atomic<Device*>& known = devices_[static_cast<unsigned>(which)][ordinal];
  *out = known.load(std::memory_order_relaxed);
  if (*out != nullptr) return hipSuccess;
  char name[kArchNameSize];
  if (const hipError_t error = api.arch_name(ordinal, name); error != hipSuccess) return error;
  std::vector<std::string> archs{name};
  while (api.lower_arch(name)) archs.emplace_back(name);
  Pack* pack = nullptr;
  std::string arch;
  if (const hipError_t error = pack_for(archs, &pack, &arch); error != hipSuccess) return error;
  owned_.reserve(owned_.size() + 1);
  owned_.push_back(std::make_unique<Device>(api, ordinal, arch, *pack));
  *out = owned_.back().get();
  known.store(*out, std::memory_order_release);
  log(Level::info, "%s device %d: %s, served by %s", api.name(), ordinal, arch.c_str(), pack->directory().c_str());
  return hipSuccess;
}

// The pack of the first of a device's archs that has one.
hipError_t State::pack_for(const std::vector<std::string>& archs, Pack** out, std::string* arch) {
  for (const std::string& wanted : archs)
    for (const auto& pack : packs_)
      if (pack->dispatch().find_arch(wanted) >= 0) {
        *out = pack.get();
        *arch = wanted;
        return hipSuccess;
      }
  const std::string images = absolute(images_directory());
  FolderTime changed;
  const bool known = folder_time(images, &changed);
  if (known && still_absent(archs[0], images, changed)) return hipErrorNoBinaryForGpu;
  std::unique_ptr<Pack> found;
  packs_.reserve(packs_.size() + 1);
  const hipError_t error = find_pack(images, archs, found, *arch);
  if (error == hipErrorNoBinaryForGpu && known) absence_ = {archs[0], images, changed, std::chrono::steady_clock::now()};
  if (error != hipSuccess) return error;
  packs_.push_back(std::move(found));
  *out = packs_.back().get();
  return hipSuccess;
}

hipError_t announced(hipError_t result) {
  if (result == hipSuccess) return result;
  const hipError_t found = guarded([](State& state) {
    if (const HipApi* hip = state.hip_if_loaded()) hip->leave_error_behind();
    return hipSuccess;
  });
  HipApi hip;  // without memory for a state there is still the stack
  if (found != hipSuccess && hip.load_present()) hip.leave_error_behind();
  return result;
}

bool State::still_absent(const std::string& arch, const std::string& images, const FolderTime& changed) const {
  if (arch != absence_.arch || images != absence_.images || !(changed == absence_.changed)) return false;
  return std::chrono::steady_clock::now() - absence_.noticed < std::chrono::seconds(2);
}

}  // namespace aotforge
