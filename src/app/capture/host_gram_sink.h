// The GramSink that collects in host memory.
#pragma once

#include "app/capture/gram_sink.h"

namespace headspan {

template <class T>
std::unique_ptr<GramSink<T>> make_host_sink(const CaptureSetup& setup);

}  // namespace headspan
