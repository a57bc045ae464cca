// How the coefficients of a codec's groups are distributed: into which classes tokens are divided, which
// deviation each coefficient has in each class, and the one shape that all have in units of their deviation.
// Runs the model over the tokens of a sample.
#pragma once

#include <map>
#include <vector>

#include "app/archive/codec_groups.h"
#include "app/run/process_layout.h"
#include "app/run/sample.h"
#include "model/forward/transformer.h"

namespace headspan {

/// The tokens that a codec is fitted to.
struct CodecTokens {
  const Sample& sample;
  std::int64_t skip_first = 0;    ///< positions of each sequence that are left out
  std::int64_t batch_tokens = 0;  ///< of a forward
};

/// Sets classes and deviations of the codec's groups from the fit part, and its models from the shape in the
/// held-out part, or in the fit part if nothing is held out. The codec has all else but its curve. The same
/// on every rank. Collective over the layout's group.
void set_statistics(const Transformer& model, const CodecTokens& tokens, const ProcessLayout& processes,
                    KvCodec& codec);

}  // namespace headspan
