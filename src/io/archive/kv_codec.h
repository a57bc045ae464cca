// A codec of keys and values, as calibration leaves it: what an archive (io/archive/archive_file.h) is
// written and read with. Only the numbers; io/archive/group_coder.h makes maps of them.
//
// The heads of some neighbouring layers form a group, with D = layers * kv_heads * head_size columns: keys
// before the rotary embedding, or values. With S the root of the metric that errors are weighed by,
// block-diagonal over heads, a token's coefficients are those of (x - mean) S in a basis: n directions, of
// which the first matter most.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/archive/level_coder.h"
#include "io/archive/rotary.h"
#include "io/archive/run_coder.h"
#include "io/stream.h"

namespace headspan {

/// Deviations and steps are whole sixteenths of an octave: of the binary logarithm.
constexpr int kPerOctave = 16;

struct CodecGroup {
  std::int64_t first_layer = 0, layers = 0;
  std::vector<float> mean;               ///< [D]
  std::vector<float> whitening;          ///< S: [layers, kv_heads, d, d]
  std::vector<float> unwhitening;        ///< its inverse
  std::vector<std::int8_t> basis;        ///< [n, D], nearly orthogonal rows
  std::vector<float> scale;              ///< [n]: what a row of the basis is multiplied by
  std::vector<std::int16_t> deviations;  ///< [kTokenClasses, n] of coefficients, in sixteenths of an octave
  std::vector<float> class_weights;      ///< [n] of the squared coefficients whose sum tells a token's class
  std::vector<float> class_edges;  ///< [kTokenClasses - 1] ascending: the least sums of classes 1, 2, ..

  /// In place of deviations and classes, by step: how KVTC rounds the coefficients. Empty for headspan's
  /// codec.
  std::vector<std::vector<CodedRun>> runs;

  std::int64_t coefficients() const { return static_cast<std::int64_t>(scale.size()); }
};

/// What a step costs, measured on tokens that the codec was not fitted to.
struct RatePoint {
  int step = 0;     ///< sixteenths of an octave, or the number of a division into runs
  double bits = 0;  ///< for a number of a coded token
  double kl = 0;    ///< of the model behind what was decoded, in nats per token
};

struct KvCodec {
  std::string config_sha256, weights_digest;  ///< of the model (io/checkpoint/content_digest.h)
  std::int64_t layers = 0, kv_heads = 0, head_size = 0;
  std::int64_t exact_first = 0;    ///< first tokens of each document that archives keep as they are
  int lowest_deviation = 0;        ///< of the first model, divided by the step; below it nothing is stored
  std::vector<RatePoint> curve;    ///< steps ascending
  std::vector<LevelModel> models;  ///< a sixteenth of an octave apart
  std::vector<RotaryRule> rotary;  ///< of the model's keys
  std::vector<std::int64_t> rotary_of_layer;          ///< [layers]: which rule, -1 for none
  std::map<Stream, std::vector<CodecGroup>> streams;  ///< k and v; the groups are all layers, in order

  /// Whether it is KVTC's: all its groups have runs, or none.
  bool has_runs() const { return !streams.at(Stream::k).front().runs.empty(); }

  std::int64_t columns(const CodecGroup& group) const { return group.layers * kv_heads * head_size; }
};

}  // namespace headspan
