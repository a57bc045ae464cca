#include "io/inputs/activations.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/checked.h"
#include "base/printable.h"
#include "io/stream.h"

namespace headspan {
namespace {

constexpr std::int64_t kBlockBytes = std::int64_t{1} << 24;  // read and reordered at once

H5Dataset open_dataset(const H5File& file, const std::string& name, const std::string& right) {
  if (!file.has(name)) throw InputError(file.path(), name, "", "the dataset is missing", right);
  return file.open_dataset(name);
}

H5Dataset open_values(const H5File& file) {
  const std::string right = "a dataset [token, head, coordinate] of float32 or float64 is needed";
  H5Dataset values = open_dataset(file, "activations", right);
  const std::int64_t bytes = values.element_bytes();
  if (values.type_class() != H5T_FLOAT || (bytes != 4 && bytes != 8))
    throw InputError(file.path(), "activations", "", "does not hold float32 or float64", right);
  const auto& shape = values.shape();
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  if (shape.size() != 3 || empty)
    throw InputError(file.path(), "activations", "shape " + printable(shape),
                     empty ? "is empty" : "has not 3 dimensions", right);
  return values;
}

}  // namespace

Activations Activations::open(const std::string& path) {
  H5File file = H5File::open(path);
  H5Dataset values = open_values(file);
  Activations activations(std::move(file), std::move(values));
  activations.read_heads();
  activations.read_sequences();
  activations.read_attributes();
  return activations;
}

std::vector<std::int64_t> Activations::read_integers(const std::string& name, std::int64_t length,
                                                     const std::string& axis) const {
  const std::string right =
      "whole numbers of 0 or more [" + axis + "], " + std::to_string(length) + " of them";
  H5Dataset dataset = open_dataset(file_, name, right);
  if (dataset.type_class() != H5T_INTEGER)
    throw InputError(path(), name, "", "does not hold integers", right);
  if (dataset.shape() != std::vector<std::int64_t>{length})
    throw InputError(path(), name, "shape " + printable(dataset.shape()), "does not fit `activations`",
                     right);
  std::vector<std::int64_t> values(to_size(length));
  dataset.read_rows(0, length, values.data());
  constexpr std::int64_t kClipped = std::numeric_limits<std::int64_t>::max();  // HDF5 clips larger numbers
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] < 0 || values[i] == kClipped)
      throw InputError(path(), name + "[" + std::to_string(i) + "]", std::to_string(values[i]),
                       values[i] < 0 ? "is negative" : "is the largest number or above it", right);
  return values;
}

void Activations::read_heads() {
  const auto layer = read_integers("layer", heads(), "head");
  const auto head = read_integers("head", heads(), "head");
  column_.resize(layer.size());
  std::iota(column_.begin(), column_.end(), std::int64_t{0});
  const auto key = [&](std::int64_t column) {
    return std::make_pair(layer[to_size(column)], head[to_size(column)]);
  };
  std::stable_sort(column_.begin(), column_.end(),
                   [&](std::int64_t a, std::int64_t b) { return key(a) < key(b); });
  for (std::size_t i = 0; i < column_.size(); ++i) {
    layer_.push_back(layer[to_size(column_[i])]);
    head_.push_back(head[to_size(column_[i])]);
    if (i > 0 && key(column_[i]) == key(column_[i - 1]))
      throw InputError(path(), "layer, head", std::to_string(layer_[i]) + ", " + std::to_string(head_[i]),
                       "stands twice, at [" + std::to_string(column_[i - 1]) + "] and [" +
                           std::to_string(column_[i]) + "]",
                       "each pair of layer and head names one head");
  }
}

void Activations::read_sequences() {
  std::vector<std::int64_t> id(to_size(tokens()));
  std::iota(id.begin(), id.end(), std::int64_t{0});
  if (file_.has("sequence")) id = read_integers("sequence", tokens(), "token");
  for (std::size_t i = 0; i < id.size(); ++i) {
    if (i == 0 || id[i] != id[i - 1]) sequences_.push_back({static_cast<std::int64_t>(i), 0});
    ++sequences_.back().length;
  }
}

/// Attributes may be at the root of the file or at the dataset `activations`; if at both, they must agree.
void Activations::read_attributes() {
  const auto read = [&](const char* name, auto& value) {
    using T = typename std::decay_t<decltype(value)>::value_type;
    for (const char* owner : {"/", "activations"}) {
      const std::optional<T> attribute = file_.read_attribute<T>(owner, name);
      if (attribute && value && *attribute != *value)
        throw InputError(path(), name, "", "is one thing at the root and another at `activations`",
                         "keep one of the two attributes");
      if (attribute) value = attribute;
    }
  };
  std::optional<std::string> stream;
  read("stream", stream);
  read("hidden_size", hidden_size_);
  if (stream) stream_ = value_of(stream_words(), *stream);
  if (stream && !stream_) throw InputError(path(), "stream", printable(*stream), "is no stream", "k, q or v");
  if (hidden_size_ && *hidden_size_ < 1)
    throw InputError(path(), "hidden_size", std::to_string(*hidden_size_), "is not positive",
                     "the model's hidden size, or no such attribute");
}

template <class T>
void Activations::read(std::int64_t start, std::int64_t count, T* out) {
  const std::int64_t columns = checked_mul(heads(), head_size(), "columns of the activations");
  const std::int64_t row_bytes = checked_mul(columns, sizeof(T), "bytes of a token's activations");
  const std::int64_t step = std::max<std::int64_t>(1, kBlockBytes / row_bytes);
  for (std::int64_t done = 0; done < count; done += step)
    read_block(start + done, std::min(step, count - done), out + done * columns);
}

template <class T>
void Activations::read_block(std::int64_t start, std::int64_t count, T* out) {
  const std::int64_t columns = heads() * head_size();
  std::vector<T> values(to_size(count * columns));
  values_.read_rows(start, count, values.data());
  const auto bad = std::find_if(values.begin(), values.end(), [](T value) { return !std::isfinite(value); });
  if (bad != values.end()) {
    const std::int64_t i = bad - values.begin();
    throw InputError(path(),
                     "activations" + printable(std::vector<std::int64_t>{
                                         start + i / columns, i % columns / head_size(), i % head_size()}),
                     std::to_string(*bad), "is not a finite number",
                     "remove the token or the head that made it");
  }
  for (std::int64_t token = 0; token < count; ++token)
    for (const std::int64_t head : column_)
      out = std::copy_n(&values[to_size(token * columns + head * head_size())], head_size(), out);
}

template void Activations::read(std::int64_t, std::int64_t, double*);
template void Activations::read(std::int64_t, std::int64_t, float*);

}  // namespace headspan
