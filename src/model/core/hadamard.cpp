#include "model/core/hadamard.h"

#include <cmath>

#include <ATen/ATen.h>

namespace headspan {

at::Tensor hadamard(std::int64_t d) {
  const std::int64_t size = d & -d;
  at::Tensor block = at::ones({1, 1}, at::kDouble);
  while (block.size(0) < size) block = at::cat({at::cat({block, block}, 1), at::cat({block, -block}, 1)}, 0);
  return at::kron(at::eye(d / size, at::kDouble), block / std::sqrt(static_cast<double>(size)));
}

}  // namespace headspan
