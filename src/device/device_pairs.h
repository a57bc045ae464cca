// The products of all pairs on a device: stats/regression/pair_sums.h in ATen, the same code on a GPU and in
// host memory. Where the Gram lies on the host, the device sees one strip of it at a time,
//
//   strip of head s: [d, rows], FP64, row-major: the columns of s in this rank's local rows below the tile on
//   the diagonal
//
// which is uploaded once and serves both directions: s as the source of the heads of its rows, and these as
// sources of s. On a GPU the next strip is copied to pinned memory, and the pairs before it are scored, while
// the device multiplies. Of a Gram that stays on the device a strip is a view.
#pragma once

#include "device/resident_grams.h"
#include "stats/regression/pair_sums.h"

namespace headspan {

/// A PairSums on the device. `resident`: the Grams of its data where they lie there; must outlive it. It
/// throws c10::Error, among others where the device has too little memory.
PairSums device_pair_sums(at::Device device, const ResidentGrams* resident = nullptr);

/// Bytes that it takes there on this rank, at most. Local.
std::int64_t device_pair_bytes(const RegressionData& data);

}  // namespace headspan
