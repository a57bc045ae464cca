// The Grams of a unit from a model that runs over tokens.
#pragma once

#include "app/run/unit_run.h"
#include "app/sources/unit_evidence.h"

namespace headspan {

/// Checks what the unit will read, without computing: all but the values of weights; and the matrices that
/// it leads to on the grid of a group. Throws InputError. Local.
void check_model(const Job& job, const Unit& unit, const GridShape& grid);

/// From a model: loads or draws the weights and runs the job's tokens, from where an earlier run has stopped.
/// Throws Stopped where the run's clock says so, with the state saved. Phases of its profile: read, load,
/// overlap and those of capture_grams. Collective over the team's group.
UnitEvidence run_model(const UnitRun& run);

}  // namespace headspan
