#include "model/cache/gain_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "base/error.h"
#include "model/kernels/row_kernels.h"

namespace headspan {

GainSearch::GainSearch(const std::vector<Band>& bands, const std::vector<float>& weights)
    : weights_(weights) {
  for (const Band& band : bands) {
    steps_.insert(steps_.end(), to_size(band.columns), normal_step(band.bits));
    largest_.insert(largest_.end(), to_size(band.columns),
                    std::exp2(static_cast<float>(band.bits - 1)) - 0.5F);
  }
  HS_ASSERT(steps_.size() == weights.size());
}

template <class T>
c10::Half GainSearch::choose(const T* z) const {
  constexpr double kLargest = 65504;
  double squares = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const double x = steps_[i] * static_cast<double>(z[i]);
    squares += x * x;
  }
  const double mean = std::sqrt(squares / std::max(1.0, static_cast<double>(steps_.size())));
  const HalfSteps columns{largest_.data(), weights_.data(), static_cast<std::int64_t>(steps_.size())};
  c10::Half best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const double multiple : kGainMultiples) {
    const auto gain = static_cast<c10::Half>(static_cast<float>(std::min(kLargest, multiple * mean)));
    const double error = weighted_error(z, columns, static_cast<T>(static_cast<float>(gain)));
    if (error >= least) continue;
    least = error;
    best = gain;
  }
  return best;
}

template c10::Half GainSearch::choose<float>(const float*) const;
template c10::Half GainSearch::choose<double>(const double*) const;

}  // namespace headspan
