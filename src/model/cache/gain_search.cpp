#include "model/cache/gain_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "base/error.h"
#include "model/kernels/row_kernels.h"

namespace headspan {

GainSearch::GainSearch(const std::vector<Band>& bands, const std::vector<float>& weights)
    : bands_(bands), weights_(weights.begin(), weights.end()) {
  std::int64_t columns = 0;
  for (const Band& band : bands) columns += band.columns;
  HS_ASSERT(to_size(columns) == weights.size());
}

template <class T>
c10::Half GainSearch::choose(const T* z) const {
  constexpr double kLargest = 65504;
  double squares = 0;
  const T* column = z;
  for (const Band& band : bands_)
    for (const T* const end = column + band.columns; column < end; ++column)
      squares += std::pow(normal_step(band.bits) * static_cast<double>(*column), 2);
  const double mean = std::sqrt(squares / std::max(1.0, static_cast<double>(weights_.size())));
  c10::Half best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const double multiple : kGainMultiples) {
    const auto gain = static_cast<c10::Half>(static_cast<float>(std::min(kLargest, multiple * mean)));
    double error = 0;
    std::int64_t first = 0;
    for (const Band& band : bands_) {
      const double codes = std::exp2(band.bits);
      error += weighted_error(WeightedColumns<T>{z + first, weights_.data() + first, band.columns},
                              0.5 - codes / 2, static_cast<double>(static_cast<float>(gain)), codes - 1);
      first += band.columns;
    }
    if (error >= least) continue;
    least = error;
    best = gain;
  }
  return best;
}

template c10::Half GainSearch::choose<float>(const float*) const;
template c10::Half GainSearch::choose<double>(const double*) const;

}  // namespace headspan
