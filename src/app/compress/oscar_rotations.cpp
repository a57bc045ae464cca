#include "app/compress/oscar_rotations.h"

#include <functional>

#include "app/capture/rounds.h"
#include "app/run/run_clock.h"
#include "app/sources/value_range.h"
#include "base/checked.h"
#include "model/forward/rotation_moments.h"

namespace headspan {
namespace {

/// Adds the sequences of a batch to sums.
using AddBatch = std::function<void(const RotationMoments::Sequences& batch, std::vector<double>& sums)>;

/// Returns the sums over the sequences of the fit part, each run on one data-parallel row: [layers, kv_heads,
/// d, d], on every rank. Collective.
std::vector<double> sum_over_rows(const ModelConfig& config, const RotationTokens& tokens,
                                  const ProcessLayout& processes, const AddBatch& add) {
  const Sample& sample = tokens.sample;
  std::vector<double> sums(to_size(config.layers * config.kv_heads * config.head_size * config.head_size));
  for (const Round& round :
       plan_remaining(sample.sequences, processes.data().size(), tokens.batch_tokens, sample.heldout)) {
    stop_where_asked(processes.group());
    RotationMoments::Sequences batch;
    for (const std::int64_t s : round[to_size(processes.data().rank())])
      batch.push_back(sample.tokens[to_size(s)]);
    if (!batch.empty()) add(batch, sums);
  }
  processes.group().sum(sums.data(), static_cast<std::int64_t>(sums.size()));
  return sums;
}

}  // namespace

void set_rotations(const Transformer& model, const ModelInput& input, const std::string& path,
                   const RotationTokens& tokens, const ProcessLayout& processes, PlannedStreams& planned) {
  const ModelConfig& config = input.config;
  const RotationMoments rotation(model, input.dtype, tokens.skip_first, processes.tensor_device());
  std::map<Stream, std::vector<double>> moments;
  const std::vector<double>& of_queries = moments[Stream::k] =
      sum_over_rows(config, tokens, processes,
                    [&](const auto& batch, std::vector<double>& sums) { rotation.add_queries(batch, sums); });
  check_head_sums(path, "q, read by k", input.dtype, config.layers, config.kv_heads, of_queries,
                  processes.group());
  if (planned.count(Stream::v) > 0) {
    moments[Stream::v] = sum_over_rows(
        config, tokens, processes,
        [&](const auto& batch, std::vector<double>& sums) { rotation.add_values(batch, of_queries, sums); });
    check_head_sums(path, "v", input.dtype, config.layers, config.kv_heads, moments.at(Stream::v),
                    processes.group());
  }
  for (auto& [stream, blocks] : planned)
    for (std::size_t layer = 0; layer < blocks.size(); ++layer) {
      const auto size = config.kv_heads * config.head_size * config.head_size;
      const auto first = moments.at(stream).begin() + static_cast<std::int64_t>(layer) * size;
      blocks[layer].rotation = rotations_of({first, first + size}, config.kv_heads, config.head_size);
    }
}

}  // namespace headspan
