// What an error in the keys or values of one layer costs the model, measured: attention's metric says it
// within a layer, but not from layer to layer. The codec's own errors are measured, at about one bit a
// number.
#pragma once

#include <map>
#include <vector>

#include "app/run/cached_model.h"
#include "app/run/sample.h"
#include "io/archive/kv_codec.h"

namespace headspan {

/// What the errors are measured with, and by.
struct UnitMeasurement {
  const Transformer& model;
  const ModelInput& input;
  const ProcessLayout& processes;
  const Sample& sample;
  std::vector<std::int64_t> document_ends;  ///< ids of tokens behind which a new document begins
};

/// Returns by stream, for each layer, the KL divergence from the model with exact keys and values, in nats
/// per token, over the squared error in `metrics` per token, when this layer of this stream alone goes
/// through the codec. metrics: as fit_groups takes them. The codec has statistics, but need not have a curve.
/// Runs the model over a few fit tokens for each. The same on every rank. Collective over the group.
std::map<Stream, std::vector<double>> measured_units(const UnitMeasurement& given, const KvCodec& codec,
                                                     const std::map<Stream, std::vector<double>>& metrics);

}  // namespace headspan
