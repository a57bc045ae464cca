// The runs of a codec whose groups are coded as KVTC codes them (io/archive/run_coder.h), for several numbers
// of bits. Runs the model over the tokens of a sample.
#pragma once

#include "app/archive/codec_coefficients.h"

namespace headspan {

/// Sets the runs of the codec's groups, by what they lose on held-out tokens, or on the others if nothing is
/// held out: step 0 has 6 bits for a number, before DEFLATE, and the last of 37 about a quarter of a bit. The
/// codec has all else but its curve. The same on every rank. Collective over the layout's group.
void set_runs(const Transformer& model, const CodecTokens& tokens, const ProcessLayout& processes,
              KvCodec& codec);

}  // namespace headspan
