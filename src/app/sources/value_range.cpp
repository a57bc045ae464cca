#include "app/sources/value_range.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "dist/comm/agreement.h"

namespace headspan {
namespace {

constexpr double kLargestSquare = 0x1p400;  // mean over the tokens; FP64 still holds sums of its squares

std::string head_name(const std::string& stream, std::int64_t layer, std::int64_t head) {
  return stream + ", layer " + std::to_string(layer) + ", head " + std::to_string(head);
}

InputError forward_overflow(const std::string& path, const std::string& what, Dtype dtype) {
  return InputError(path, what, "", "its values overflow the forward in " + dtype_name(dtype),
                    dtype == Dtype::float16 ? "set model.dtype = bfloat16 or float32" : "check the weights");
}

/// Returns what to do about squares that are out of range.
std::string remedy(const StreamEvidence& stream) {
  if (!stream.rules.double_product) return "set predict.precision = float64";
  if (stream.origin.capture) return "check the weights";
  return "multiply all values by one power of two, which changes no R2";
}

InputError overflow(const std::string& path, const StreamEvidence& stream, std::size_t column, double mean) {
  const std::size_t head = column / to_size(stream.layout.head_size);
  const std::string where =
      head_name(stream.origin.name(), stream.layout.layer[head], stream.layout.head[head]);
  if (stream.origin.capture && !std::isfinite(mean))
    return forward_overflow(path, where, stream.origin.forward_dtype);
  return InputError(path, where, "", "its values are too large to be squared and summed", remedy(stream));
}

}  // namespace

void check_value_range(const std::string& path, const StreamEvidence& stream, const Comm& comm,
                       std::int64_t tokens, const std::vector<double>& mean,
                       const std::vector<double>& squares) {
  agree(comm, [&] {
    const auto n = static_cast<double>(tokens);
    double largest = 0;
    for (std::size_t j = 0; j < mean.size(); ++j) {
      if (!(squares[j] <= n * kLargestSquare)) throw overflow(path, stream, j, mean[j]);
      largest = std::max({largest, std::abs(mean[j]), std::sqrt(squares[j])});
    }
    if (largest > 0 && largest < std::sqrt(stream.rules.smallest_square()))
      throw InputError(path, stream.origin.name(), "", "its values are too small to be squared and summed",
                       remedy(stream));
  });
}

void check_value_range(const std::string& path, const StreamEvidence& stream) {
  const auto check = [&](const HeadGram& gram) {
    check_value_range(path, stream, gram.matrix.grid().comm(), gram.tokens, gram.mean, diagonal(gram.matrix));
  };
  check(stream.grams->fit);
  if (stream.grams->heldout) check(*stream.grams->heldout);
}

void check_value_range(const std::string& path, const UnitEvidence& evidence, const Comm& comm) {
  for (const StreamEvidence& stream : evidence.streams)
    if (stream.grams) check_value_range(path, stream);
  if (evidence.attention)
    check_attention_range(path, evidence.streams.front().origin.forward_dtype, evidence.attention->heads,
                          evidence.attention->scale, evidence.attention->query, comm);
}

void check_head_sums(const std::string& path, const std::string& stream, Dtype forward_dtype,
                     std::int64_t layers, std::int64_t heads, const std::vector<double>& sums,
                     const Comm& comm) {
  agree(comm, [&] {
    const std::int64_t size = static_cast<std::int64_t>(sums.size()) / (layers * heads);
    for (std::int64_t head = 0; head < layers * heads; ++head) {
      const auto first = sums.begin() + head * size;
      if (!std::all_of(first, first + size, [](double sum) { return std::isfinite(sum); }))
        throw forward_overflow(path, head_name(stream, head / heads, head % heads), forward_dtype);
    }
  });
}

void check_attention_range(const std::string& path, Dtype forward_dtype, std::int64_t heads,
                           const std::vector<double>& scale, const std::vector<double>& query,
                           const Comm& comm) {
  check_head_sums(path, "q", forward_dtype, static_cast<std::int64_t>(scale.size()), heads, query, comm);
  agree(comm, [&] {
    for (std::size_t layer = 0; layer < scale.size(); ++layer)
      if (!std::isfinite(scale[layer]))
        throw forward_overflow(path, "hidden states, layer " + std::to_string(layer), forward_dtype);
  });
}

}  // namespace headspan
