#include "model/dtype.h"

#include "base/error.h"

namespace headspan {

std::string dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::float64:
      return "float64";
    case Dtype::float32:
      return "float32";
    case Dtype::bfloat16:
      return "bfloat16";
    case Dtype::float16:
      return "float16";
  }
  throw Error("dtype_name: no such dtype");
}

at::ScalarType scalar_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::float64:
      return at::kDouble;
    case Dtype::float32:
      return at::kFloat;
    case Dtype::bfloat16:
      return at::kBFloat16;
    case Dtype::float16:
      return at::kHalf;
  }
  throw Error("scalar_type: no such dtype");
}

}  // namespace headspan
