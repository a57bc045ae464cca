// Runs a model over the sequences of a sample and turns what it captures into the Grams of the streams asked
// for. Ranks of a data-parallel row run the same batch, each with its share of the heads; before the Gram
// they exchange heads for tokens, so that each rank holds all columns of some tokens.
#pragma once

#include <map>

#include "app/sample.h"
#include "app/team.h"
#include "app/unit_state.h"
#include "base/profile.h"
#include "base/progress.h"
#include "device/device_collector.h"
#include "model/transformer.h"
#include "stats/attention_metric.h"
#include "stats/collector.h"

namespace headspan {

/// Tokens of a forward that are enough for products at full speed: on a processor, on a GPU.
constexpr std::int64_t kHostBatch = 1024, kGpuBatch = 8192;

struct CaptureRequest {
  std::vector<Stream> streams;
  CapturePoint point = CapturePoint::roped;
  Precision precision = Precision::float64;
  std::int64_t batch_tokens = kHostBatch;  ///< of a data-parallel row
  std::int64_t skip_first = 0;             ///< positions of each sequence left out of the statistics
  /// Where the Grams grow: unset on the host; else there, which is where the model runs.
  std::optional<at::Device> device{};
  /// There: what each pass over the tokens sums; `streams` are places in `streams`. Everything is in one of
  /// them; those of the fit part come before the others of a stream. Empty: one pass.
  std::vector<DeviceShare> passes{};
  bool by_layer = false;  ///< a Gram for each layer alone: all of them are a layers-th of the one for all
};

/// run.batch_tokens, or for auto what suits the processor or GPU, but so that each of `rows` data-parallel
/// rows has work on `tokens`.
std::int64_t batch_tokens(const Job::Run& rule, std::int64_t tokens, std::int64_t rows, bool gpu);
std::int64_t batch_tokens(const Job::Run& rule, const Sample& sample, const Team& team);

/// A pass over all tokens that sums all of some streams.
DeviceShare everything(std::size_t streams, bool heldout);

/// The tokens that a pass runs: of the parts that it sums.
std::int64_t tokens_of(const DeviceShare& pass, const Sample& sample);

/// The heads of a stream as the columns of its Gram are laid out.
HeadLayout stream_layout(const ModelConfig& config, Stream stream);

/// The Grams of each stream of the request, in its order; by layer those of its layers in turn. T: double for
/// a forward in float64, else float. Goes on from what `state` has saved, and saves there; null: neither.
/// Throws Stopped as UnitState does. With `attention`, what attention does with keys and values of the fit
/// part is summed there too, for which the model needs its whole extent. With `resident`, the Grams of
/// streams of which the last pass has everything stay on the request's device and are put there, by place in
/// the request (not by layer); what is returned in their places has no tokens. Phases of `profile`: forward,
/// gram and save. Collective over the team's group.
template <class T>
std::vector<StreamGrams> capture_grams(const Transformer& model, const ModelConfig& config,
                                       const Sample& sample, const CaptureRequest& request, const Team& team,
                                       Progress& progress, Profile& profile, const UnitState* state,
                                       AttentionSums* attention = nullptr,
                                       std::map<std::size_t, ResidentGrams>* resident = nullptr);

/// What attention does with the tokens that were summed, and what the weights do with that. Collective over
/// the team's group.
AttentionMoments finish_attention(AttentionSums& sums, const Transformer& model, const Team& team,
                                  std::int64_t tokens);

}  // namespace headspan
