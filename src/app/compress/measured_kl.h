// What compressing one layer of one stream does to a model, measured on some of its tokens.
#pragma once

#include "app/compress/calibration.h"
#include "app/run/model_input.h"
#include "app/run/sample.h"

namespace headspan {

/// Measures on the first 512 fit tokens of the sample; everything must outlive the function that is returned.
/// Its calls are collective over the team, all data-parallel rows doing the same.
MeasuredKl make_measured_kl(const Transformer& model, const ModelInput& input, const Sample& sample,
                            std::int64_t exact_first, const ProcessLayout& team);

}  // namespace headspan
