// Saved Grams (HDF5, CHECKPOINT.gram.h5): for each stream and part of the tokens n, the mean and the lower
// triangle of head tiles, so that every statistic can be had later without the model, on any grid; where keys
// are roped and values are there, also what attention does with them, so that a compression can be planned.
// Files of one model and layout merge by addition. Not the statistics, and not the tokens.
//
//   /STREAM            attributes layer, head: [heads]; head_size, hidden_size, capture, precision, ...
//
//   /STREAM/fit        attribute tokens; mean: [D]; tiles: [heads (heads + 1) / 2, d, d]
//
//   /STREAM/heldout    the same, where there is a held-out part
//
//   /attention         over the fit part, by layer and query head (stats/compression/attention_metric.h):
//   attribute tokens;
//                      scale: [layers]; query, output: [layers, heads, d, d]
//
// Tile t = a (a + 1) / 2 + b, b <= a, holds G[a d + i, b d + j] at [t, i, j]. The root's attributes are those
// of the result (config_sha256 and model_type among them).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dist/matrix/matrix.h"
#include "io/hdf5/h5_file.h"

namespace headspan {

/// What a Gram file says of one stream, without its matrices.
struct GramStream {
  std::string name;
  std::vector<std::int64_t> layer, head;  ///< [heads], layer-major
  std::int64_t head_size = 0;
  std::int64_t hidden_size = 0;  ///< 0: unknown
  std::string capture;           ///< proj, normed or roped
  std::string forward_dtype;     ///< of the values as they came
  std::string precision;         ///< of the products
  std::int64_t skip_first = 0;   ///< positions of each sequence that are not in it
  bool heldout = false;

  std::int64_t heads() const { return static_cast<std::int64_t>(layer.size()); }
  std::int64_t columns() const { return heads() * head_size; }
};

/// One part of a stream's tokens; `matrix` is G about `mean`.
struct GramPart {
  std::int64_t tokens = 0;
  std::vector<double> mean;
  const Matrix* matrix = nullptr;
};

/// What attention does with the keys and values of the fit part, the group /attention.
struct GramAttention {
  std::int64_t tokens = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;  ///< query heads of a layer
  std::int64_t head_size = 0;
  std::vector<double> scale;   ///< [layers], a mean over the tokens
  std::vector<double> query;   ///< [layers, heads, d, d], likewise
  std::vector<double> output;  ///< [layers, heads, d, d], of the weights alone
};

/// Writes one stream into an open parallel file. Collective over the file's comm, which is that of the
/// matrices' grid.
void write_gram(H5File& file, const GramStream& stream, const GramPart& fit,
                const std::optional<GramPart>& heldout);

/// The streams of a file, in its order. Throws InputError for what is no Gram file, naming the object. Local
/// or collective, as the file was opened.
std::vector<GramStream> read_gram_streams(const H5File& file);

/// Throws InputError where the streams of a file, of which there is one, are of different tokens: they are
/// not in a saved state whose streams are summed in turn. Local or collective, as the file was opened.
void check_same_tokens(const H5File& file, const std::vector<GramStream>& streams);

/// n and mean of one part ("fit" or "heldout"); fills the stored tiles of `matrix`, which is columns() wide
/// with blocks that hold whole heads, diagonal tiles of blocks whole. What the numbers are is not looked at
/// (io/outputs/gram_check.h): those of a saved state are sums that are not finished. Collective over the
/// file's comm and the matrix's grid.
GramPart read_gram(const H5File& file, const GramStream& stream, const std::string& part, Matrix& matrix);

/// Writes the moments, which are the same on every rank. Collective over the file's comm.
void write_attention(H5File& file, const Comm& comm, const GramAttention& attention);

/// Its sizes, without the moments; nothing where the file has none. Throws InputError for what is damaged.
/// Local or collective, as the file was opened.
std::optional<GramAttention> read_attention_sizes(const H5File& file);

/// With the moments, whatever they are, on every rank, of a file that has them. Collective over the file's
/// comm, or of one rank on its own.
GramAttention read_attention(const H5File& file, const Comm& comm);

}  // namespace headspan
