// Streams and events. A kernel's fault is reported where hardware would report it: by a call after the launch.
#include "queue.h"

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
  drain(found);
  return world().devices[static_cast<size_t>(found->device)]->failed;
}

bool known(Event* event) {
  const std::lock_guard<std::mutex> guard(world().lock);
  return world().events.count(event) != 0;
}

std::chrono::steady_clock::time_point now(const Device& device) {
  if (!world().settings.counted) return std::chrono::steady_clock::now();
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(device.executed.load()));
}

int record(Event* event, Stream* stream) {
  Stream* found = resolve(stream);
  if (!known(event) || found == nullptr) return kInvalidHandle;
  {
    const std::lock_guard<std::mutex> guard(world().lock);
    event->recorded = true;
    event->done = false;
    event->stream = found;
  }
  const uint64_t number = submit(found, [event, device = found->device] {
    if (!known(event)) return;  // destroyed in the meantime
    const std::lock_guard<std::mutex> guard(world().lock);
    event->done = true;
    event->when = now(*world().devices[static_cast<size_t>(device)]);
  });
  const std::lock_guard<std::mutex> guard(world().lock);
  event->number = number;
  return kSuccess;
}

// What is in front of an event in its stream, and the event itself, is executed.
int reach(Event* event) {
  if (!known(event)) return kInvalidHandle;
  if (event->recorded && !event->done) drain_to(event->stream, event->number);
  return kSuccess;
}

int wait_for(Stream* stream, Event* event) {
  Stream* waiting = resolve(stream);
  if (!known(event) || waiting == nullptr) return kInvalidHandle;
  if (event->recorded && !event->done) submit(waiting, [of = event->stream, number = event->number] { drain_to(of, number); });
  return kSuccess;
}

int make_event(Event** out) {
  if (out == nullptr) return kInvalidValue;
  auto made = std::make_unique<Event>();
  const std::lock_guard<std::mutex> guard(world().lock);
  world().events.insert(made.get());
  *out = made.release();
  return kSuccess;
}

int not_capturing(Stream* stream, int* state, unsigned long long* number) {
  if (state == nullptr) return kInvalidValue;
  if (resolve(stream) == nullptr) return kInvalidHandle;
  *state = 0;
  if (number != nullptr) *number = 0;
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
  return entry("hipStreamDestroy", [&] { return retire(stream) ? kSuccess : kInvalidHandle; });
}

HIP_API int hipStreamSynchronize(Stream* stream) {
  return entry("hipStreamSynchronize", [&] { return finished(stream); });
}
HIP_API int hipStreamQuery(Stream* stream) {
  return entry("hipStreamQuery", [&]() -> int {
    Stream* found = resolve(stream);
    return found == nullptr || idle(found) ? finished(stream) : kNotReady;
  });
}
HIP_API int hipDeviceSynchronize() {
  return device_entry("hipDeviceSynchronize", []() -> int {
    drain_device(current_device());
    return world().devices[static_cast<size_t>(current_device())]->failed;
  });
}
HIP_API int hipStreamWaitEvent(Stream* stream, Event* event, unsigned) {
  return entry("hipStreamWaitEvent", [&] { return wait_for(stream, event); });
}

HIP_API int hipStreamGetPriority(Stream* stream, int* out) {
  return entry("hipStreamGetPriority", [&] {
    Stream* found = resolve(stream);
    if (out == nullptr) return kInvalidValue;
    if (found == nullptr) return kInvalidHandle;
    *out = found->priority;
    return kSuccess;
  });
}
HIP_API int hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return device_entry("hipDeviceGetStreamPriorityRange", [&] {
    if (least != nullptr) *least = 1;
    if (greatest != nullptr) *greatest = -1;
    return kSuccess;
  });
}

// Nothing is ever captured: there are no graphs. PyTorch's headers query this before they allocate and before they take a seed.
HIP_API int hipStreamIsCapturing(Stream* stream, int* state) {
  return entry("hipStreamIsCapturing", [&] { return not_capturing(stream, state, nullptr); });
}
HIP_API int hipStreamGetCaptureInfo(Stream* stream, int* state, unsigned long long* number) {
  return entry("hipStreamGetCaptureInfo", [&] { return not_capturing(stream, state, number); });
}
HIP_API int hipThreadExchangeStreamCaptureMode(int* mode) {
  thread_local int current = 0;  // global
  return entry("hipThreadExchangeStreamCaptureMode", [&] {
    if (mode == nullptr || *mode < 0 || *mode > 2) return kInvalidValue;
    std::swap(*mode, current);
    return kSuccess;
  });
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
  return device_entry("hipEventRecord", [&] { return record(event, stream); });
}
#if VIRTUAL_HIP_MAJOR >= 7
HIP_API int hipEventRecordWithFlags(Event* event, Stream* stream, unsigned) {
  return device_entry("hipEventRecordWithFlags", [&] { return record(event, stream); });
}
#endif
HIP_API int hipEventSynchronize(Event* event) {
  return device_entry("hipEventSynchronize", [&]() -> int {
    const int error = reach(event);
    if (error != kSuccess) return error;
    return world().devices[static_cast<size_t>(current_device())]->failed;
  });
}
HIP_API int hipEventQuery(Event* event) {
  return device_entry("hipEventQuery", [&]() -> int {
    if (!known(event)) return kInvalidHandle;
    const bool pending = event->recorded && !event->done;
    const int error = reach(event);
    return error == kSuccess && pending ? kNotReady : error;
  });
}
HIP_API int hipEventElapsedTime(float* milliseconds, Event* from, Event* to) {
  return entry("hipEventElapsedTime", [&] {
    if (milliseconds == nullptr) return kInvalidValue;
    if (!known(from) || !known(to)) return kInvalidHandle;
    const std::lock_guard<std::mutex> guard(world().lock);
    if (!from->recorded || !to->recorded) return kInvalidHandle;
    if (!from->done || !to->done) return kNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(to->when - from->when).count();
    return kSuccess;
  });
}
