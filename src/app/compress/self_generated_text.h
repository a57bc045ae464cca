// Text that the model generates itself, to calibrate on besides the user's: it is as broad as what the model
// was trained on, whereas a user's text may be narrow. Not generation for requests
// (app/evaluate/answer_requests.h).
#pragma once

#include "app/run/model_input.h"
#include "app/run/process_layout.h"
#include "app/run/sample.h"
#include "base/log.h"
#include "model/forward/transformer.h"

namespace headspan {

/// How much text is generated, and from which seed.
struct SelfGeneration {
  std::int64_t tokens = 0;           ///< of all sequences together
  std::int64_t sequence_length = 0;  ///< maximum tokens of a sequence
  std::int64_t seed = 0;
};

/// Returns whether the model or the sample names a token of the vocabulary to start from. Local.
bool can_start_text(const ModelInput& input, const Sample& sample);

/// Throws InputError if neither the model nor the sample names a token of the vocabulary to start from.
/// Local.
void check_self_generated_text(const ModelInput& input, const Sample& sample);

/// Appends generated sequences to the sample, none of them held out. Each starts from the model's bos token
/// (else the sample's end-of-text), which is not part of it, and is sampled from the model's distribution up
/// to an end-of-text (which is part of it) or to the maximum length. Token t of sequence s is sampled with
/// the upper 53 bits of output 2^32 s + t of SplitMix64(seed). The first data-parallel row generates 16
/// sequences at a time, so that the text does not depend on the number of rows. Throws Stopped on a signal to
/// stop. Collective over the layout's group.
void add_self_generated_text(const SelfGeneration& rule, const ModelInput& input, const Transformer& model,
                             const ProcessLayout& processes, const Log& log, Sample& sample);

}  // namespace headspan
