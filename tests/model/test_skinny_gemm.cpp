// Products of few rows against sums in float64, at sizes around the kernels' blocks of 4 rows and 16 columns.
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "model/kernels/skinny_gemm.h"
#include "model/weights/linear.h"

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

/// How far `got` is from sums of `terms` products, at worst, relative to the sum of their sizes; infinite
/// where something behind the columns was touched.
template <class Expected>
double error_of(const Matrix& got, std::int64_t terms, const Expected& expected) {
  double worst = 0;
  for (std::int64_t row = 0; row < got.rows; ++row)
    for (std::int64_t column = 0; column < got.leading; ++column) {
      double sum = static_cast<double>(kBefore), size = sum;
      if (column >= got.columns) {
        if (got.at(row, column) != sum) return std::numeric_limits<double>::infinity();
        continue;
      }
      for (std::int64_t k = 0; k < terms; ++k) {
        sum += expected(row, column, k);
        size += std::abs(expected(row, column, k));
      }
      worst = std::max(worst, std::abs(got.at(row, column) - sum) / size);
    }
  return worst;
}

constexpr double kTolerance = 5e-7;  // float32

struct Shape {
  std::int64_t rows, inner, outputs;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (std::int64_t rows = 1; rows <= kMostSkinnyRows; ++rows)
    for (const std::int64_t inner : {1, 15, 16, 17, 48, 63, 100})
      for (const std::int64_t outputs : {1, 3, 4, 16, 37, 64, 100}) all.push_back({rows, inner, outputs});
  return all;
}

std::string text_of(const Shape& shape) {
  return std::to_string(shape.rows) + " x " + std::to_string(shape.inner) + " x " +
         std::to_string(shape.outputs);
}

/// W: of the matrix, to which its values are rounded first.
template <class W>
double transposed_error(const Shape& shape) {
  const Matrix x = Matrix(shape.rows, shape.inner, 3).draw(1);
  Matrix w = Matrix(shape.outputs, shape.inner, 2).draw(2);
  const std::vector<W> stored(w.values.begin(), w.values.end());
  w.values.assign(stored.begin(), stored.end());
  Matrix y(shape.rows, shape.outputs, 1);
  skinny_gemm_transposed(x.values.data(), x.leading, shape.rows, stored.data(), w.leading, shape.outputs,
                         shape.inner, y.values.data(), y.leading);
  return error_of(y, shape.inner,
                  [&](auto row, auto column, auto k) { return x.at(row, k) * w.at(column, k); });
}

TEST(SkinnyGemm, times_a_transposed_matrix) {
  for (const Shape& shape : shapes()) EXPECT_LE(transposed_error<float>(shape), kTolerance) << text_of(shape);
}

TEST(SkinnyGemm, times_a_transposed_matrix_in_bfloat16) {
  for (const Shape& shape : shapes())
    EXPECT_LE(transposed_error<c10::BFloat16>(shape), kTolerance) << text_of(shape);
}

TEST(SkinnyGemm, times_a_matrix) {
  for (const Shape& shape : shapes()) {
    const Matrix x = Matrix(shape.rows, shape.inner, 3).draw(1),
                 z = Matrix(shape.inner, shape.outputs, 2).draw(2);
    Matrix y(shape.rows, shape.outputs, 1);
    skinny_gemm(x.values.data(), x.leading, shape.rows, z.values.data(), z.leading, shape.outputs,
                shape.inner, y.values.data(), y.leading);
    const auto product = [&](auto row, auto column, auto k) { return x.at(row, k) * z.at(k, column); };
    EXPECT_LE(error_of(y, shape.inner, product), kTolerance) << text_of(shape);
  }
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
