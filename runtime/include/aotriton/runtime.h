// The stream that work is queued on.
#pragma once

#include <aotriton/config.h>

#include <hip/hip_runtime.h>

namespace AOTRITON_NS {

// A borrowed handle: it neither owns nor synchronises the stream. The default is the null stream of the current device.
template <typename DeviceStreamType>
class StreamTemplate {
 public:
  StreamTemplate() : stream_(nullptr) {}
  StreamTemplate(DeviceStreamType stream) : stream_(stream) {}

  DeviceStreamType native() const { return stream_; }

 private:
  DeviceStreamType stream_;
};

using Stream = StreamTemplate<hipStream_t>;

}  // namespace AOTRITON_NS
