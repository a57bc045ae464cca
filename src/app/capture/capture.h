// Runs a model over the sequences of a sample and turns what it captures into the Grams of the streams asked
// for. The ranks of a data-parallel row run the same batch, each with its share of the heads; before the Gram
// they exchange heads for tokens, so that each rank holds all columns of some tokens.
#pragma once

#include "app/capture/capture_setup.h"
#include "app/run/sample.h"
#include "base/profile.h"
#include "base/progress.h"

namespace headspan {

/// Returns how many tokens of the sample a pass runs: those of the parts that it sums.
std::int64_t tokens_of(const DeviceShare& pass, const Sample& sample);

/// Returns the Grams of the request's streams, in their order; with by_layer all layers of the first stream,
/// then of the next. A stream in request.resident has a Gram of no tokens here. T: double for a forward in
/// float64, else float. Counts the phases forward, gram and save of `profile`. Throws Stopped as
/// UnitState::save_if_due does. Collective over the group.
template <class T>
std::vector<StreamGrams> capture_grams(const Transformer& model, const Sample& sample,
                                       const CaptureRequest& request, const ProcessLayout& processes,
                                       Progress& progress, Profile& profile);

/// Returns the moments of attention over the `tokens` tokens that all ranks have summed, and the metric of
/// the output projection. Collective over the group.
AttentionMoments finish_attention(AttentionSums& sums, const Transformer& model,
                                  const ProcessLayout& processes, std::int64_t tokens);

}  // namespace headspan
