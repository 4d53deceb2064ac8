#include "device.h"

#include "log.h"

namespace aotforge {

Device::Device(const DeviceApi& api, int ordinal, std::string arch, Pack& pack)
    : api_(api),
      ordinal_(ordinal),
      logs_calls_(log_enabled(Level::debug)),
      arch_(std::move(arch)),
      pack_(pack),
      arch_index_(static_cast<uint16_t>(pack.dispatch().find_arch(arch_))),
      functions_(new std::atomic<FunctionHandle>[pack.dispatch().slots.size()]()) {
  for (unsigned i = 0; i < kServedCount; ++i) {
    const auto which = static_cast<Served>(i);
    const int at = dispatch().find_operator(operator_name(which));
    const bool ours = at >= 0 && dispatch().operators[static_cast<size_t>(at)].interface_hash() == interface_hash(which);
    served_[i] = at < 0 || ours ? at : -2;
  }
}

Device::~Device() {
  for (auto& entry : modules_)
    if (entry.second->handle != nullptr) entry.second.release();
}

hipError_t Device::served(Served which, int* index) const {
  *index = served_[static_cast<unsigned>(which)];
  if (*index >= 0) return hipSuccess;
  const char* name = operator_name(which);
  if (*index == -1) {
    log(Level::warn, "%s/dispatch.aotd: has no operator %s", pack_.directory().c_str(), name);
    return hipErrorNotSupported;
  }
  const auto at = static_cast<size_t>(dispatch().find_operator(name));
  char theirs[65], ours[65];
  to_hex(dispatch().operators[at].interface_hash().data(), 32, theirs);
  to_hex(interface_hash(which).data(), 32, ours);
  log(Level::error, "%s/dispatch.aotd: operator %s has interface %s, this library's is %s", pack_.directory().c_str(), name,
      theirs, ours);
  return hipErrorInvalidSource;
}

hipError_t Device::load(uint32_t number, FunctionHandle* out) {
  const std::lock_guard<std::mutex> lock(mutex_);
  *out = functions_[number].load(std::memory_order_relaxed);
  if (*out != nullptr) return hipSuccess;
  const Slot& slot = dispatch().slots[number];
  const std::string symbol(slot.symbol);
  ModuleHandle handle = nullptr;
  if (const hipError_t error = module(slot, &handle); error != hipSuccess) return error;
  const hipError_t error = api_.function(out, handle, symbol.c_str(), ordinal_);
  if (error != hipSuccess) {
    log(Level::error, "%s: image %u: no kernel %s: %s", pack_.directory().c_str(), slot.image, symbol.c_str(),
        api_.describe(error));
    return error;
  }
  functions_[number].store(*out, std::memory_order_release);
  return hipSuccess;
}

hipError_t Device::module(const Slot& slot, ModuleHandle* out) {
  const std::pair<uint16_t, uint32_t> key(slot.container, slot.image);
  if (const auto known = modules_.find(key); known != modules_.end()) {
    *out = known->second->handle;
    return hipSuccess;
  }
  auto fresh = std::make_unique<Module>();
  if (const hipError_t error = pack_.image(slot, fresh->image); error != hipSuccess) return error;
  Module& made = *fresh;
  const auto at = modules_.emplace(key, std::move(fresh)).first;  // before the driver, so that no failure can lose the handle
  const hipError_t error = api_.load_module(&made.handle, made.image.data(), made.image.size());
  if (error != hipSuccess) {
    modules_.erase(at);
    const std::string_view file = dispatch().containers[slot.container].file;
    log(Level::error, "%s/%.*s: image %u: %s does not load it: %s", pack_.directory().c_str(),
        static_cast<int>(file.size()), file.data(), slot.image, api_.name(), api_.describe(error));
    return error;
  }
  *out = made.handle;
  return hipSuccess;
}

}  // namespace aotforge
