// Runs a model over the sequences of a sample and turns what it captures into the Grams of the streams asked
// for. Ranks of a data-parallel row run the same batch, each with its share of the heads; before the Gram
// they exchange heads for tokens, so that each rank holds all columns of some tokens.
#pragma once

#include "app/sample.h"
#include "app/team.h"
#include "app/unit_state.h"
#include "base/profile.h"
#include "base/progress.h"
#include "model/transformer.h"
#include "stats/attention_metric.h"
#include "stats/collector.h"

namespace headspan {

struct CaptureRequest {
  std::vector<Stream> streams;
  CapturePoint point = CapturePoint::roped;
  Precision precision = Precision::float64;
  std::int64_t batch_tokens = 1024;  ///< of a data-parallel row: enough for products at full speed
  std::int64_t skip_first = 0;       ///< positions of each sequence left out of the statistics
  /// Where the Grams grow: unset on the host; else there, which is where the model runs.
  std::optional<at::Device> device{};
  bool by_layer = false;  ///< a Gram for each layer alone: all of them are a layers-th of the one for all
};

/// run.batch_tokens, or for auto the request's own, but so that every data-parallel row has work.
std::int64_t batch_tokens(const Job::Run& rule, const Sample& sample, const Team& team);

/// The heads of a stream as the columns of its Gram are laid out.
HeadLayout stream_layout(const ModelConfig& config, Stream stream);

/// The Grams of each stream of the request, in its order; by layer those of its layers in turn. T: double for
/// a forward in float64, else float. Goes on from what `state` has saved, and saves there; null: neither.
/// Throws Stopped as UnitState does. With `attention`, what attention does with keys and values of the fit
/// part is summed there too, for which the model needs its whole extent. Phases of `profile`: forward, gram
/// and save. Collective over the team's group.
template <class T>
std::vector<StreamGrams> capture_grams(const Transformer& model, const ModelConfig& config,
                                       const Sample& sample, const CaptureRequest& request, const Team& team,
                                       Progress& progress, Profile& profile, const UnitState* state,
                                       AttentionSums* attention = nullptr);

/// What attention does with the tokens that were summed, and what the weights do with that. Collective over
/// the team's group.
AttentionMoments finish_attention(AttentionSums& sums, const Transformer& model, const Team& team,
                                  std::int64_t tokens);

}  // namespace headspan
