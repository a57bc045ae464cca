#include "app/job/job_rules.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace headspan {
namespace {

/// Throws InputError if `asked` exceeds both `heads` and `always`. `which` follows "heads" in the message, as
/// in "that there are".
void check_at_most(const char* key, std::int64_t asked, std::int64_t heads, std::int64_t always,
                   const char* which) {
  const std::int64_t limit = std::max(heads, always);
  if (asked > limit)
    throw InputError("", key, std::to_string(asked),
                     "is more than the " + std::to_string(heads) + " heads " + which,
                     "at most " + std::to_string(limit));
}

struct Rounding {
  double sums, values;  ///< as FitRules has them
};

/// Returns what the rounding of the products of a Gram comes to. `split` rounds to 23 bits of the largest
/// value, which is taken to be at most 8 standard deviations.
Rounding rounding_of(Precision precision) {
  switch (precision) {
    case Precision::float64:
      return {0x1p-52, 0};
    case Precision::split:
      return {0x1p-34, 0x1p-21};
    case Precision::float32:
      return {0x1p-23, 0x1p-24};
    case Precision::bfloat16:
      return {0x1p-17, 0x1p-9};
  }
  throw Error("no such precision");
}

}  // namespace

FitRules fit_rules(PredictMode mode, Dtype forward_dtype, Precision precision) {
  FitRules rules;
  rules.double_data = forward_dtype == Dtype::float64;
  rules.double_product = precision == Precision::float64;
  const Rounding rounding = rounding_of(precision);
  rules.sum_rounding = rounding.sums;
  rules.value_rounding = rounding.values;
  rules.paper = mode == PredictMode::paper;
  return rules;
}

std::string chosen_products(const Job::Predict& predict, Dtype forward) {
  if (predict.precision) return "";
  return "products " + word_of(precision_words(), predict.product(forward)) + "\n";
}

bool captures(const Job::Predict& predict, Stream stream) {
  return std::count(predict.streams.begin(), predict.streams.end(), stream) > 0;
}

bool saves_attention(const Job::Predict& predict, const Job::Output& output) {
  return output.save_gram && predict.capture == CapturePoint::roped && captures(predict, Stream::k) &&
         captures(predict, Stream::v);
}

void check_references(const Job::Predict& predict, std::int64_t heads) {
  const Job::Predict defaults;
  check_at_most("predict.references", predict.references, heads, defaults.references, "that there are");
  check_at_most("predict.pool", predict.pool, heads, defaults.pool, "that there are");
}

std::int64_t stored_count(double stored, double all) {
  return static_cast<std::int64_t>(std::floor(stored * all * (1 + 1e-12)));
}

void check_references(const Job::Compress& compress, std::int64_t layers, std::int64_t heads) {
  const bool headspan = compress.algorithm == CompressionAlgorithm::headspan;
  if (!headspan && compress.algorithm != CompressionAlgorithm::paper_text) return;
  const bool in_layer = headspan && compress.scope == ReferenceScope::layer;
  check_at_most("compress.references", compress.references, (in_layer ? heads : layers * heads) - 1,
                Job::Compress().references, "that can predict another");
}

}  // namespace headspan
