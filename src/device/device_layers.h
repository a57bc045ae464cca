// The inverse of a layer on a device: stats/layers/layer_inverse.h in ATen, the same code on a GPU and in
// host memory, for one layer at a time. The tiles of the layer must be on the rank already.
#pragma once

#include <c10/core/Device.h>

#include "stats/layers/layer_inverse.h"

namespace headspan {

/// Returns a LayerInverse that runs on the device. It throws c10::Error, for example if the device is out of
/// memory.
LayerInverse device_layer_inverse(at::Device device);

/// Returns the bytes of device memory that it needs at most, for the largest layer. Local; the same on every
/// rank.
std::int64_t device_layer_bytes(const HeadLayout& layout);

}  // namespace headspan
