// How the coefficients of a codec's groups are distributed: into which classes tokens are divided, which
// deviation each coefficient has in each class, and the one shape that all have in units of their deviation.
// Runs the model over the tokens of a sample.
#pragma once

#include "app/archive/codec_coefficients.h"

namespace headspan {

/// Sets classes and deviations of the codec's groups from the fit part, and its models from the shape in the
/// held-out part, or in the fit part if nothing is held out. The codec has all else but its curve. The same
/// on every rank. Collective over the layout's group.
void set_statistics(const Transformer& model, const CodecTokens& tokens, const ProcessLayout& processes,
                    KvCodec& codec);

}  // namespace headspan
