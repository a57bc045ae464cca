// Products of few rows against sums in float64, at sizes around the kernels' blocks of 4 rows and 16 columns.
#include <cmath>
#include <random>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "model/few_rows.h"
#include "model/linear.h"

namespace headspan {
namespace {

constexpr float kBefore = 0.5F;  // what the kernels add to

/// Rows `leading` apart.
struct Matrix {
  std::int64_t rows, columns, leading;
  std::vector<float> values;

  Matrix(std::int64_t rows, std::int64_t columns, std::int64_t padding)
      : rows(rows), columns(columns), leading(columns + padding) {
    values.assign(static_cast<std::size_t>(rows * leading), kBefore);
  }

  Matrix& draw(unsigned seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(engine);
    return *this;
  }

  double at(std::int64_t row, std::int64_t column) const {
    return static_cast<double>(values[static_cast<std::size_t>(row * leading + column)]);
  }
};

/// Each of `got` is a sum of `terms` products, to float32's rounding of each; behind the columns nothing is
/// touched.
template <class Expected>
void compare(const Matrix& got, std::int64_t terms, const Expected& expected) {
  for (std::int64_t row = 0; row < got.rows; ++row)
    for (std::int64_t column = 0; column < got.leading; ++column) {
      double sum = static_cast<double>(kBefore), size = std::abs(sum);
      for (std::int64_t k = 0; k < terms && column < got.columns; ++k) {
        sum += expected(row, column, k);
        size += std::abs(expected(row, column, k));
      }
      ASSERT_NEAR(got.at(row, column), sum, 5e-7 * size) << row << ", " << column << " of " << terms;
    }
}

template <class Use>
void for_each_shape(const Use& use) {
  for (std::int64_t rows = 1; rows <= kFewRows; ++rows)
    for (const std::int64_t inner : {1, 15, 16, 17, 48, 63, 100})
      for (const std::int64_t outputs : {1, 3, 4, 16, 37, 64, 100}) use(rows, inner, outputs);
}

/// W: of the matrix, to which its values are rounded first.
template <class W>
void compare_transposed() {
  for_each_shape([](std::int64_t rows, std::int64_t inner, std::int64_t outputs) {
    const Matrix x = Matrix(rows, inner, 3).draw(1);
    Matrix w = Matrix(outputs, inner, 2).draw(2);
    const std::vector<W> stored(w.values.begin(), w.values.end());
    w.values.assign(stored.begin(), stored.end());
    Matrix y(rows, outputs, 1);
    add_few_rows_transposed(x.values.data(), x.leading, rows, stored.data(), w.leading, outputs, inner,
                            y.values.data(), y.leading);
    compare(y, inner, [&](auto row, auto column, auto k) { return x.at(row, k) * w.at(column, k); });
  });
}

TEST(FewRows, times_a_transposed_matrix) { compare_transposed<float>(); }

TEST(FewRows, times_a_transposed_matrix_in_bfloat16) { compare_transposed<c10::BFloat16>(); }

TEST(FewRows, times_a_matrix) {
  for_each_shape([](std::int64_t rows, std::int64_t inner, std::int64_t columns) {
    const Matrix x = Matrix(rows, inner, 3).draw(1), z = Matrix(inner, columns, 2).draw(2);
    Matrix y(rows, columns, 1);
    add_few_rows(x.values.data(), x.leading, rows, z.values.data(), z.leading, columns, inner,
                 y.values.data(), y.leading);
    compare(y, inner, [&](auto row, auto column, auto k) { return x.at(row, k) * z.at(k, column); });
  });
}

/// Largest difference from the same layer in float64, relative to the largest value.
double error_of(const Linear& linear, const at::Tensor& x) {
  Linear wide{linear.weight.to(at::kDouble), {}};
  if (linear.bias.defined()) wide.bias = linear.bias.to(at::kDouble);
  const at::Tensor expected = apply(wide, x.to(at::kDouble));
  apply(linear, x);  // leaves weight and bias as they are
  const at::Tensor got = apply(linear, x);
  EXPECT_EQ(got.scalar_type(), x.scalar_type());
  return (got.to(at::kDouble) - expected).abs().max().item<double>() / expected.abs().max().item<double>();
}

TEST(Linear, of_few_rows_and_of_many_in_every_dtype) {
  at::manual_seed(1);
  const at::Tensor weight = at::randn({70, 90}), bias = at::randn({70}), x = at::randn({40, 90});
  for (const std::int64_t rows : {1, 5, 16, 17, 40})
    for (const at::Tensor& own_bias : {bias, at::Tensor()}) {
      const auto typed = [&](at::ScalarType dtype) {
        return own_bias.defined() ? own_bias.to(dtype) : own_bias;
      };
      const at::Tensor few = x.narrow(0, 0, rows);
      EXPECT_LT(error_of({weight, own_bias}, few), 1e-6);
      EXPECT_LT(error_of({weight.to(at::kBFloat16), own_bias}, few), 1e-6);  // kept narrow under float32
      EXPECT_LT(error_of({weight.to(at::kBFloat16), typed(at::kBFloat16)}, few.to(at::kBFloat16)), 8e-3);
      EXPECT_LT(error_of({weight.to(at::kDouble), typed(at::kDouble)}, few.to(at::kDouble)), 1e-14);
    }
}

TEST(Linear, a_product_of_few_rows_is_that_of_many) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({40, 33}), matrix = at::randn({33, 50});
  const at::Tensor expected = at::mm(x.to(at::kDouble), matrix.to(at::kDouble));
  for (const std::int64_t rows : {0, 1, 16, 17, 40})
    EXPECT_TRUE(at::allclose(product(x.narrow(0, 0, rows), matrix).to(at::kDouble),
                             expected.narrow(0, 0, rows), 1e-5, 1e-5));
}

}  // namespace
}  // namespace headspan
