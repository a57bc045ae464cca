// Where the Grams of a unit come from: a model that runs over tokens, a file of activations, or saved Grams.
#pragma once

#include "app/run/unit_run.h"
#include "app/sources/unit_evidence.h"

namespace headspan {

/// Checks what a unit reads, without computing: all but the values of weights and activations; and that its
/// matrices can be handled on the grid of a group. Throws InputError. Local.
void check_unit(const Job& job, const Unit& unit, const GridShape& grid);

/// What a refusal of the unit's values names: the file or folder that they come from.
const std::string& source_path(const Job& job, const Unit& unit);

/// Runs or reads the unit's source, from where an earlier run has stopped, and checks that its values can be
/// squared and summed. Throws AgreedError, or Stopped with the state of the unit saved. Phases of the run's
/// profile: read, and those of run_model. Collective over the team's group.
UnitEvidence gather_evidence(const UnitRun& run);

}  // namespace headspan
