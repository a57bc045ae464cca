// The inverse of a layer on a device: stats/layers/layer_inverse.h in ATen, the same code on a GPU and in
// host memory, for one layer at a time, whole. Not the way of its tiles to the rank.
#pragma once

#include <c10/core/Device.h>

#include "stats/layers/layer_inverse.h"

namespace headspan {

/// A LayerInverse on the device. It throws c10::Error, among others where the device has too little memory.
LayerInverse device_layer_inverse(at::Device device);

/// Bytes that it takes there for the largest layer, at most. Local; the same on every rank.
std::int64_t device_layer_bytes(const HeadLayout& layout);

}  // namespace headspan
