// Saved Grams (HDF5, CHECKPOINT.gram.h5). For each stream (k, q or v) and each part of the tokens (fit or
// heldout): their number, the mean, and the lower triangle of tiles of heads, so that every statistic can be
// computed later without the model, on any grid. With roped keys and with values also the moments of
// attention, from which a compression can be planned. Files of the same model and layout merge by addition.
// Holds neither statistics nor tokens.
//
//   /STREAM            attributes layer, head: [heads]; head_size, hidden_size, capture, precision, ...
//
//   /STREAM/fit        attribute tokens; mean: [D]; tiles: [heads (heads + 1) / 2, d, d]
//
//   /STREAM/heldout    the same, if there is a held-out part
//
//   /attention         attribute tokens; scale: [layers]; query, output: [layers, query heads, d, d]: the
//                      moments of attention over the fit part (stats/compression/attention_metric.h)
//
// d is the head size, D = heads * d. Tile t = a (a + 1) / 2 + b, b <= a, holds G[a d + i, b d + j] at
// [t, i, j]. The root has the attributes of the result (config_sha256 and model_type among them).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dist/matrix/matrix.h"
#include "io/hdf5/h5_file.h"

namespace headspan {

/// What a Gram file says about a stream, without its matrices.
struct GramStream {
  std::string name;
  std::vector<std::int64_t> layer, head;  ///< [heads], layer-major
  std::int64_t head_size = 0;
  std::int64_t hidden_size = 0;  ///< 0: unknown
  std::string capture;           ///< proj, normed or roped
  std::string forward_dtype;     ///< dtype of the captured values
  std::string precision;         ///< of the products
  std::int64_t skip_first = 0;   ///< leading positions of each sequence that are left out
  bool heldout = false;

  std::int64_t heads() const { return static_cast<std::int64_t>(layer.size()); }
  std::int64_t columns() const { return heads() * head_size; }
};

/// A part of a stream's tokens: `matrix` is G, the cross-products about `mean`.
struct GramPart {
  std::int64_t tokens = 0;
  std::vector<double> mean;
  const Matrix* matrix = nullptr;
};

/// The moments of attention over the fit part, the group /attention.
struct GramAttention {
  std::int64_t tokens = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;  ///< query heads of a layer
  std::int64_t head_size = 0;
  std::vector<double> scale;   ///< [layers], means over the tokens
  std::vector<double> query;   ///< [layers, heads, d, d], means over the tokens
  std::vector<double> output;  ///< [layers, heads, d, d], from the weights alone
};

/// Writes a stream into an open parallel file. Collective over the file's comm, which must be that of the
/// matrices' grid.
void write_gram(H5File& file, const GramStream& stream, const GramPart& fit,
                const std::optional<GramPart>& heldout);

/// Returns the streams of a file in the order k, q, v. Throws InputError naming the object if this is not a
/// Gram file. Local or collective, as the file was opened.
std::vector<GramStream> read_gram_streams(const H5File& file);

/// Throws InputError unless all streams of a file, at least one, are of the same tokens. (In a saved state,
/// whose streams are summed one after the other, they need not be.) Local or collective, as the file was
/// opened.
void check_same_tokens(const H5File& file, const std::vector<GramStream>& streams);

/// Reads a part ("fit" or "heldout") of a stream; its tiles, the lower triangle, go into `matrix`, which has
/// columns() columns and blocks of whole heads. Does not check the numbers (io/outputs/gram_check.h), because
/// those of a saved state are unfinished sums. Collective over the file's comm and the matrix's grid.
GramPart read_gram(const H5File& file, const GramStream& stream, const std::string& part, Matrix& matrix);

/// Writes the moments of attention, which every rank holds. Collective over the file's comm.
void write_attention(H5File& file, const Comm& comm, const GramAttention& attention);

/// Reads the sizes of the moments of attention, but not their values; nothing if the file has none. Throws
/// InputError if the group is damaged. Local or collective, as the file was opened.
std::optional<GramAttention> read_attention_sizes(const H5File& file);

/// Reads the moments of attention of a file that has them, on every rank. Does not check the numbers.
/// Collective over comm, that of the file, or of a single rank.
GramAttention read_attention(const H5File& file, const Comm& comm);

}  // namespace headspan
