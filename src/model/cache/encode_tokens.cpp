#include "model/cache/encode_tokens.h"

#include <ATen/ATen.h>

#include "base/range.h"
#include "model/core/tensor_comm.h"
#include "model/weights/linear.h"

namespace headspan {

at::Tensor encode_tokens(const StoredBlock& block, const at::Tensor& x, const DeviceComm& tensor_parallel) {
  at::Tensor flat = x.view({x.size(0), -1});
  at::Tensor z;
  if (block.projection.defined()) {
    z = product(flat - block.mean, block.projection);
  } else if (block.kept) {
    const Range heads =
        range_of(x.size(1) * tensor_parallel.size(), tensor_parallel.size(), tensor_parallel.rank());
    z = at::zeros({x.size(0), static_cast<std::int64_t>(block.kept->size()) * x.size(2)}, x.options());
    for (std::size_t i = 0; i < block.kept->size(); ++i) {
      const std::int64_t head = (*block.kept)[i] - heads.first;
      if (head >= 0 && head < heads.count)
        z.narrow(1, static_cast<std::int64_t>(i) * x.size(2), x.size(2)).copy_(x.select(1, head));
    }
  } else if (block.rotation.defined()) {
    return at::bmm(x.transpose(0, 1), block.rotation).transpose(0, 1).reshape({x.size(0), -1});
  } else {
    return flat;
  }
  if (block.shared) sum_over(tensor_parallel, z);
  return z;
}

}  // namespace headspan
