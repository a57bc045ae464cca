#include "model/core/dtype.h"

#include "base/error.h"

namespace headspan {

const WordList<Dtype>& dtype_words() {
  static const WordList<Dtype> words{{"float64", Dtype::float64},
                                     {"float32", Dtype::float32},
                                     {"bfloat16", Dtype::bfloat16},
                                     {"float16", Dtype::float16}};
  return words;
}

std::string dtype_name(Dtype dtype) { return word_of(dtype_words(), dtype); }

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
