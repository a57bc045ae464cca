// What a cache stores of new tokens: the numbers of their stored block, before they are packed. Alike on the
// host and on a device.
#pragma once

#include "dist/comm/device_comm.h"
#include "model/cache/cache_plan.h"

namespace headspan {

/// x: [tokens, kv_heads of this rank, d], contiguous, of the type and on the device of the block's tensors;
/// returns [tokens, columns]. Collective over tensor_parallel where the block is shared.
at::Tensor encode_tokens(const StoredBlock& block, const at::Tensor& x, const DeviceComm& tensor_parallel);

}  // namespace headspan
