#include "app/compress/oscar_rotations.h"

#include <functional>

#include "app/capture/rounds.h"
#include "app/run/run_clock.h"
#include "app/sources/value_range.h"
#include "base/checked.h"
#include "model/forward/rotation_moments.h"

namespace headspan {
namespace {

/// Adds the sequences of a batch to moments.
using AddBatch = std::function<void(const RotationMoments::Sequences& batch, WeightedMoments& moments)>;

/// Returns the moments over the sequences of the fit part, each run on one data-parallel row, on every rank.
/// Collective.
WeightedMoments sum_over_rows(const ModelConfig& config, const RotationTokens& tokens,
                              const ProcessLayout& processes, const AddBatch& add) {
  const Sample& sample = tokens.sample;
  const std::int64_t heads = config.layers * config.kv_heads, d = config.head_size;
  WeightedMoments moments{std::vector<double>(to_size(heads * d * d)), std::vector<double>(to_size(heads))};
  for (const Round& round :
       plan_remaining(sample.sequences, processes.data().size(), tokens.batch_tokens, sample.heldout)) {
    stop_where_asked(processes.group());
    RotationMoments::Sequences batch;
    for (const std::int64_t s : round[to_size(processes.data().rank())])
      batch.push_back(sample.tokens[to_size(s)]);
    if (!batch.empty()) add(batch, moments);
  }
  processes.group().sum(moments.sums.data(), heads * d * d);
  processes.group().sum(moments.weights.data(), heads);
  return moments;
}

/// Sets what a plan keeps of the rotations of one layer. Local.
void set_block(const WeightedMoments& moments, const ModelConfig& config, std::int64_t layer,
               PlannedBlock& block) {
  const std::int64_t heads = config.kv_heads, d = config.head_size;
  const auto first = moments.sums.begin() + layer * heads * d * d;
  Rotations rotations = rotations_of({first, first + heads * d * d}, heads, d);
  for (std::int64_t i = 0; i < heads * d; ++i) {
    const double weights = moments.weights[to_size(layer * heads + i / d)];
    if (weights > 0) rotations.eigenvalues[to_size(i)] /= weights;
  }
  block.rotation = std::move(rotations.matrices);
  block.eigenvalues = std::move(rotations.eigenvalues);
}

}  // namespace

void set_rotations(const Transformer& model, const ModelInput& input, const std::string& path,
                   const RotationTokens& tokens, const ProcessLayout& processes, PlannedStreams& planned) {
  const ModelConfig& config = input.config;
  const RotationMoments rotation(model, input.dtype, tokens.skip_first, processes.tensor_device());
  std::map<Stream, WeightedMoments> moments;
  moments[Stream::k] =
      sum_over_rows(config, tokens, processes,
                    [&](const auto& batch, WeightedMoments& sums) { rotation.add_queries(batch, sums); });
  const std::vector<double>& of_queries = moments.at(Stream::k).sums;
  check_head_sums(path, "q, read by k", input.dtype, config.layers, config.kv_heads, of_queries,
                  processes.group());
  if (planned.count(Stream::v) > 0) {
    moments[Stream::v] = sum_over_rows(
        config, tokens, processes,
        [&](const auto& batch, WeightedMoments& sums) { rotation.add_values(batch, of_queries, sums); });
    check_head_sums(path, "v", input.dtype, config.layers, config.kv_heads, moments.at(Stream::v).sums,
                    processes.group());
  }
  for (auto& [stream, blocks] : planned)
    for (std::size_t layer = 0; layer < blocks.size(); ++layer)
      set_block(moments.at(stream), config, static_cast<std::int64_t>(layer), blocks[layer]);
}

}  // namespace headspan
