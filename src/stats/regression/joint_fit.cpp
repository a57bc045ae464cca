#include "stats/regression/joint_fit.h"

namespace headspan {

JointFit fit_jointly(const RegressionData& data, const std::vector<std::int64_t>& heads, std::int64_t sources,
                     const double* gram, const double* moment) {
  const std::int64_t d = data.layout.head_size, p = sources * d;
  const std::int64_t ld = static_cast<std::int64_t>(heads.size()) * d, target_row = ld - d;
  const auto column = static_cast<std::size_t>(heads.back() * d);
  const std::vector<double> variance = gather(data.sst, heads, d);
  const Factor factor = factor_regressors(gram, p, ld, variance.data(), data.rules.pivot_tolerance(p));
  std::vector<double> x = whiten(factor, gram + target_row, ld, d);
  const std::vector<double> gained = explained(x, d);
  std::vector<double> errors;
  if (moment != nullptr)
    errors = heldout_errors(solve_maps(factor, p, std::move(x), d), p, moment, ld, moment + target_row, ld,
                            &data.moment_diagonal[column], d);
  const bool heldout = moment != nullptr;
  return {score_fit(data.rules, d, gained.data(), &data.sst[column], heldout ? errors.data() : nullptr,
                    heldout ? &data.sst_heldout[column] : nullptr, factor.rank < p),
          factor.rank, factor.pivot};
}

std::vector<double> gather(const std::vector<double>& values, const std::vector<std::int64_t>& heads,
                           std::int64_t d) {
  std::vector<double> part;
  for (const std::int64_t h : heads)
    part.insert(part.end(), values.begin() + h * d, values.begin() + (h + 1) * d);
  return part;
}

}  // namespace headspan
