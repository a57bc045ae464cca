// Activations that the user supplies in HDF5: dataset `activations` [token, head, coordinate] of float32 or
// float64, `layer` [head], `head` [head] and optionally `sequence` [token] (a run of equal ids is one
// sequence; without the dataset, every token is a sequence of its own); attributes `stream` (k, q or v;
// default k) and, optionally, `hidden_size`. Only a reader: headspan never writes activations.
//
// A file may list its heads in any order. The accessors and `read` present them in ascending order of layer,
// then head, the order by which the statistics break ties. Nothing here communicates: each rank opens and
// reads on its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/hdf5/h5_file.h"
#include "io/inputs/sequences.h"
#include "io/stream.h"

namespace headspan {

class Activations {
 public:
  /// Opens the file and checks everything except the values of the activations. Throws InputError naming the
  /// dataset or attribute that is missing or wrong.
  static Activations open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::int64_t tokens() const { return values_.shape()[0]; }
  std::int64_t heads() const { return values_.shape()[1]; }
  std::int64_t head_size() const { return values_.shape()[2]; }
  bool is_float32() const { return values_.element_bytes() == 4; }

  /// [heads], ascending by (layer, head), no pair twice.
  const std::vector<std::int64_t>& layer() const { return layer_; }
  const std::vector<std::int64_t>& head() const { return head_; }

  Stream stream() const { return stream_.value_or(Stream::k); }
  bool names_stream() const { return stream_.has_value(); }  ///< false: `stream` is the default
  std::optional<std::int64_t> hidden_size() const { return hidden_size_; }

  /// The sequences in the order of the file; together they are all tokens.
  const std::vector<Sequence>& sequences() const { return sequences_; }

  /// Reads tokens start .. start + count into out: [count, heads * head_size], row-major. T is double or
  /// float. Throws InputError naming the position in the file of the first value that is not finite in T.
  template <class T>
  void read(std::int64_t start, std::int64_t count, T* out);

 private:
  Activations(H5File file, H5Dataset values) : file_(std::move(file)), values_(std::move(values)) {}
  void read_heads();
  void read_sequences();
  void read_attributes();
  std::vector<std::int64_t> read_integers(const std::string& name, std::int64_t length,
                                          const std::string& axis) const;
  template <class T>
  void read_block(std::int64_t start, std::int64_t count, T* out);

  H5File file_;
  H5Dataset values_;
  std::vector<std::int64_t> layer_, head_;
  std::vector<std::int64_t> column_;  // [heads] position of each head along the file's head axis
  std::vector<Sequence> sequences_;
  std::optional<Stream> stream_;
  std::optional<std::int64_t> hidden_size_;
};

}  // namespace headspan
