// GramSink in host memory, on their way to a Collector.
#pragma once

#include "app/capture/gram_sink.h"

namespace headspan {

template <class T>
std::unique_ptr<GramSink<T>> rows_on_host(const CaptureSetup& setup);

}  // namespace headspan
