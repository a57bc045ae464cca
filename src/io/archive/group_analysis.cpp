#include "io/archive/group_analysis.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/error.h"
#include "dist/kernels/head_product.h"
#include "dist/kernels/linear_kernel.h"
#include "io/archive/group_rows.h"

namespace headspan {
namespace {

constexpr float kUnitsOfStep = 16;      // at least: units that columns are rounded to
constexpr float kErrorsOfStep = 32;     // at least: what the last coefficients may change in others
constexpr float kMostSum = 1.9e9F;      // of 2^31, with room for rows that are not quite orthonormal
constexpr std::int64_t kTermStep = 64;  // coefficients whose part in others is taken away together

/// Returns a b^T. a: [rows, terms], b: [columns, terms]. The same bits for any number of threads.
std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b, std::int64_t terms) {
  const std::int64_t rows = static_cast<std::int64_t>(a.size()) / terms,
                     columns = static_cast<std::int64_t>(b.size()) / terms;
  std::vector<float> c(to_size(rows * columns));
  multiply_linear<float>({a.data(), rows, terms, b.data(), columns}, c.data());
  return c;
}

/// Returns the matrix [rows, columns] with rows and columns exchanged.
template <class T>
std::vector<T> transposed(const std::vector<T>& matrix, std::int64_t rows, std::int64_t columns) {
  std::vector<T> turned(matrix.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      turned[to_size(j * rows + i)] = matrix[to_size(i * columns + j)];
  return turned;
}

/// Returns blocks, [heads, d, d], each transposed.
std::vector<float> transposed_blocks(const std::vector<float>& blocks, std::int64_t d) {
  std::vector<float> turned(blocks.size());
  for (std::int64_t k = 0; k < static_cast<std::int64_t>(blocks.size()); ++k)
    turned[to_size(k - k % (d * d) + k % d * d + k / d % d)] = blocks[to_size(k)];
  return turned;
}

/// Sets m = 2 I - m and returns the largest difference of m from I before, by absolute values of rows.
float reflect(std::vector<float>& m, std::int64_t n) {
  float largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    float sum = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      float& element = m[to_size(i * n + j)];
      sum += std::abs(element - (i == j ? 1.0F : 0.0F));
      element = (i == j ? 2.0F : 0.0F) - element;
    }
    largest = std::max(largest, std::isfinite(sum) ? sum : INFINITY);
  }
  return largest;
}

/// Returns the inverse of basis basis^T by Newton's iteration (Schulz 1933). The basis is orthogonal up to
/// the rounding of its numbers, so that it converges in a few steps. Throws InputError if it does not.
std::vector<float> inverse_gram(const std::vector<float>& basis, std::int64_t n, std::int64_t columns) {
  const std::vector<float> gram = product(basis, basis, columns);
  std::vector<float> inverse = gram;
  reflect(inverse, n);
  float last = INFINITY;
  for (int i = 0; i < 20; ++i) {
    std::vector<float> correction = product(inverse, gram, n);  // they are symmetric
    const float error = reflect(correction, n);
    if (error < 1e-2F && error >= last / 2) return inverse;  // as far as float32 goes
    last = error;
    inverse = product(correction, inverse, n);
  }
  throw InputError("", "basis", "", "is not the basis of a codec: its rows are far from orthogonal");
}

}  // namespace

GroupAnalysis::GroupAnalysis(const KvCodec& codec, const CodecGroup& group, bool bytes)
    : group_(group),
      head_size_(codec.head_size),
      columns_(codec.columns(group)),
      coefficients_(group.coefficients()) {
  std::vector<float> basis(group.basis.size());
  for (std::size_t k = 0; k < basis.size(); ++k)
    basis[k] = static_cast<float>(group.basis[k]) * group.scale[k / to_size(columns_)];
  // Rounded numbers are not quite orthogonal: coefficients are those of the nearest combination of the rows.
  const std::vector<float> inverse = inverse_gram(basis, coefficients_, columns_);
  basis = product(inverse, transposed(basis, coefficients_, columns_), coefficients_);
  forward_.resize(basis.size());
  // x S B^T = x (B S^T)^T
  const std::vector<float> turned = transposed_blocks(group.whitening, head_size_);
  multiply_heads({basis.data(), coefficients_, columns_ / head_size_, head_size_, turned.data()},
                 forward_.data());
  if (!bytes) return;
  basis_.emplace(transposed(group.basis, coefficients_, columns_).data(), columns_, coefficients_);
  correction_ = inverse;
  double squares = 0;
  for (std::int64_t j = 0; j < coefficients_; ++j)
    for (std::int64_t i = 0; i < coefficients_; ++i) {
      float& element = correction_[to_size(j * coefficients_ + i)];
      element = (i == j ? 1.0F : 0.0F) - element;
      squares += static_cast<double>(element) * static_cast<double>(element);
    }
  correction_size_ = static_cast<float>(std::sqrt(squares)) / static_cast<float>(coefficients_);
}

