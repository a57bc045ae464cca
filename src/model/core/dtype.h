// The dtypes of a forward: what its weights are kept and its products formed in.
#pragma once

#include <string>

#include <c10/core/ScalarType.h>

#include "base/word_list.h"

namespace headspan {

enum class Dtype { float64, float32, bfloat16, float16 };

/// As job files and config.json spell them.
const WordList<Dtype>& dtype_words();
std::string dtype_name(Dtype dtype);

/// LibTorch's name for it.
at::ScalarType scalar_type(Dtype dtype);

}  // namespace headspan
