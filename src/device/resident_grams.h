// The Grams of one stream that stay on the device where they were summed, after its last token: pairs are
// multiplied there, and of the host's matrices only those tiles are filled in that the other statistics read.
// Not for what needs all of a Gram (its file, a causal ceiling), nor for pieces of one (device_gram.h).
#pragma once

#include <utility>
#include <vector>

#include "device/device_gram.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// The sums of one part: those in FP64 on the device, the others on the host with a matrix of zeros.
struct ResidentSums {
  DeviceGram gram;
  GramSums host;
};

class ResidentGrams {
 public:
  /// `parts`: of the fit part and, where there is one, of the held-out part, about `shift`.
  ResidentGrams(std::vector<ResidentSums> parts, std::vector<double> shift)
      : parts_(std::move(parts)), shift_(std::move(shift)) {}

  /// What the statistics start from. Its matrices have the tiles of heads of one layer and zeros elsewhere.
  /// Once. All of them throw AgreedError on all ranks where a device or its copies fail. Collective over the
  /// grid.
  RegressionData take_data(HeadLayout layout, FitRules rules);

  /// Fills in tiles, of which each rank names those that it is going to ask for. Collective over the grid.
  void copy_to_host(RegressionData& data, const std::vector<Tile>& wanted) const;
  /// Fills in everything. Collective over the grid.
  void copy_all_to_host(RegressionData& data) const;

  const DeviceGram& fit() const { return parts_.front().gram; }
  /// Once taken: the second moment about the fit part's mean. Null without a held-out part.
  const DeviceGram* heldout() const { return parts_.size() > 1 ? &parts_[1].gram : nullptr; }

 private:
  std::vector<ResidentSums> parts_;  // fit, held out
  std::vector<double> shift_;
};

}  // namespace headspan
