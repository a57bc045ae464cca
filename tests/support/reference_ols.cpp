#include "support/reference_ols.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"

extern "C" void dgelsd_(const int* m, const int* n, const int* nrhs, double* a, const int* lda, double* b,
                        const int* ldb, double* s, const double* rcond, int* rank, double* work,
                        const int* lwork, int* iwork, int* info);

namespace headspan {
namespace {

/// Columns of heads less `means`: [tokens, heads * d], column-major with room for `leading` rows.
std::vector<double> centred(const Activations& z, std::int64_t d, const std::vector<std::int64_t>& heads,
                            const std::vector<double>& means, std::int64_t leading) {
  std::vector<double> a(to_size(leading * d) * heads.size(), 0.0);
  for (std::size_t h = 0; h < heads.size(); ++h)
    for (std::int64_t i = 0; i < d; ++i) {
      const std::int64_t column = heads[h] * d + i;
      double* out = a.data() + (static_cast<std::int64_t>(h) * d + i) * leading;
      for (std::int64_t t = 0; t < z.tokens; ++t) out[t] = z.at(t, column) - means[to_size(column)];
    }
  return a;
}

std::vector<double> column_means(const Activations& z) {
  std::vector<double> means;
  for (std::int64_t j = 0; j < z.columns; ++j) {
    long double sum = 0;
    for (std::int64_t t = 0; t < z.tokens; ++t) sum += z.at(t, j);
    means.push_back(static_cast<double>(sum / z.tokens));
  }
  return means;
}

/// Minimum-norm least squares maps [p, m] in the first p rows of the returned [leading, m].
std::vector<double> solve(std::vector<double> a, std::vector<double> b, std::int64_t tokens, std::int64_t p,
                          std::int64_t m, std::int64_t leading) {
  const int rows = to_int(tokens), columns = to_int(p), targets = to_int(m), lda = to_int(leading);
  const double rcond = 1e-13;
  std::vector<double> singular(to_size(p));
  std::vector<int> iwork(to_size(64 * leading));
  int rank = 0, info = 0, lwork = -1;
  double best = 0;
  dgelsd_(&rows, &columns, &targets, a.data(), &lda, b.data(), &lda, singular.data(), &rcond, &rank, &best,
          &lwork, iwork.data(), &info);
  lwork = static_cast<int>(best);
  std::vector<double> work(to_size(lwork));
  dgelsd_(&rows, &columns, &targets, a.data(), &lda, b.data(), &lda, singular.data(), &rcond, &rank,
          work.data(), &lwork, iwork.data(), &info);
  HS_ASSERT(info == 0);
  return b;
}

struct Sums {
  std::vector<double> sse, sst;  // [m]
};

/// Of y - x * maps, and of y about its own mean.
Sums residual_sums(const std::vector<double>& x, const std::vector<double>& y,
                   const std::vector<double>& maps, std::int64_t tokens, std::int64_t p, std::int64_t m,
                   std::int64_t leading) {
  Sums sums;
  for (std::int64_t j = 0; j < m; ++j) {
    long double sse = 0, sum = 0, sst = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      double residual = y[to_size(t + j * leading)];
      sum += residual;
      for (std::int64_t k = 0; k < p; ++k)
        residual -= x[to_size(t + k * leading)] * maps[to_size(k + j * leading)];
      sse += static_cast<long double>(residual) * residual;
    }
    for (std::int64_t t = 0; t < tokens; ++t) {
      const long double deviation = y[to_size(t + j * leading)] - sum / tokens;
      sst += deviation * deviation;
    }
    sums.sse.push_back(static_cast<double>(sse));
    sums.sst.push_back(static_cast<double>(sst));
  }
  return sums;
}

double mean_r2(const Sums& sums) {
  double total = 0;
  int count = 0;
  for (std::size_t j = 0; j < sums.sst.size(); ++j)
    if (sums.sst[j] > 0) {
      total += 1 - sums.sse[j] / sums.sst[j];
      ++count;
    }
  return total / count;
}

}  // namespace

OlsScore reference_ols(const Activations& fit, const Activations* heldout, std::int64_t d,
                       const std::vector<std::int64_t>& sources, std::int64_t target) {
  const auto p = static_cast<std::int64_t>(sources.size()) * d;
  const std::int64_t leading = std::max({fit.tokens, heldout != nullptr ? heldout->tokens : 0, p});
  const std::vector<double> means = column_means(fit);
  const auto x = centred(fit, d, sources, means, leading), y = centred(fit, d, {target}, means, leading);

  const auto maps = solve(x, y, fit.tokens, p, d, leading);

  const Sums sums = residual_sums(x, y, maps, fit.tokens, p, d, leading);
  double sse = 0, sst = 0;
  for (std::size_t j = 0; j < sums.sst.size(); ++j) {
    sse += sums.sse[j];
    sst += sums.sst[j];
  }
  OlsScore score{mean_r2(sums), 1 - sse / sst, std::numeric_limits<double>::quiet_NaN()};
  if (heldout != nullptr)
    score.r2_heldout = mean_r2(residual_sums(centred(*heldout, d, sources, means, leading),
                                             centred(*heldout, d, {target}, means, leading), maps,
                                             heldout->tokens, p, d, leading));
  return score;
}

}  // namespace headspan
