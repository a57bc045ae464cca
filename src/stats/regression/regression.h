// One linear regression from moments: regressors S on the coordinates of a target head, least squares with
// intercept.
//
//   D = diag(G_SS)^-1/2,  P^T D G_SS D P = L L^T (pivoted),  X = G_tS D P L^-T,  explained_j = ||X[j,:]||^2,
//   W = X L^-1 P^T D
//
// Targets are the rows throughout: BLAS solves triangular systems from the right twice as fast as from the
// left. Regressors whose pivot is at or below the tolerance are dropped, and the fit is answered from those
// kept (status kDeficient). This file also holds the rules by which every fit of headspan is scored (design
// section 3).
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

/// CF flag masks of the status variables.
enum Status : std::uint8_t {
  kDeficient = 1,     ///< regressors were dropped
  kConstant = 2,      ///< the target has a coordinate without variance
  kTooFewTokens = 4,  ///< p >= n - 1: not answered
  kOutsideBand = 8,   ///< in-sample R² outside [0, 1] by more than rounding: a defect
  kNotComputed = 16,  ///< does not exist
};

/// How fits are accepted and scored.
struct FitRules {
  std::int64_t tokens = 0;          ///< n of the fit part
  std::int64_t tokens_heldout = 0;  ///< 0: no held-out part
  bool double_data = true;          ///< the values never went through FP32 or less
  bool double_product = true;       ///< the Gram's products were formed in FP64
  bool paper = false;               ///< the paper's flags: constant coordinates count 1, R² clamped at -1

  double pivot_tolerance(std::int64_t regressors) const;
  /// A mean square below it is lost in sums of products, or in what is computed from them.
  double smallest_square() const { return double_product ? 0x1p-400 : 0x1p-100; }
  double band() const { return double_product ? 1e-9 : 1e-5; }
  /// Neither R² is answered when p >= n - 1.
  bool too_few(std::int64_t regressors) const { return regressors >= tokens - 1; }
};

/// The factor of the regressors that were kept.
struct Factor {
  std::int64_t rank = 0;
  double pivot = 0;           ///< the smallest kept; NaN when none was kept
  std::vector<int> order;     ///< [rank] the kept regressors, in the order of the factor
  std::vector<double> scale;  ///< [rank] their diag(G_SS)^-1/2
  std::vector<double> lower;  ///< L: [rank, rank], column-major
};

/// Factors gram: [p, p], column-major with leading dimension ld, lower triangle valid. `variance`: [p], 0
/// where a regressor is constant: it is dropped.
Factor factor_regressors(const double* gram, std::int64_t p, std::int64_t ld, const double* variance,
                         double tolerance);

/// The same with a given scale: [p] in place of diag(G_SS)^-1/2, 0 to drop.
Factor factor_scaled(const double* gram, std::int64_t ld, const std::vector<double>& scale, double tolerance);

/// X = cross D P L^-T for cross = G_tS: [m, p] with leading dimension ld; [m, rank].
std::vector<double> whiten(const Factor& factor, const double* cross, std::int64_t ld, std::int64_t m);

/// U = D P L^-T: [p, rank], for many targets: X = cross U is a product, twice as fast as solving.
std::vector<double> whitener(const Factor& factor, std::int64_t p);

/// The maps W = X L^-1 P^T D: [m, p] from X: [m, rank]; 0 for the regressors that were dropped.
std::vector<double> solve_maps(const Factor& factor, std::int64_t p, std::vector<double> x, std::int64_t m);

/// Row sums of squares of x: [m, columns].
std::vector<double> explained(const std::vector<double>& x, std::int64_t m);

/// diag(M_tt - 2 W M_St + W M_SS W^T) for W: [m, p]. moment: M_SS [p, p] with leading dimension ld, lower
/// triangle valid; cross: M_tS [m, p] with leading dimension ld_cross; diagonal: [m] of M_tt.
std::vector<double> heldout_errors(const std::vector<double>& maps, std::int64_t p, const double* moment,
                                   std::int64_t ld, const double* cross, std::int64_t ld_cross,
                                   const double* diagonal, std::int64_t m);

struct Score {
  double r2;           ///< uniform average over the coordinates
  double r2_weighted;  ///< variance-weighted
  double r2_heldout;   ///< NaN without held-out part
  std::uint8_t status;
};

/// Scores one target of d coordinates. explained, sst: [d] of the fit part; errors, sst_heldout: [d] of the
/// held-out part, null without one. An SST of 0 marks a constant coordinate. `deficient`: regressors were
/// dropped.
Score score_fit(const FitRules& rules, std::int64_t d, const double* explained, const double* sst,
                const double* errors, const double* sst_heldout, bool deficient);

}  // namespace headspan
