// Theorem 2.1 of the paper, compared with the exact distribution by simulation. Let A: [m, n k] and B: [m, k]
// have independent standard normal entries, and x ~ N(0, I_m). The best linear map from the n reference heads
// x^T A to the head x^T B leaves
//
//   e = min_C ||A C - B||_F^2 = sum of k chi-square variables of m - n k degrees of freedom each,
//
// so E e = k (m - n k), and R² = 1 - e / ||B||_F^2 is n k / m on average. The theorem (n = 1) only says that
// e >= k (m - k) / 2 with high probability, that is R² <= 1 - (m - k) / (2 m).
#pragma once

#include <cstdint>
#include <vector>

#include "dist/matrix/grid.h"

namespace headspan {

constexpr std::int64_t kTheoryBlock = 64;  ///< block of a trial's distributed matrices

struct TheoryRequest {
  std::int64_t hidden_size = 4096;  ///< m
  std::int64_t head_size = 128;     ///< k
  std::int64_t references = 1;      ///< n; n k < m
  std::int64_t trials = 100;
  std::int64_t seed = 0;
};

/// Results by trial, on all ranks.
struct TheoryResult {
  std::vector<double> error;        ///< e by p?gels over the whole grid
  std::vector<double> local_error;  ///< e by a QR factorisation in one process
  std::vector<double> r2;           ///< 1 - e / ||B||_F^2
};

/// Runs the trials. Each matrix entry is a function of the seed, the trial and its indices, so that the
/// matrices are the same on any grid. Collective over the grid.
TheoryResult run_theory(const Grid& grid, const TheoryRequest& request);

/// Returns E e = k (m - n k).
double expected_error(const TheoryRequest& request);

/// Returns k (m - k) / 2, below which e rarely falls according to the theorem.
double theorem_bound(const TheoryRequest& request);

}  // namespace headspan
