#include "stats/regression/pivoted_cholesky.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/process/cpu_dispatch.h"
#include "stats/regression/block_product.h"

namespace headspan {
namespace {

/// Subtracts from x: [rows] the product of panel: [rows, depth] and `row`, one of its rows.
void subtract_columns(std::int64_t rows, std::int64_t depth, const double* panel, std::int64_t ld,
                      const double* row, double* x) {
  on_this_processor([=]() HS_INLINED {
    std::int64_t t = 0;
    for (; t + 4 <= depth; t += 4) {
      const double *const p = panel + t * ld, *const q = p + ld, *const r = q + ld, *const s = r + ld;
      const double a = row[t * ld], b = row[(t + 1) * ld], c = row[(t + 2) * ld], e = row[(t + 3) * ld];
      for (std::int64_t i = 0; i < rows; ++i) x[i] -= p[i] * a + q[i] * b + r[i] * c + s[i] * e;
    }
    for (; t < depth; ++t) {
      const double* const p = panel + t * ld;
      const double a = row[t * ld];
      for (std::int64_t i = 0; i < rows; ++i) x[i] -= p[i] * a;
    }
  });
}

/// Divides a column of the factor by its pivot's root and subtracts its squares from the remaining diagonal.
void finish_column(std::int64_t rows, double root, double* x, double* diagonal) {
  on_this_processor([=]() HS_INLINED {
    for (std::int64_t i = 0; i < rows; ++i) {
      x[i] /= root;
      diagonal[i] -= x[i] * x[i];
    }
  });
}

class PivotedCholesky {
 public:
  PivotedCholesky(std::int64_t n, double* a, double tolerance, int* order)
      : n_(n), a_(a), tolerance_(tolerance), order_(order) {
    std::iota(order, order + n, 0);
    for (std::int64_t j = 0; j < n; ++j) remaining_.push_back(*at(j, j));
  }

  std::int64_t run() {
    const std::int64_t width = std::clamp<std::int64_t>(n_ / 10 / 8 * 8, 16, 64);
    for (std::int64_t first = 0; first < n_; first += width) {
      const std::int64_t last = std::min(first + width, n_);
      for (std::int64_t j = first; j < last; ++j)
        if (!factor_column(j, first)) return j;
      remove_panel(first, last);
    }
    return n_;
  }

 private:
  double* at(std::int64_t row, std::int64_t column) const { return a_ + row + column * n_; }

  /// Computes column j of the factor; A is already updated by the columns before `first`. Returns false if no
  /// pivot is above the tolerance.
  bool factor_column(std::int64_t j, std::int64_t first) {
    const std::int64_t pivot =
        std::max_element(remaining_.begin() + j, remaining_.end()) - remaining_.begin();
    const double largest = remaining_[to_size(pivot)];
    if (!(largest > tolerance_)) return false;
    swap_columns(j, pivot);
    const double root = std::sqrt(largest);
    *at(j, j) = root;
    subtract_columns(n_ - j - 1, j - first, at(j + 1, first), n_, at(j, first), at(j + 1, j));
    finish_column(n_ - j - 1, root, at(j + 1, j), remaining_.data() + j + 1);
    return true;
  }

  /// Swaps rows and columns j <= pivot of A, and rows of the factor.
  void swap_columns(std::int64_t j, std::int64_t pivot) {
    if (j == pivot) return;
    std::swap(order_[j], order_[pivot]);
    std::swap(remaining_[to_size(j)], remaining_[to_size(pivot)]);
    for (std::int64_t t = 0; t < j; ++t) std::swap(*at(j, t), *at(pivot, t));
    for (std::int64_t i = j + 1; i < pivot; ++i) std::swap(*at(i, j), *at(pivot, i));
    std::swap_ranges(at(pivot + 1, j), at(n_, j), at(pivot + 1, pivot));
  }

  /// Subtracts the product of columns [first, last) of the factor from the rest of A.
  void remove_panel(std::int64_t first, std::int64_t last) {
    const std::int64_t rows = n_ - last, depth = last - first;
    if (rows == 0) return;
    panel_.resize(to_size(rows * depth));
    for (std::int64_t t = 0; t < depth; ++t) std::copy_n(at(last, first + t), rows, panel_.data() + t * rows);
    subtract_block_square(rows, depth, panel_.data(), at(last, last), n_);
  }

  std::int64_t n_;
  double* a_;
  double tolerance_;
  int* order_;
  std::vector<double> remaining_;  // [n] diagonal of A less that of the factor so far
  std::vector<double> panel_;      // [rows, depth] without gaps
};

}  // namespace

std::int64_t pivoted_cholesky(std::int64_t n, double* a, double tolerance, int* order) {
  return PivotedCholesky(n, a, tolerance, order).run();
}

}  // namespace headspan
