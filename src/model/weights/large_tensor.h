// large_tensor: uninitialised tensors in host memory that are made once per model, such as its weights. Large
// ones have memory of their own (dist/matrix/large_array.h): touching fresh memory page by page takes longer
// than reading a checkpoint from the page cache, and the heap would keep it. Not for what a forward makes in
// every layer.
#pragma once

#include <ATen/core/Tensor.h>

namespace headspan {

/// Returns a tensor of a shape. Throws std::bad_alloc.
at::Tensor large_tensor(at::IntArrayRef shape, at::ScalarType dtype);

}  // namespace headspan
