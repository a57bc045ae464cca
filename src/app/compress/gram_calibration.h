// A calibration from saved Grams, instead of a run of the model over tokens.
#pragma once

#include "app/compress/calibration.h"
#include "app/run/process_layout.h"

namespace headspan {

/// The model and the tokens of Grams.
struct GramOrigin {
  ModelConfig config;  ///< only model_type and the sizes of attention
  std::string config_sha256;
  std::string weights_digest;  ///< empty: unknown
  std::string tokens_path, tokens_sha256, tokens_mismatch;
  std::string weights_mismatch;  ///< why the Grams may be of other weights than model.path; else empty
};

/// Reads what the job's Gram files say. Throws InputError if they do not suit the job: if they are of another
/// model than model.path, lack the moments of attention, include tokens that a cache keeps exactly, or have
/// too few tokens. Local.
GramOrigin check_calibration_grams(const Job& job);

/// Reads and merges the job's Gram files. Throws AgreedError, also for Grams that cannot come from data.
/// Collective over the group.
Calibration calibration_of_grams(const Job& job, const GramOrigin& origin, const ProcessLayout& processes);

}  // namespace headspan
