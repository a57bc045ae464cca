// GramSink where the model runs, on their way to a DeviceCollector.
#pragma once

#include "app/capture/gram_sink.h"

namespace headspan {

/// On the request's device.
template <class T>
std::unique_ptr<GramSink<T>> rows_on_device(const CaptureSetup& setup);

}  // namespace headspan
