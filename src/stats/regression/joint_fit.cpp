#include "stats/regression/joint_fit.h"

#include "base/checked.h"

namespace headspan {

JointFit fit_jointly(const RegressionData& data, const std::vector<std::int64_t>& heads, std::int64_t sources,
                     const double* gram, const double* moment) {
  const std::int64_t d = data.layout.head_size, p = sources * d,
                     regressors = sources * data.layout.source_size();
  const std::int64_t ld = static_cast<std::int64_t>(heads.size()) * d, target_row = ld - d;
  const std::vector<double> variance = gather(data.sst, heads, d);
  const Factor factor =
      factor_regressors(gram, p, ld, variance.data(), data.rules.pivot_tolerance(regressors));
  std::vector<double> x = whiten(factor, gram + target_row, ld, d);
  const std::vector<double> gains = explained(x, d);
  std::vector<double> errors;
  if (moment != nullptr) {
    const double* diagonal = &data.moment_diagonal[to_size(heads.back() * d)];
    errors = heldout_errors(solve_maps(factor, p, std::move(x), d), p,
                            {moment, moment + target_row, ld, diagonal}, d);
  }
  return {score_head(data, heads.back(), gains.data(), moment != nullptr ? errors.data() : nullptr,
                     factor.rank < regressors),
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
