// Small dense matrices as tests compute with them: three loops and Gaussian elimination, in no way like the
// code under test. Column-major, as LAPACK has them. Not for sizes above a few hundred.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace headspan {

class Dense {
 public:
  Dense(std::int64_t rows, std::int64_t columns)
      : rows_(rows), columns_(columns), values_(static_cast<std::size_t>(rows * columns)) {}
  Dense(std::int64_t rows, std::int64_t columns, std::vector<double> values)
      : rows_(rows), columns_(columns), values_(std::move(values)) {}

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  const std::vector<double>& values() const { return values_; }
  double& operator()(std::int64_t i, std::int64_t j) {
    return values_[static_cast<std::size_t>(i + j * rows_)];
  }
  double operator()(std::int64_t i, std::int64_t j) const {
    return values_[static_cast<std::size_t>(i + j * rows_)];
  }

  Dense transposed() const {
    Dense result(columns_, rows_);
    for (std::int64_t j = 0; j < columns_; ++j)
      for (std::int64_t i = 0; i < rows_; ++i) result(j, i) = (*this)(i, j);
    return result;
  }

  double trace() const {
    double sum = 0;
    for (std::int64_t i = 0; i < rows_; ++i) sum += (*this)(i, i);
    return sum;
  }

 private:
  std::int64_t rows_, columns_;
  std::vector<double> values_;
};

inline Dense operator*(const Dense& a, const Dense& b) {
  Dense result(a.rows(), b.columns());
  for (std::int64_t i = 0; i < a.rows(); ++i)
    for (std::int64_t j = 0; j < b.columns(); ++j)
      for (std::int64_t k = 0; k < a.columns(); ++k) result(i, j) += a(i, k) * b(k, j);
  return result;
}

inline Dense operator-(Dense a, const Dense& b) {
  for (std::int64_t i = 0; i < a.rows(); ++i)
    for (std::int64_t j = 0; j < a.columns(); ++j) a(i, j) -= b(i, j);
  return a;
}

/// The rows and columns of some heads of d coordinates: [heads d, heads d].
inline Dense tiles_of(const Dense& a, const std::vector<std::int64_t>& rows,
                      const std::vector<std::int64_t>& columns, std::int64_t d) {
  Dense result(static_cast<std::int64_t>(rows.size()) * d, static_cast<std::int64_t>(columns.size()) * d);
  for (std::int64_t j = 0; j < result.columns(); ++j)
    for (std::int64_t i = 0; i < result.rows(); ++i)
      result(i, j) = a(rows[static_cast<std::size_t>(i / d)] * d + i % d,
                       columns[static_cast<std::size_t>(j / d)] * d + j % d);
  return result;
}

/// a^-1 b by elimination with row pivoting.
inline Dense solved(Dense a, Dense b) {
  const std::int64_t n = a.rows();
  for (std::int64_t k = 0; k < n; ++k) {
    std::int64_t pivot = k;
    for (std::int64_t i = k + 1; i < n; ++i)
      if (std::abs(a(i, k)) > std::abs(a(pivot, k))) pivot = i;
    for (std::int64_t j = 0; j < n; ++j) std::swap(a(k, j), a(pivot, j));
    for (std::int64_t j = 0; j < b.columns(); ++j) std::swap(b(k, j), b(pivot, j));
    for (std::int64_t i = 0; i < n; ++i) {
      if (i == k) continue;
      const double factor = a(i, k) / a(k, k);
      for (std::int64_t j = k; j < n; ++j) a(i, j) -= factor * a(k, j);
      for (std::int64_t j = 0; j < b.columns(); ++j) b(i, j) -= factor * b(k, j);
    }
  }
  for (std::int64_t k = 0; k < n; ++k)
    for (std::int64_t j = 0; j < b.columns(); ++j) b(k, j) /= a(k, k);
  return b;
}

/// A random symmetric positive definite matrix: A A^T with A [n, n + 2] standard normal.
inline Dense random_covariance(std::int64_t n, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  Dense a(n, n + 2);
  for (std::int64_t j = 0; j < a.columns(); ++j)
    for (std::int64_t i = 0; i < n; ++i) a(i, j) = normal(engine);
  return a * a.transposed();
}

/// One random symmetric positive definite d x d matrix for each head.
inline std::vector<Dense> random_metrics(std::int64_t heads, std::int64_t d, std::uint64_t seed) {
  std::vector<Dense> metrics;
  for (std::int64_t h = 0; h < heads; ++h)
    metrics.push_back(random_covariance(d, seed + static_cast<std::uint64_t>(h)));
  return metrics;
}

/// Side by side, as the code under test takes them: [heads, d, d].
inline std::vector<double> joined(const std::vector<Dense>& metrics) {
  std::vector<double> values;
  for (const Dense& metric : metrics)
    values.insert(values.end(), metric.values().begin(), metric.values().end());
  return values;
}

/// What the best linear map of heads `sources` leaves of head `target`: G_tt - G_ts G_ss^-1 G_st, [d, d].
inline Dense residual_of(const Dense& g, const std::vector<std::int64_t>& sources, std::int64_t target,
                         std::int64_t d) {
  const Dense own = tiles_of(g, {target}, {target}, d);
  if (sources.empty()) return own;
  const Dense cross = tiles_of(g, sources, {target}, d);
  return own - cross.transposed() * solved(tiles_of(g, sources, sources, d), cross);
}

}  // namespace headspan
