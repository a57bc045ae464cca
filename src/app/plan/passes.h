// Plans in how many passes over the tokens a study on GPUs sums its Grams. One pass suffices if they fit the
// memory of a GPU beside the weights. If not, the fit part and the held-out part take a pass each, which
// costs nothing more. If these do not fit either, streams and then stripes of a stream take passes of their
// own, each of which runs the forward again.
#pragma once

#include "app/plan/job_sizes.h"
#include "device/device_collector.h"

namespace headspan {

/// What the passes of a study depend on.
struct PassSetting {
  const Job& job;
  const ModelConfig& config;
  Dtype dtype;  ///< of the forward
  bool heldout;
  std::int64_t batch;  ///< tokens that a data-parallel row runs at once
  GroupShape group;
  const ModelConfig* reference = nullptr;  ///< whose heads have the same size; null: there is none
};

/// Returns the bytes that a pass takes on the GPU of the rank that has most: its sums, waiting rows, and the
/// operands of a panel.
double pass_bytes(const PassSetting& setting, const DeviceShare& pass);

/// Returns the bytes of everything else on that GPU: weights, activations of a forward, libraries.
double bytes_beside_passes(const PassSetting& setting);

/// Returns the fewest passes that fit `bytes` of a GPU per rank; none if not even single stripes do. A pass
/// names streams by their index in predict.streams, which the pairs of streams follow.
std::vector<DeviceShare> plan_passes(const PassSetting& setting, double bytes);

/// Returns what the pass sums, in words. A saved state is recognised by them.
std::string pass_name(const PassSetting& setting, const DeviceShare& pass);

}  // namespace headspan
