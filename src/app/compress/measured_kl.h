// Measures what compressing a layer of a stream does to a model, on some of its tokens.
#pragma once

#include "app/compress/calibration.h"
#include "app/run/model_input.h"
#include "app/run/sample.h"

namespace headspan {

/// Returns a function that measures on the first 512 fit tokens of the sample. The arguments must outlive it.
/// Its calls are collective over the layout's group; all data-parallel rows compute the same.
MeasuredKl make_measured_kl(const Transformer& model, const ModelInput& input, const Sample& sample,
                            std::int64_t exact_first, const ProcessLayout& processes);

}  // namespace headspan
