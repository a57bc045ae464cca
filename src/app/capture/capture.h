// Runs a model over the sequences of a sample and turns what it captures into the Grams of the streams asked
// for. Ranks of a data-parallel row run the same batch, each with its share of the heads; before the Gram
// they exchange heads for tokens, so that each rank holds all columns of some tokens.
#pragma once

#include <map>

#include "app/capture/capture_setup.h"
#include "app/capture/unit_state.h"
#include "app/run/process_layout.h"
#include "app/run/sample.h"
#include "base/profile.h"
#include "base/progress.h"
#include "device/device_collector.h"
#include "model/forward/transformer.h"
#include "stats/compression/attention_metric.h"
#include "stats/gram/collector.h"

namespace headspan {

/// The tokens that a pass runs: of the parts that it sums.
std::int64_t tokens_of(const DeviceShare& pass, const Sample& sample);

/// The Grams of each stream of the request, in its order; by layer those of its layers in turn. T: double for
/// a forward in float64, else float. Goes on from what `state` has saved, and saves there; null: neither.
/// Throws Stopped as UnitState does. With `attention`, what attention does with keys and values of the fit
/// part is summed there too, for which the model needs its whole extent. With `resident`, the Grams of
/// streams of which the last pass has everything stay on the request's device and are put there, by place in
/// the request (not by layer); what is returned in their places has no tokens. Phases of `profile`: forward,
/// gram and save. Collective over the team's group.
template <class T>
std::vector<StreamGrams> capture_grams(const Transformer& model, const ModelConfig& config,
                                       const Sample& sample, const CaptureRequest& request,
                                       const ProcessLayout& team, Progress& progress, Profile& profile,
                                       const UnitState* state, AttentionSums* attention = nullptr,
                                       std::map<std::size_t, ResidentGrams>* resident = nullptr);

/// What attention does with the tokens that were summed, and what the weights do with that. Collective over
/// the team's group.
AttentionMoments finish_attention(AttentionSums& sums, const Transformer& model, const ProcessLayout& team,
                                  std::int64_t tokens);

}  // namespace headspan
