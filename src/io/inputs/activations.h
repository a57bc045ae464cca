// The user's own activations, in HDF5: dataset `activations` [token, head, coordinate] of float32 or float64,
// `layer` [head], `head` [head], optional `sequence` [token] (each run of one id is a sequence; without it
// every token is its own); attributes `stream` (k, q or v; default k) and optional `hidden_size`. Not a store
// of activations that headspan makes: those are never written.
//
// Heads may stand in any order in the file. Here they come in ascending order of layer, then head, as ties in
// the statistics are decided; `read` delivers columns in this order. Nothing here communicates: any rank may
// open and read on its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/hdf5/h5_file.h"
#include "io/inputs/sequences.h"

namespace headspan {

class Activations {
 public:
  /// Opens and checks everything but the activations' values. Throws InputError naming the dataset or
  /// attribute that is missing or not as it should be.
  static Activations open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::int64_t tokens() const { return values_.shape()[0]; }
  std::int64_t heads() const { return values_.shape()[1]; }
  std::int64_t head_size() const { return values_.shape()[2]; }
  bool is_float32() const { return values_.element_bytes() == 4; }

  /// [heads], ascending by (layer, head); no pair twice.
  const std::vector<std::int64_t>& layer() const { return layer_; }
  const std::vector<std::int64_t>& head() const { return head_; }

  std::string stream() const { return stream_.value_or("k"); }
  bool names_stream() const { return stream_.has_value(); }  ///< else it is k by default
  std::optional<std::int64_t> hidden_size() const { return hidden_size_; }

  /// Consecutive; together all tokens.
  const std::vector<Sequence>& sequences() const { return sequences_; }

  /// out: [count, heads * head_size], row-major, tokens start .. start + count. T is double or float. Throws
  /// InputError at the first value that is not finite in T, naming its place in the file.
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
  std::vector<std::int64_t> place_;  // [heads]: of each head in the file
  std::vector<Sequence> sequences_;
  std::optional<std::string> stream_;
  std::optional<std::int64_t> hidden_size_;
};

}  // namespace headspan
