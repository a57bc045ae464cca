// Text that a model writes itself, to calibrate on beside the user's: what a model says by itself is as broad
// as what it was trained on, where a user's text may be narrow. Not generation for requests
// (app/evaluate/answer_requests.h).
#pragma once

#include "app/job/job.h"
#include "app/run/model_input.h"
#include "app/run/process_layout.h"
#include "app/run/sample.h"
#include "base/progress.h"
#include "model/forward/transformer.h"

namespace headspan {

/// Throws InputError where neither the model nor the sample names a token of the vocabulary to begin
/// with. Local.
void check_self_generated_text(const Job& job, const ModelInput& input, const Sample& sample);

/// Appends sequences of compress.own_text tokens in all to the sample, none of them held out: each behind the
/// model's first token (else the sample's end-of-text), which is not part of it, every token drawn from the
/// model's distribution up to an end-of-text (which is part of it) or to the end of the sequence. They are
/// written 16 side by side, by the first data-parallel row, so that they are the same however many rows there
/// are; token t of sequence s takes the upper 53 bits of output 2^32 s + t of SplitMix64(tokens.seed).
/// Collective over the team's group.
void add_self_generated_text(const Job& job, const ModelInput& input, const Transformer& model,
                             const ProcessLayout& team, const Log& log, Sample& sample);

}  // namespace headspan
