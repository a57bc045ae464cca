// A compression plan (HDF5): what a KV cache stores of each token, and how every head is had from it. The
// numbers alone; model/cache/cache_plan.h makes of them what a cache works with.
//
//   /                 attributes: headspan_schema, the members of CompressionPlan, and whatever else its
//                     maker tells
//
//   /STREAM/LAYER     attributes band_columns, band_bits, expected_loss
//
//   latents           mean: [D]; projection: [D, r]; lift: [r, D]; bias: [D]; eigenvalues: [D]
//
//   heads             kept: [n]; targets: [t]; references: [t, R]; map: [t, R d, d]; bias: [t, d];
//                     r2_heldout, loss: [t]
//
// D = kv_heads * d columns of a layer. z = (x - mean) projection is stored and x is had as z lift + bias; a
// kept head is stored as it is, and target t is its references' columns side by side times map[t], plus
// bias[t]. `kept` and `targets` count heads within the layer, `references` over the stream in layer-major
// order, -1 where there is none. `quantise` stores the columns as they are, in bands with an offset.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/bands.h"
#include "base/word_list.h"
#include "io/hdf5/netcdf.h"
#include "io/stream.h"

namespace headspan {

/// How a plan stores keys and values: latents in few bits; whole heads, of which others are predicted, chosen
/// by what they cost or by the paper's text or code; or plain columns in few bits.
enum class CompressionAlgorithm { latent, headspan, paper_text, paper_code, quantise };

inline const WordList<CompressionAlgorithm>& algorithm_words() {
  static const WordList<CompressionAlgorithm> words{{"latent", CompressionAlgorithm::latent},
                                                    {"headspan", CompressionAlgorithm::headspan},
                                                    {"paper-text", CompressionAlgorithm::paper_text},
                                                    {"paper-code", CompressionAlgorithm::paper_code},
                                                    {"quantise", CompressionAlgorithm::quantise}};
  return words;
}

/// Of one stream and layer. What the algorithm has no use for is empty.
struct PlannedBlock {
  std::vector<Band> bands;  ///< of the stored columns, in order
  double expected_loss = 0;
  std::vector<double> mean, bias;
  std::vector<float> projection, lift;
  std::vector<double> eigenvalues;
  std::vector<std::int64_t> kept, targets, references;
  std::vector<float> map;
  std::vector<double> r2_heldout, loss;
};

struct CompressionPlan {
  CompressionAlgorithm algorithm = CompressionAlgorithm::latent;
  std::string config_sha256;
  std::string
      weights_digest;  ///< of what it was made for (io/checkpoint/content_digest.h); empty: it does not tell
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t exact_first = 0;
  std::int64_t references = 0;  ///< R
  double expected_loss = 0;
  std::map<Stream, std::vector<PlannedBlock>>
      streams;  ///< [layers] of keys, values; one without is kept whole

  std::int64_t columns() const { return kv_heads * head_size; }
  /// Bytes of a token in a full cache and in this one, in numbers of 16 bits.
  double full_bytes() const;
  double stored_bytes() const;
  /// What a decode step reads of each token, likewise: more than is stored where layers refer to earlier
  /// ones.
  double read_bytes() const;
  /// Of projections, lifts, maps and biases in 16 bits.
  double map_bytes() const;
};

/// Writes a file of one process; `more` are further attributes of it. Throws Error.
void write_plan(const std::string& path, const CompressionPlan& plan, const NetcdfAttributes& more);

/// Throws InputError, naming the object, for what is no plan, is of a schema that is not known, contradicts
/// itself or holds a number that is not finite (r2_heldout may be NaN).
CompressionPlan read_plan(const std::string& path);

}  // namespace headspan
