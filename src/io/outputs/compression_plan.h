// A compression plan (HDF5): what a KV cache stores of each token, and how it reconstructs every head from
// that. Only the numbers; model/cache/cache_plan.h turns them into what a cache works with.
//
//   /                 attributes: headspan_schema, the members of CompressionPlan, and others that describe
//                     the run
//
//   /STREAM/LAYER     attributes band_columns, band_bits, expected_loss; where they are not symmetric, 1 and
//                     1: band_coding, band_tokens, band_clip
//
//   latents           mean: [D]; projection: [D, r]; lift: [r, D]; bias: [D]; eigenvalues: [D];
//                     weights: [r], where band_coding is gain
//
//   heads             kept: [n]; targets: [t]; references: [t, R]; map: [t, R d, d]; bias: [t, d];
//                     r2_heldout, loss: [t]
//
//   oscar             rotation: [kv_heads, d, d], whose columns are the axes that a head is stored on;
//                     eigenvalues: [D], of each head's weighted second moment
//
// D = kv_heads * d is the number of columns of a layer. A plan of latents stores z = (x - mean) projection
// and reconstructs x as z lift + bias. A plan of heads stores the kept heads and reconstructs target t as the
// columns of its references, side by side, times map[t], plus bias[t]. `kept` and `targets` number the heads
// of the layer, `references` those of the stream in layer-major order, -1 for none. The algorithms that round
// columns store the columns themselves, those of each head rotated where the algorithm says so (oscar: by a
// rotation of the plan).
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
/// by what they cost or by the paper's text or code; or all columns rounded to few bits, as they are or each
/// head rotated: by a Hadamard matrix, or by one that was fitted to what attention does with the head.
enum class CompressionAlgorithm {
  latent,
  headspan,
  paper_text,
  paper_code,
  quantise,
  hadamard,
  rotated_q4,
  rotated_q8,
  kivi,
  oscar
};

inline const WordList<CompressionAlgorithm>& algorithm_words() {
  static const WordList<CompressionAlgorithm> words{{"latent", CompressionAlgorithm::latent},
                                                    {"headspan", CompressionAlgorithm::headspan},
                                                    {"paper-text", CompressionAlgorithm::paper_text},
                                                    {"paper-code", CompressionAlgorithm::paper_code},
                                                    {"quantise", CompressionAlgorithm::quantise},
                                                    {"hadamard", CompressionAlgorithm::hadamard},
                                                    {"rotated-q4", CompressionAlgorithm::rotated_q4},
                                                    {"rotated-q8", CompressionAlgorithm::rotated_q8},
                                                    {"kivi", CompressionAlgorithm::kivi},
                                                    {"oscar", CompressionAlgorithm::oscar}};
  return words;
}

/// Returns whether an algorithm stores all columns, in few bits.
inline bool rounds_columns(CompressionAlgorithm algorithm) {
  using Algorithm = CompressionAlgorithm;
  return algorithm == Algorithm::quantise || algorithm == Algorithm::hadamard ||
         algorithm == Algorithm::rotated_q4 || algorithm == Algorithm::rotated_q8 ||
         algorithm == Algorithm::kivi || algorithm == Algorithm::oscar;
}

/// Returns whether a plan depends on the weights of the model and on the tokens that it was calibrated on.
inline bool is_calibrated(CompressionAlgorithm algorithm) {
  return !rounds_columns(algorithm) || algorithm == CompressionAlgorithm::oscar;
}

/// Returns whether each head is stored in the coordinates of a Hadamard matrix.
inline bool uses_hadamard(CompressionAlgorithm algorithm) {
  using Algorithm = CompressionAlgorithm;
  return algorithm == Algorithm::hadamard || algorithm == Algorithm::rotated_q4 ||
         algorithm == Algorithm::rotated_q8;
}

/// The plan of a layer of a stream. What the algorithm does not use is empty.
struct PlannedBlock {
  std::vector<Band> bands;  ///< of the stored columns, in order
  double expected_loss = 0;
  std::vector<double> mean, bias;
  std::vector<float> projection, reconstruction;  ///< `reconstruction` is the file's `lift`
  std::vector<float> weights;  ///< where bands share a gain: what a squared error in a stored column costs
  std::vector<double> eigenvalues;
  std::vector<std::int64_t> kept, targets, references;
  std::vector<float> map, rotation;
  std::vector<double> r2_heldout, loss;
};

struct CompressionPlan {
  CompressionAlgorithm algorithm = CompressionAlgorithm::latent;
  std::string config_sha256;
  std::string weights_digest;  ///< of the calibrated model (io/checkpoint/content_digest.h); empty: unknown
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t exact_first = 0;
  std::int64_t references = 0;  ///< R
  double expected_loss = 0;
  std::map<Stream, std::vector<PlannedBlock>>
      streams;  ///< [layers] of k, v; one that is missing is kept whole

  std::int64_t columns() const { return kv_heads * head_size; }  ///< of a layer of a stream

  // Bytes with full columns of 16 bits.
  double full_bytes() const;    ///< of a token in a full cache
  double stored_bytes() const;  ///< of a token in the compressed cache
  double read_bytes() const;    ///< read per token by a decode step: earlier layers may be read again
  double map_bytes() const;     ///< of the maps themselves, with 16 bits per number

  /// Returns how many tokens are quantised together; 1 if none are.
  std::int64_t group_tokens() const;
};

/// Writes a plan with further attributes of its root. Throws Error. Local.
void write_plan(const std::string& path, const CompressionPlan& plan, const NetcdfAttributes& attributes);

/// Reads a plan. Throws InputError naming the object if the file is not a plan, has an unknown schema, is
/// inconsistent or holds a number that is not finite (r2_heldout may be NaN). Local.
CompressionPlan read_plan(const std::string& path);

}  // namespace headspan
