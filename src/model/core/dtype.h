// The dtypes of a forward pass, in which its weights are stored and its products computed.
#pragma once

#include <string>

#include <c10/core/ScalarType.h>

#include "base/word_list.h"

namespace headspan {

enum class Dtype { float64, float32, bfloat16, float16 };

/// Returns their names in job files and in config.json.
const WordList<Dtype>& dtype_words();
std::string dtype_name(Dtype dtype);

/// Returns the same type in LibTorch.
at::ScalarType scalar_type(Dtype dtype);

}  // namespace headspan
