#include "app/sources/value_range.h"

#include <algorithm>
#include <cmath>

#include "dist/comm/agreement.h"

namespace headspan {
namespace {

constexpr double kLargestSquare = 0x1p400;  // of a mean; the squares of a Gram are summed too

std::string place(const std::string& stream, std::int64_t layer, std::int64_t head) {
  return stream + ", layer " + std::to_string(layer) + ", head " + std::to_string(head);
}

InputError forward_overflow(const std::string& path, const std::string& what, Dtype dtype) {
  return InputError(path, what, "", "its values overflow the forward in " + dtype_name(dtype),
                    dtype == Dtype::float16 ? "set model.dtype = bfloat16 or float32" : "check the weights");
}

/// What to do about squares that are out of range.
std::string remedy(const StreamOrigin& origin, const FitRules& rules) {
  if (!rules.double_product) return "set predict.precision = float64";
  if (origin.capture) return "check the weights";
  return "multiply all values by one power of two, which changes no R2";
}

InputError overflow(const std::string& path, const StreamOrigin& origin, const HeadLayout& layout,
                    const FitRules& rules, std::int64_t column, double mean) {
  const auto head = static_cast<std::size_t>(column / layout.head_size);
  const std::string where = place(origin.name(), layout.layer[head], layout.head[head]);
  if (origin.capture && !std::isfinite(mean)) return forward_overflow(path, where, origin.forward_dtype);
  return InputError(path, where, "", "its values are too large to be squared and summed",
                    remedy(origin, rules));
}

}  // namespace

void check_value_range(const Comm& comm, const std::string& path, const StreamOrigin& origin,
                       const HeadLayout& layout, const FitRules& rules, std::int64_t tokens,
                       const std::vector<double>& mean, const std::vector<double>& squares) {
  agree(comm, [&] {
    const auto n = static_cast<double>(tokens);
    double largest = 0;
    for (std::size_t j = 0; j < mean.size(); ++j) {
      if (!(squares[j] <= n * kLargestSquare))
        throw overflow(path, origin, layout, rules, static_cast<std::int64_t>(j), mean[j]);
      largest = std::max({largest, std::abs(mean[j]), std::sqrt(squares[j])});
    }
    if (largest > 0 && largest < std::sqrt(rules.smallest_square()))
      throw InputError(path, origin.name(), "", "its values are too small to be squared and summed",
                       remedy(origin, rules));
  });
}

void check_value_range(const std::string& path, const StreamOrigin& origin, const HeadLayout& layout,
                       const FitRules& rules, const StreamGrams& grams) {
  const auto check = [&](const HeadGram& gram) {
    check_value_range(gram.matrix.grid().comm(), path, origin, layout, rules, gram.tokens, gram.mean,
                      diagonal(gram.matrix));
  };
  check(grams.fit);
  if (grams.heldout) check(*grams.heldout);
}

void check_value_range(const Comm& comm, const std::string& path, Dtype forward_dtype, std::int64_t heads,
                       const std::vector<double>& scale, const std::vector<double>& query) {
  agree(comm, [&] {
    const auto layers = static_cast<std::int64_t>(scale.size());
    const std::int64_t square = static_cast<std::int64_t>(query.size()) / (layers * heads);
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      for (std::int64_t head = 0; head < heads; ++head) {
        const auto first = query.begin() + (layer * heads + head) * square;
        if (!std::all_of(first, first + square, [](double q) { return std::isfinite(q); }))
          throw forward_overflow(path, place("q", layer, head), forward_dtype);
      }
      if (!std::isfinite(scale[static_cast<std::size_t>(layer)]))
        throw forward_overflow(path, "hidden states, layer " + std::to_string(layer), forward_dtype);
    }
  });
}

void check_value_range(const Comm& comm, const std::string& path, const UnitEvidence& evidence) {
  for (const StreamEvidence& stream : evidence.streams)
    if (stream.grams) check_value_range(path, stream.origin, stream.layout, stream.rules, *stream.grams);
  if (evidence.attention)
    check_value_range(comm, path, evidence.streams.front().origin.forward_dtype, evidence.attention->heads,
                      evidence.attention->scale, evidence.attention->query);
}

}  // namespace headspan
