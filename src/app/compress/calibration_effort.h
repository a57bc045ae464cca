// How much work a calibration does: what compress.effort means for one model. The work itself is elsewhere
// (app/compress/measured_kl.h, app/compress/self_generated_text.h).
#pragma once

#include "app/job/job.h"
#include "model/core/model_config.h"

namespace headspan {

/// What is done where compress.units and compress.own_text say auto.
struct CalibrationEffort {
  LossUnits units = LossUnits::residual;
  std::int64_t own_text = 0;
  bool chosen = false;  ///< by effort = auto, from the model's size
};

/// Returns the work for a model. Units are measured for latent and headspan, and the model generates text for
/// latent, with effort = full, and with auto if the forwards that measure take at most 2e14 operations (ten
/// minutes on a desktop, seconds on a node of a cluster). `from_grams`: the model is not run.
/// `most_text`: how many tokens may be generated, no more than there are of the user's text; 0 where no token
/// can begin a text. Local.
CalibrationEffort choose_effort(const Job::Compress& rule, const ModelConfig& config, bool from_grams,
                                std::int64_t most_text);

}  // namespace headspan
