// CapturedRows in host memory, on their way to a Collector.
#pragma once

#include "app/capture/captured_rows.h"

namespace headspan {

template <class T>
std::unique_ptr<CapturedRows<T>> rows_on_host(const CaptureSetup& setup);

}  // namespace headspan
