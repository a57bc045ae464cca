// The Grams of a unit from a model that runs over tokens.
#pragma once

#include "app/run/unit_run.h"
#include "app/sources/unit_evidence.h"

namespace headspan {

/// Checks everything that the unit reads except the values of the weights, and that its matrices can be
/// handled on a group's grid. Computes nothing. Throws InputError. Local.
void check_model(const Job& job, const Unit& unit, const GridShape& grid);

/// Loads or draws the weights and runs the job's tokens, resuming from a saved state. Counts the phases read,
/// load, overlap and those of capture_grams of the run's profile. Throws AgreedError, or Stopped with the
/// state saved. Collective over the group.
UnitEvidence run_model(const UnitRun& run);

}  // namespace headspan
