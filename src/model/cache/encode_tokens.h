// Encodes new tokens as a cache stores them: computes the numbers of their stored block, which are packed
// afterwards. The same code runs on the host and on a device.
#pragma once

#include "dist/comm/device_comm.h"
#include "model/cache/cache_plan.h"

namespace headspan {

/// x: [tokens, kv_heads of this rank, d], contiguous, with the dtype and device of the block's tensors.
/// Returns [tokens, columns]. Collective over tensor_parallel where the block is shared.
at::Tensor encode_tokens(const StoredBlock& block, const at::Tensor& x, const DeviceComm& tensor_parallel);

}  // namespace headspan
