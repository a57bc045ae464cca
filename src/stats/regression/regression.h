// One linear regression from moments: least squares with intercept of the coordinates of a target head t on
// the regressors S, the coordinates of other heads.
//
//   D = diag(G_SS)^-1/2,  P^T D G_SS D P = L L^T (pivoted),  X = G_tS D P L^-T,  explained_j = ||X[j,:]||^2,
//   W = X L^-1 P^T D
//
// Targets are the rows throughout: BLAS solves triangular systems from the right twice as fast as from the
// left. Regressors whose pivot is at or below the tolerance are dropped, and the fit uses those kept (status
// kDeficient). This file also holds the rules by which every fit of headspan is scored. Local.
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

/// CF flag masks of the status variables.
enum Status : std::uint8_t {
  kDeficient = 1,     ///< regressors were dropped
  kConstant = 2,      ///< the target has a coordinate without variance
  kTooFewTokens = 4,  ///< p >= n - 1: no R²
  kOutsideBand = 8,   ///< in-sample R² outside [0, 1] by more than rounding: a defect
  kNotComputed = 16,  ///< there is no such fit
};

/// How fits are accepted and scored.
struct FitRules {
  std::int64_t tokens = 0;          ///< n of the fit part
  std::int64_t tokens_heldout = 0;  ///< 0: no held-out part
  bool double_data = true;          ///< the values were never rounded to FP32 or less
  bool double_product = true;       ///< the Gram's products were formed in FP64
  double sum_rounding = 0x1p-52;    ///< relative error of an element of the Gram, at unit diagonal
  double value_rounding = 0;        ///< error of a value before it is multiplied, in standard deviations
  bool paper = false;               ///< the paper's flags: constant coordinates count 1, R² clamped at -1

  /// Returns the pivot, on the scale of unit diagonal, at or below which a regressor is dropped.
  double pivot_tolerance(std::int64_t regressors) const;
  /// Returns a bound of how far rounding moves the R² of a fit whose smallest kept pivot, on the scale of
  /// unit diagonal, is `pivot`.
  double r2_error(double pivot) const;
  /// Returns the mean square below which values underflow in sums of products or in what follows from them.
  double smallest_square() const { return double_product ? 0x1p-400 : 0x1p-100; }
  /// Returns how far rounding may move R² out of [0, 1].
  double band() const { return double_product ? 1e-9 : 1e-5; }
  /// Returns whether there are too few tokens for an R²: p >= n - 1.
  bool too_few(std::int64_t regressors) const { return regressors >= tokens - 1; }
};

/// The Cholesky factor of the regressors that were kept.
struct Factor {
  std::int64_t rank = 0;
  double pivot = 0;           ///< the smallest kept; NaN if none was kept
  std::vector<int> order;     ///< P: [rank] the kept regressors, in the order of the factor
  std::vector<double> scale;  ///< D: [rank] their diag(G_SS)^-1/2
  std::vector<double> lower;  ///< L: [rank, rank], column-major
};

/// Factors gram: [p, p], column-major with leading dimension ld, lower triangle valid. Drops regressors whose
/// `variance`: [p] is 0, as constant.
Factor factor_regressors(const double* gram, std::int64_t p, std::int64_t ld, const double* variance,
                         double tolerance);

/// Factors gram with a given `scale`: [p] in place of diag(G_SS)^-1/2; 0 drops a regressor.
Factor factor_scaled(const double* gram, std::int64_t ld, const std::vector<double>& scale, double tolerance);

/// Returns X = cross D P L^-T: [m, rank] for cross = G_tS: [m, p] with leading dimension ld.
std::vector<double> whiten(const Factor& factor, const double* cross, std::int64_t ld, std::int64_t m);

/// Returns U = D P L^-T: [p, rank]. For many targets: the product X = cross U is twice as fast as solving.
std::vector<double> whitener(const Factor& factor, std::int64_t p);

/// Returns the maps W = X L^-1 P^T D: [m, p] from X: [m, rank]; 0 for the regressors that were dropped.
std::vector<double> solve_maps(const Factor& factor, std::int64_t p, std::vector<double> x, std::int64_t m);

/// Returns the sum of squares of each row of x: [m, columns].
std::vector<double> explained(const std::vector<double>& x, std::int64_t m);

/// Second moments of a target t of m coordinates and its p regressors S on the held-out part, about the fit
/// part's mean.
struct HeldoutMoments {
  const double* regressors = nullptr;  ///< M_SS: [p, p] with leading dimension ld, lower triangle valid
  const double* cross = nullptr;       ///< M_tS: [m, p] with leading dimension ld
  std::int64_t ld = 0;
  const double* diagonal = nullptr;  ///< of M_tt: [m]
};

/// Returns diag(M_tt - 2 W M_St + W M_SS W^T) for the maps W: [m, p].
std::vector<double> heldout_errors(const std::vector<double>& maps, std::int64_t p,
                                   const HeldoutMoments& moments, std::int64_t m);

/// What a fit of a target is scored from, by coordinate: [d] each.
struct TargetSums {
  const double* explained = nullptr;    ///< of the fit part
  const double* sst = nullptr;          ///< of the fit part; 0 marks a constant coordinate
  const double* errors = nullptr;       ///< of the held-out part, null without one
  const double* sst_heldout = nullptr;  ///< of the held-out part, null without one
};

struct Score {
  double r2;           ///< uniform average over the coordinates
  double r2_weighted;  ///< variance-weighted average
  double r2_heldout;   ///< uniform average; NaN without a held-out part
  std::uint8_t status;
};

/// Scores one target of d coordinates. `deficient`: regressors were dropped.
Score score_fit(const FitRules& rules, std::int64_t d, const TargetSums& sums, bool deficient);

}  // namespace headspan
