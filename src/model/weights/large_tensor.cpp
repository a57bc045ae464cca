#include "model/weights/large_tensor.h"

#include <memory>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>

#include "dist/matrix/large_array.h"

namespace headspan {
namespace {

constexpr std::int64_t kLarge = std::int64_t{4} << 20;  // bytes

}  // namespace

at::Tensor large_tensor(at::IntArrayRef shape, at::ScalarType dtype) {
  const std::int64_t bytes =
      c10::multiply_integers(shape) * static_cast<std::int64_t>(c10::elementSize(dtype));
  if (bytes < kLarge) return at::empty(shape, at::dtype(dtype));
  const auto memory = std::make_shared<LargeMemory>(bytes);
  return at::from_blob(
      memory->begin(), shape, [memory](void*) {}, at::dtype(dtype));
}

}  // namespace headspan
