// Streams of a GPU beside the default one. Nothing where a device is the CPU.
#pragma once

#include <optional>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace headspan {

/// The stream to which this thread's work on a device goes.
inline std::optional<c10::Stream> current_stream(c10::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// Another one, which does not wait for the default stream nor it for that.
inline std::optional<c10::Stream> side_stream(c10::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

/// For its lifetime this thread's work goes to `stream`, where there is one.
class OnStream {
 public:
  explicit OnStream(const std::optional<c10::Stream>& stream) {
    if (stream) guard_.emplace(*stream);
  }

 private:
  std::optional<c10::StreamGuard> guard_;
};

}  // namespace headspan
