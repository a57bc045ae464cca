// The Grams of a unit from a model that runs over tokens.
#pragma once

#include "app/job/unit.h"
#include "app/run/run_clock.h"
#include "app/run/team.h"
#include "app/sources/unit_evidence.h"
#include "base/profile.h"

namespace headspan {

/// Checks what the unit will read, without computing: all but the values of weights; and the matrices that
/// it leads to on the grid of a group. Throws InputError. Local.
void check_model(const Job& job, const Unit& unit, const GridShape& grid);

/// From a model: loads or draws the weights and runs the job's tokens, from where an earlier run has stopped.
/// Throws Stopped where `clock` says so, with the state saved. Phases of `profile`: read, load, overlap and
/// those of capture_grams. Collective over the team's group.
UnitEvidence run_model(const Job& job, const Unit& unit, const Team& team, RunClock& clock, const Log& log,
                       Profile& profile);

}  // namespace headspan
