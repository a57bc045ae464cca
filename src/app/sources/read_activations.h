// The Grams of a unit from a file of the user's own activations.
#pragma once

#include "app/run/unit_run.h"
#include "app/sources/unit_evidence.h"

namespace headspan {

/// Checks everything that the unit reads except the values of the activations, and that its matrices can be
/// handled on a group's grid. Computes nothing. Throws InputError. Local.
void check_activations(const Job& job, const Unit& unit, const GridShape& grid);

/// Reads the file into the Gram of its stream, resuming from a saved state. Throws AgreedError, or Stopped
/// with the state saved. Collective over the group.
UnitEvidence read_activations(const UnitRun& run);

}  // namespace headspan
