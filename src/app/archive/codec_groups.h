// The groups of a codec: the means and bases of the keys and values of some layers together, from the
// Grams of a calibration. Not how their coefficients are distributed (app/archive/codec_statistics.h).
#pragma once

#include <map>
#include <vector>

#include "app/compress/calibration.h"
#include "io/archive/kv_codec.h"

namespace headspan {

struct GroupSize {
  std::int64_t layers = 0;        ///< of a group, at most
  std::int64_t coefficients = 0;  ///< of a group, at most
};

/// Fits the groups of both streams, all but their deviations and classes, on every rank. metrics: of every
/// head by stream, [layers, kv_heads, d, d]. Layers are divided into as few groups as GroupSize allows, as
/// equal as possible. Each rank fits some groups, one at a time, in memory for three matrices of its columns.
/// Collective over the Grams' grid.
std::map<Stream, std::vector<CodecGroup>> fit_groups(const Calibration& calibration,
                                                     const std::map<Stream, std::vector<double>>& metrics,
                                                     const GroupSize& size);

}  // namespace headspan
