// Where the Grams of a unit come from: a model that runs over tokens, a file of activations, or saved Grams.
#pragma once

#include "app/run/unit_run.h"
#include "app/sources/unit_evidence.h"

namespace headspan {

/// Checks everything that a unit reads except the values of weights, activations and Grams, and that its
/// matrices can be handled on a group's grid. Computes nothing. Throws InputError. Local.
void check_unit(const Job& job, const Unit& unit, const GridShape& grid);

/// Runs or reads the unit's source, resuming from a saved state, and checks that its values can be squared
/// and summed. Counts the phase read, and those of run_model, of the run's profile. Throws AgreedError, or
/// Stopped with the state of the unit saved. Collective over the group.
UnitEvidence gather_evidence(const UnitRun& run);

}  // namespace headspan
