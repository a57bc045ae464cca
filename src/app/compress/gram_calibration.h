// A calibration from saved Grams in place of a run of the model over tokens.
#pragma once

#include "app/compress/calibration.h"
#include "app/run/process_layout.h"

namespace headspan {

/// What the job's Gram files say of their model and tokens.
struct GramOrigin {
  ModelConfig config;  ///< model_type and the sizes of attention alone
  std::string config_sha256;
  std::string weights_digest;  ///< empty: not told
  std::string tokens_path, tokens_sha256, tokens_mismatch;
  std::string weights_mismatch;  ///< how they may be of other weights than model.path; empty: not
};

/// Throws InputError where the files do not serve the job: of another model than model.path, without what
/// attention does, with tokens that a cache keeps exactly, with too few. Local.
GramOrigin check_calibration_grams(const Job& job);

/// The files merged; `origin` as they say it. Throws AgreedError, also for Grams that no data has. Collective
/// over the team's group.
Calibration calibration_of_grams(const Job& job, const GramOrigin& origin, const ProcessLayout& team);

}  // namespace headspan
