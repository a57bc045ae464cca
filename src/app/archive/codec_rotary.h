// The rotary embedding of a model's keys, as its codec takes it away and puts it back (io/archive/rotary.h),
// and what it does to attention's metric.
#pragma once

#include <string>
#include <vector>

#include "io/archive/kv_codec.h"
#include "model/core/model_config.h"

namespace headspan {

/// Sets the codec's rotary rules to the model's. Throws InputError naming `config_path` if the frequencies
/// depend on the length of a sequence (longrope). Local.
void set_rotary(const ModelConfig& config, const std::string& config_path, KvCodec& codec);

/// Returns the metric of keys before the rotary embedding, [layers, kv_heads, d, d], from that of queries
/// before it: averaged over distances below `length` (stats/compression/rotated_metric.h). Local.
std::vector<double> key_metric_before_rotary(const KvCodec& codec, const std::vector<double>& metric,
                                             std::int64_t length);

}  // namespace headspan
