// The metrics in which a codec's errors count, from gradients: an error e in a head of a token's keys or
// values costs e^T M e in KL divergence, with M half of the mean of g g^T over tokens, g the gradient of the
// log-probability of tokens drawn from the model: half of its Fisher information, block by block. Unlike
// attention's metric (stats/compression/attention_metric.h) M says what an error costs from layer to layer.
#pragma once

#include <map>
#include <vector>

#include "app/run/process_layout.h"
#include "app/run/sample.h"
#include "model/forward/transformer.h"

namespace headspan {

/// Returns by stream [layers, kv_heads, d, d], of keys before the rotary embedding, and values, from about
/// 8192 fit tokens but the first `skip_first` of each sequence. seed: of the tokens that are drawn
/// (token_uniform). The same on every rank up to rounding. The model is whole on each rank. Collective over
/// the layout's group.
std::map<Stream, std::vector<double>> loss_metrics(const Transformer& model, const Sample& sample,
                                                   std::int64_t skip_first, std::int64_t seed,
                                                   const ProcessLayout& processes);

}  // namespace headspan
