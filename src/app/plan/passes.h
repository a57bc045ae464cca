// In how many passes over the tokens a study on GPUs sums its Grams: in one where they fit the memory of a
// GPU beside the weights; else the fit part and the held-out part one after the other, which costs nothing
// more; else the streams too, with a forward for each; else a stream in stripes, with a forward for each.
#pragma once

#include "app/plan/job_sizes.h"
#include "device/device_collector.h"

namespace headspan {

/// What passes of a job depend on.
struct PassSetting {
  const Job& job;
  const ModelConfig& config;
  Dtype dtype;  ///< of the forward
  bool heldout;
  std::int64_t batch;  ///< tokens that a data-parallel row runs at once
  GroupShape group;
};

/// Bytes on the GPU of the rank that has most: sums of the pass, rows that wait, operands of a panel.
double pass_bytes(const PassSetting& setting, const DeviceShare& pass);

/// What the weights, the activations of a forward and libraries take besides.
double bytes_beside_passes(const PassSetting& setting);

/// The passes, `streams` by their place in predict.streams. None where not even single stripes fit a GPU that
/// has `bytes` for a rank.
std::vector<DeviceShare> plan_passes(const PassSetting& setting, double bytes);

/// What it sums, in words: those of a saved state.
std::string pass_name(const PassSetting& setting, const DeviceShare& pass);

}  // namespace headspan
