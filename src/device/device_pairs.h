// The products of all pairs of heads on a device: stats/regression/pair_sums.h in ATen, the same code on a
// GPU and in host memory. If the Gram is on the host, one strip of it is uploaded at a time,
//
//   strip of head s: [d, rows], FP64, row-major: the columns of s in this rank's local rows below its
//   diagonal tile
//
// which serves both directions: s as the source of the heads of its rows, and these as sources of s. While a
// GPU multiplies, the next strip is copied to pinned memory and the sink receives the sums of the previous
// one, from which it computes the scores. If the Gram stays on the device, a strip is a view of it.
#pragma once

#include "device/resident_grams.h"
#include "stats/regression/pair_sums.h"

namespace headspan {

/// Returns a PairSums that runs on the device. `resident`: the Grams of its data, if they are on the device;
/// they must outlive it. It throws c10::Error, for example if the device is out of memory.
PairSums device_pair_sums(at::Device device, const ResidentGrams* resident = nullptr);

/// Returns the bytes of device memory that it needs at most for this rank. Local.
std::int64_t device_pair_bytes(const RegressionData& data);

}  // namespace headspan
