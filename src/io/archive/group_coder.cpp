#include "io/archive/group_coder.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "dist/kernels/linear_kernel.h"

namespace headspan {
namespace {

/// Returns a b^T. a: [rows, terms], b: [columns, terms]. The same bits for any number of threads.
std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b, std::int64_t terms) {
  const std::int64_t rows = static_cast<std::int64_t>(a.size()) / terms,
                     columns = static_cast<std::int64_t>(b.size()) / terms;
  std::vector<float> c(to_size(rows * columns));
  multiply_linear<float>({a.data(), rows, terms, b.data(), columns}, c.data());
  return c;
}

/// Returns the matrix [rows, columns] with rows and columns exchanged.
std::vector<float> transposed(const std::vector<float>& matrix, std::int64_t rows, std::int64_t columns) {
  std::vector<float> turned(matrix.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      turned[to_size(j * rows + i)] = matrix[to_size(i * columns + j)];
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

/// Multiplies each head of the rows by its block: [rows, heads, d] times blocks [heads, d, d], from the
/// right.
std::vector<float> times_blocks(const std::vector<float>& rows, const std::vector<float>& blocks,
                                std::int64_t columns, std::int64_t d) {
  std::vector<float> result(rows.size());
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(rows.size()) / columns; ++row)
    for (std::int64_t first = 0; first < columns; first += d)
      for (std::int64_t i = 0; i < d; ++i) {
        const float factor = rows[to_size(row * columns + first + i)];
        const float* const block = &blocks[to_size((first + i) * d)];
        float* const to = &result[to_size(row * columns + first)];
        for (std::int64_t j = 0; j < d; ++j) to[j] += factor * block[j];
      }
  return result;
}

}  // namespace

GroupCoder::GroupCoder(const KvCodec& codec, const CodecGroup& group, const LevelCoder& levels)
    : group_(group),
      levels_(levels),
      columns_(codec.columns(group)),
      coefficients_(group.coefficients()),
      lowest_deviation_(codec.lowest_deviation),
      models_(static_cast<std::int64_t>(codec.models.size())),
      synthesis_(codec, group, has_byte_products() && group.runs.empty()) {
  std::vector<float> basis(group.basis.size());
  for (std::size_t k = 0; k < basis.size(); ++k)
    basis[k] = static_cast<float>(group.basis[k]) * group.scale[k / to_size(columns_)];
  // Rounded numbers are not quite orthogonal: coefficients are those of the nearest combination of the rows.
  const std::vector<float> inverse = inverse_gram(basis, coefficients_, columns_);
  basis = product(inverse, transposed(basis, coefficients_, columns_), coefficients_);
  forward_ = times_blocks(basis, group.whitening, columns_, codec.head_size);  // S is symmetric
}

GroupCoder::Levels GroupCoder::levels_of(int step) const {
  const auto model_of = [&](std::int64_t c, std::int64_t j) {
    const std::int64_t model =
        std::int64_t{group_.deviations[to_size(c * coefficients_ + j)]} - step - lowest_deviation_;
    return model < 0 ? kNoModel : static_cast<int>(std::min(model, models_ - 1));
  };
  Levels levels;
  for (std::int64_t j = coefficients_; levels.count == 0 && j > 0; --j)
    for (int c = 0; c < kTokenClasses; ++c)
      if (model_of(c, j - 1) != kNoModel) levels.count = j;
  for (int c = 0; c < kTokenClasses; ++c)
    for (std::int64_t j = 0; j < levels.count; ++j) levels.models.push_back(model_of(c, j));
  return levels;
}

const std::vector<CodedRun>& GroupCoder::runs_of(int step) const {
  if (step < 0 || step >= static_cast<int>(group_.runs.size()))
    throw InputError("", "step", std::to_string(step), "is none of the codec's");
  return group_.runs[to_size(step)];
}

std::int64_t GroupCoder::weighted() const {
  std::int64_t count = coefficients_;
  while (count > 0 && group_.class_weights[to_size(count - 1)] == 0) --count;
  return count;
}

float GroupCoder::energy(const float* coefficients) const {
  const std::int64_t count = weighted();
  float sum = 0;
  for (std::int64_t j = 0; j < count; ++j)
    sum += group_.class_weights[to_size(j)] * coefficients[j] * coefficients[j];
  return sum;
}

std::uint8_t GroupCoder::class_of(const float* coefficients) const {
  const auto& edges = group_.class_edges;
  return static_cast<std::uint8_t>(std::upper_bound(edges.begin(), edges.end(), energy(coefficients)) -
                                   edges.begin());
}

std::vector<float> GroupCoder::coefficients(const float* x, std::int64_t tokens, std::int64_t count) const {
  std::vector<float> centred(x, x + tokens * columns_);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t k = 0; k < columns_; ++k) centred[to_size(t * columns_ + k)] -= group_.mean[to_size(k)];
  std::vector<float> found(to_size(tokens * count));
  multiply_linear<float>({centred.data(), tokens, columns_, forward_.data(), count}, found.data());
  return found;
}

std::vector<std::uint8_t> GroupCoder::encode(const float* x, std::int64_t tokens, int step) const {
  HS_ASSERT(tokens >= 1 && tokens <= kBlockTokens);
  if (!group_.runs.empty())
    return encode_runs(runs_of(step), coefficients(x, tokens).data(), tokens, coefficients_);
  const Levels levels = levels_of(step);
  const std::int64_t count = std::max(levels.count, weighted());
  const std::vector<float> found = coefficients(x, tokens, count);
  LevelBlock block{{}, levels.count, levels.models.data()};
  const float per_step = std::exp2(-static_cast<float>(step) / kPerOctave);
  std::vector<float> in_steps(to_size(tokens * levels.count));
  for (std::int64_t token = 0; token < tokens; ++token) {
    const float* const of_token = found.data() + token * count;
    block.classes.push_back(class_of(of_token));
    for (std::int64_t j = 0; j < levels.count; ++j)
      in_steps[to_size(token * levels.count + j)] = of_token[j] * per_step;
  }
  return levels_.encode(block, in_steps.data());
}

void GroupCoder::decode(const std::uint8_t* bytes, std::int64_t size, std::int64_t tokens, int step,
                        float* x) const {
  std::int64_t count = coefficients_;
  std::vector<float> coefficients;
  float of_step = 0;
  if (group_.runs.empty()) {
    const Levels levels = levels_of(step);
    count = levels.count;
    LevelBlock block{std::vector<std::uint8_t>(to_size(tokens)), count, levels.models.data()};
    coefficients.resize(to_size(tokens * count));
    levels_.decode(bytes, size, block, coefficients.data());
    of_step = std::exp2(static_cast<float>(step) / kPerOctave);
    for (float& coefficient : coefficients) coefficient *= of_step;
  } else {
    coefficients.resize(to_size(tokens * count));
    decode_runs(runs_of(step), bytes, size, tokens, count, coefficients.data());
  }
  synthesis_.run(std::move(coefficients), tokens, count, of_step, x);
}

}  // namespace headspan