std::vector<float> GroupAnalysis::exact(const float* x, std::int64_t tokens, std::int64_t count) const {
  std::vector<float> centred(x, x + tokens * columns_), found(to_size(tokens * count));
  add_row(group_.mean.data(), -1, tokens, columns_, centred.data());
  multiply_linear<float>({centred.data(), tokens, columns_, forward_.data(), count}, found.data());
  return found;
}

std::vector<float> GroupAnalysis::rounded(const float* x, std::int64_t tokens, std::int64_t count,
                                          float step) const {
  std::vector<float> coefficients(to_size(tokens * count));
  if (!basis_ || !multiply_bytes(x, tokens, count, step, coefficients)) return exact(x, tokens, count);
  correct(tokens, count, step, coefficients);
  return coefficients;
}

/// Sets coefficients to (x - mean) S B^T. Returns false if the numbers are too large for integers of so fine
/// units.
bool GroupAnalysis::multiply_bytes(const float* x, std::int64_t tokens, std::int64_t count, float step,
                                   std::vector<float>& coefficients) const {
  std::vector<float> centred(x, x + tokens * columns_), whitened(centred.size());
  add_row(group_.mean.data(), -1, tokens, columns_, centred.data());
  multiply_heads({centred.data(), tokens, columns_ / head_size_, head_size_, group_.whitening.data()},
                 whitened.data());
  const std::vector<float> ones(to_size(columns_), 1);
  std::vector<float> sizes(ones.size());
  const ScaledRows rows{whitened.data(), ones.data(), tokens, columns_};
  set_sizes(rows, sizes.data());
  // Rows of B have a norm of 1 / scale: so large is a sum at most.
  const float unit = step / kUnitsOfStep, largest = *std::max_element(sizes.begin(), sizes.end()),
              least_scale = *std::min_element(group_.scale.begin(), group_.scale.begin() + count),
              largest_sum = largest_norm(whitened.data(), tokens, columns_) / (unit * least_scale);
  if (!(largest_sum < kMostSum) || largest >= unit * (ByteMatrix::kLargest - 1)) return false;
  std::vector<std::int16_t> integers(whitened.size());
  round_rows(rows, unit, integers.data());
  std::vector<std::int32_t> sums(coefficients.size());
  basis_->multiply(integers.data(), {tokens, columns_, count}, sums.data());
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t j = 0; j < count; ++j)
      coefficients[to_size(t * count + j)] =
          static_cast<float>(sums[to_size(t * count + j)]) * (unit * group_.scale[to_size(j)]);
  return true;
}

/// Takes away what the rows of B have of each other; of the last coefficients it is too little to matter.
void GroupAnalysis::correct(std::int64_t tokens, std::int64_t count, float step,
                            std::vector<float>& coefficients) const {
  std::vector<float> squares(to_size(count));
  add_squares(coefficients.data(), tokens, count, squares.data());
  const double least = step / kErrorsOfStep / correction_size_;
  std::int64_t taken = count;
  for (double rest = 0; taken > 0; --taken) {
    rest += static_cast<double>(squares[to_size(taken - 1)]);
    if (rest > least * least * static_cast<double>(tokens)) break;
  }
  taken = std::min(count, (taken + kTermStep - 1) / kTermStep * kTermStep);
  if (taken == 0) return;
  std::vector<float> leading(to_size(tokens * taken)), changes(coefficients.size());
  for (std::int64_t t = 0; t < tokens; ++t)
    std::copy_n(&coefficients[to_size(t * count)], taken, &leading[to_size(t * taken)]);
  multiply_linear<float>({leading.data(), tokens, taken, correction_.data(), count, coefficients_},
                         changes.data());
  for (std::size_t k = 0; k < coefficients.size(); ++k) coefficients[k] -= changes[k];
}

}  // namespace headspan
