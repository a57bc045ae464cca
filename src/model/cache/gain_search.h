// Chooses the gain of a record (Coding::gain of base/bands.h), by which all its columns are divided before
// they are rounded to half steps: among eight multiples of their root mean square, the one that loses least.
// A token with a few columns beyond the last levels gets a larger gain, and coarser steps.
#pragma once

#include <vector>

#include <c10/util/Half.h>

#include "base/bands.h"

namespace headspan {

class GainSearch {
 public:
  /// bands: of the records, in units of each column's own step; weights: [columns], what a squared error in a
  /// column costs.
  GainSearch(const std::vector<Band>& bands, const std::vector<float>& weights);

  /// Returns the gain of z: [columns]. T: float or double.
  template <class T>
  c10::Half choose(const T* z) const;

 private:
  std::vector<double> steps_;             // [columns] of normal numbers
  std::vector<float> largest_, weights_;  // [columns] largest level, what a squared error costs
};

/// Of the root mean square: 2^(-1/2) to 2^(5/4).
constexpr double kGainMultiples[] = {0.70710678118654752, 0.84089641525371454, 1, 1.18920711500272107,
                                     1.41421356237309505, 1.68179283050742909, 2, 2.37841423000544213};

}  // namespace headspan
