// The Grams of one stream that stay on the device after the last token. Pairs are multiplied there, and the
// matrices on the host receive only the tiles that other statistics read. A Gram does not stay if all of it
// is needed on the host (for its file or a causal ceiling), or if the device holds it in slices
// (device/device_gram.h).
#pragma once

#include <utility>
#include <vector>

#include "device/device_gram.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// The sums of one part: the matrix on the device, the other sums on the host with a matrix of zeros.
struct ResidentSums {
  DeviceGram gram;
  GramSums host;
};

class ResidentGrams {
 public:
  /// `parts`: the fit part and, if there is one, the held-out part, of values less `shift`.
  ResidentGrams(std::vector<ResidentSums> parts, std::vector<double> shift)
      : parts_(std::move(parts)), shift_(std::move(shift)) {}

  // If a device or a copy fails on one rank, these functions throw AgreedError on all.

  /// Returns the data that the statistics start from. Its matrices hold the tiles between heads of the same
  /// layer and zeros elsewhere. Called once. Collective over the grid.
  RegressionData take_data(HeadLayout layout, FitRules rules);

  /// Copies to the host the tiles that any rank wants. Collective over the grid.
  void copy_to_host(RegressionData& data, const std::vector<Tile>& wanted) const;
  /// Copies everything to the host. Collective over the grid.
  void copy_all_to_host(RegressionData& data) const;

  const DeviceGram& fit() const { return parts_.front().gram; }
  /// Returns the held-out part, after take_data its second moment about the fit part's mean; null without
  /// one.
  const DeviceGram* heldout() const { return parts_.size() > 1 ? &parts_[1].gram : nullptr; }

 private:
  std::vector<ResidentSums> parts_;  // fit, held out
  std::vector<double> shift_;
};

}  // namespace headspan
