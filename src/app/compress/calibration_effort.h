// How much work a calibration does: what compress.effort means for one model. The work itself is elsewhere
// (app/compress/measured_kl.h, app/compress/self_generated_text.h).
#pragma once

#include "app/job/job.h"
#include "base/log.h"
#include "model/core/model_config.h"

namespace headspan {

/// What is done besides running the model over the tokens once.
struct CalibrationEffort {
  LossUnits units = LossUnits::residual;
  std::int64_t own_text = 0;
  bool chosen = false;  ///< by effort = auto, from the model's size
};

/// Returns whether a calibration does more than to run the model once: with effort = full, and with auto if
/// the forwards that measure take at most 2e14 operations (ten minutes on a desktop, seconds on a node of a
/// cluster). Local.
bool is_thorough(Effort effort, const ModelConfig& config);

/// Returns how many tokens a thorough calibration generates if there are so many of the user's text; 0 where
/// no token can begin a text. Local.
std::int64_t default_own_text(std::int64_t most_text);

/// Returns the work for a codec, for which units are measured and the model generates text if the calibration
/// is thorough; nothing of that for KVTC's. `most_text`: see default_own_text. Local.
CalibrationEffort choose_effort(const Job::Archive& rule, const ModelConfig& config, std::int64_t most_text);

/// Returns the work for a model. Units are measured for latent and headspan, and the model generates text for
/// latent, if the calibration is thorough. `from_grams`: the model is not run. `most_text`: see
/// default_own_text. Local.
CalibrationEffort choose_effort(const Job::Compress& rule, const ModelConfig& config, bool from_grams,
                                std::int64_t most_text);

/// Logs what effort = auto comes to, if that is what chose it. key: the job's. measuring: what measured units
/// take, in words.
void tell(const std::string& key, const std::string& measuring, const CalibrationEffort& effort,
          const Log& log);

}  // namespace headspan
