// Streams and events. Work is executed when it is submitted, in the calling thread: one of the orders that HIP allows. So waiting finds nothing to wait for,
// and a kernel's fault is reported where real hardware would report it at the earliest: by the call after the launch.
#include "world.h"

using namespace virtual_hip;

namespace {

int create(Stream** out, unsigned flags, int priority) {
  if (out == nullptr) return kInvalidValue;
  auto made = std::make_unique<Stream>();
  made->device = current_device();
  made->flags = flags;
  made->priority = priority;
  const std::lock_guard<std::mutex> guard(world().lock);
  world().streams.insert(made.get());
  *out = made.release();
  return kSuccess;
}

// The state of the stream's device: a fault of a kernel, or success, once what runs in other threads on this stream is done.
int finished(Stream* stream) {
  Stream* found = resolve(stream);
  if (found == nullptr) return world().devices.empty() ? kNoDevice : kInvalidHandle;
  const std::lock_guard<std::mutex> guard(found->order);
  return world().devices[static_cast<size_t>(found->device)]->failed;
}

bool known(Event* event) {
  const std::lock_guard<std::mutex> guard(world().lock);
  return world().events.count(event) != 0;
}

int make_event(Event** out) {
  if (out == nullptr) return kInvalidValue;
  auto made = std::make_unique<Event>();
  const std::lock_guard<std::mutex> guard(world().lock);
  world().events.insert(made.get());
  *out = made.release();
  return kSuccess;
}

}  // namespace

HIP_API int hipStreamCreate(Stream** out) {
  return device_entry("hipStreamCreate", [&] { return create(out, 0, 0); });
}
HIP_API int hipStreamCreateWithFlags(Stream** out, unsigned flags) {
  return device_entry("hipStreamCreateWithFlags", [&] { return flags > 1 ? kInvalidValue : create(out, flags, 0); });
}
HIP_API int hipStreamCreateWithPriority(Stream** out, unsigned flags, int priority) {
  return device_entry("hipStreamCreateWithPriority", [&] { return flags > 1 ? kInvalidValue : create(out, flags, priority); });
}

HIP_API int hipStreamDestroy(Stream* stream) {
  return entry("hipStreamDestroy", [&] {
    const std::lock_guard<std::mutex> guard(world().lock);
    if (world().streams.erase(stream) == 0) return kInvalidHandle;
    { const std::lock_guard<std::mutex> last(stream->order); }
    delete stream;
    return kSuccess;
  });
}

HIP_API int hipStreamSynchronize(Stream* stream) {
  return entry("hipStreamSynchronize", [&] { return finished(stream); });
}
HIP_API int hipStreamQuery(Stream* stream) {
  return entry("hipStreamQuery", [&] { return finished(stream); });
}
HIP_API int hipDeviceSynchronize() {
  return device_entry("hipDeviceSynchronize", [] { return kSuccess; });
}
HIP_API int hipStreamWaitEvent(Stream* stream, Event* event, unsigned) {
  return entry("hipStreamWaitEvent", [&] { return !known(event) || resolve(stream) == nullptr ? kInvalidHandle : kSuccess; });
}

HIP_API int hipEventCreate(Event** out) {
  return device_entry("hipEventCreate", [&] { return make_event(out); });
}
HIP_API int hipEventCreateWithFlags(Event** out, unsigned) {
  return device_entry("hipEventCreateWithFlags", [&] { return make_event(out); });
}
HIP_API int hipEventDestroy(Event* event) {
  return entry("hipEventDestroy", [&] {
    const std::lock_guard<std::mutex> guard(world().lock);
    if (world().events.erase(event) == 0) return kInvalidHandle;
    delete event;
    return kSuccess;
  });
}
HIP_API int hipEventRecord(Event* event, Stream* stream) {
  return device_entry("hipEventRecord", [&] {
    Stream* found = resolve(stream);
    if (!known(event) || found == nullptr) return kInvalidHandle;
    const std::lock_guard<std::mutex> order(found->order);
    const std::lock_guard<std::mutex> guard(world().lock);
    event->recorded = true;
    event->when = std::chrono::steady_clock::now();
    return kSuccess;
  });
}
HIP_API int hipEventSynchronize(Event* event) {
  return device_entry("hipEventSynchronize", [&] { return known(event) ? kSuccess : kInvalidHandle; });
}
HIP_API int hipEventQuery(Event* event) {
  return device_entry("hipEventQuery", [&] { return known(event) ? kSuccess : kInvalidHandle; });
}
HIP_API int hipEventElapsedTime(float* milliseconds, Event* from, Event* to) {
  return entry("hipEventElapsedTime", [&] {
    if (milliseconds == nullptr) return kInvalidValue;
    if (!known(from) || !known(to)) return kInvalidHandle;
    const std::lock_guard<std::mutex> guard(world().lock);
    if (!from->recorded || !to->recorded) return kInvalidHandle;
    *milliseconds = std::chrono::duration<float, std::milli>(to->when - from->when).count();
    return kSuccess;
  });
}
