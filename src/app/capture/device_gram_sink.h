// The GramSink that collects on the model's device.
#pragma once

#include "app/capture/gram_sink.h"

namespace headspan {

template <class T>
std::unique_ptr<GramSink<T>> make_device_sink(const CaptureSetup& setup);

}  // namespace headspan
