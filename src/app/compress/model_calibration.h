// A calibration from a run of a model over tokens. From saved Grams: app/compress/gram_calibration.h.
#pragma once

#include <string>

#include "app/capture/capture_setup.h"
#include "app/compress/calibration.h"
#include "app/run/model_input.h"
#include "app/run/process_layout.h"
#include "app/run/sample.h"
#include "base/log.h"
#include "base/profile.h"
#include "model/forward/transformer.h"

namespace headspan {

/// What a model is calibrated with.
struct CalibrationInput {
  const ModelInput& input;
  const std::string& model_path;  ///< for messages
  const Sample& sample;
  PredictMode mode;
};

/// Runs the model over the sample: Grams of keys and values, of whole streams or by layer, at the request's
/// point, and the moments of attention. Sets the request's streams and sums. Throws AgreedError for numbers
/// beyond the range of the Grams. Collective over the layout's group.
Calibration calibration_of_model(const CalibrationInput& given, CaptureRequest request,
                                 const Transformer& model, const ProcessLayout& processes, const Log& log,
                                 Profile& profile);

}  // namespace headspan
