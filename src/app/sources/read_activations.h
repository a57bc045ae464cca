// The Grams of a unit from a file of the user's own activations.
#pragma once

#include "app/run/unit_run.h"
#include "app/sources/unit_evidence.h"

namespace headspan {

/// Checks what the unit will read, without computing: all but the values of activations; and the matrices
/// that it leads to on the grid of a group. Throws InputError. Local.
void check_activations(const Job& job, const Unit& unit, const GridShape& grid);

/// From the user's own activations, from where an earlier run has stopped. Throws Stopped as run_model does.
/// Collective over the team's group.
UnitEvidence read_activations(const UnitRun& run);

}  // namespace headspan
