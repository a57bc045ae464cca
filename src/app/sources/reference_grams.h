// The reference's own Grams from a file that an earlier study saved (cross.grams), in place of sums over its
// activations: of the same weights, the same tokens and the same held-out sequences. Not what the two models'
// heads have in common, for which both must run.
#pragma once

#include "app/run/model_input.h"
#include "app/run/unit_run.h"
#include "app/sources/unit_evidence.h"

namespace headspan {

/// Throws InputError unless the file at `path` says that it holds the reference's Grams of all streams of the
/// job, captured and computed as those of the unit. `heldout`: whether the unit has a held-out part. Local.
void check_reference_grams(const std::string& path, const Job::Predict& predict, const Job::Tokens& tokens,
                           const Unit& unit, const ModelInput& reference, bool heldout);

/// Reads the Grams into the evidence's Grams of the unit and the reference. Throws AgreedError if they are
/// damaged, of other weights, or of other tokens: their means must be those of the reference's forward.
/// Collective over the group.
void read_reference_grams(const std::string& path, const UnitRun& run, UnitEvidence& evidence);

}  // namespace headspan
