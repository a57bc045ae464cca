// The reference of a study (cross.model): another checkpoint that runs the tokens of every unit, so that its
// heads and the unit's can predict each other. Whether it can; not what is computed from both.
#pragma once

#include "app/run/model_input.h"
#include "app/run/sample.h"

namespace headspan {

/// Opens the stored weights at `path`, to be run on the sample of the model `own` in the type of its forward.
/// Throws InputError for everything that is wrong with the checkpoint, and if it reads tokens by another
/// vocabulary: that of tokenizer.json beside each config.json, or the number of ids where one is missing.
/// Local.
ModelInput open_reference(const Job::Model& rule, const std::string& path, const ModelInput& own,
                          const Sample& sample);

}  // namespace headspan
