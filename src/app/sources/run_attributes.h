// The attributes that say how a result came about: program, job, model, tokens, ranks, versions.
#pragma once

#include "app/run/unit_run.h"
#include "app/sources/unit_evidence.h"
#include "io/hdf5/netcdf.h"

namespace headspan {

/// Returns the root attributes of the unit's files, the same on every rank. Collective over the group.
NetcdfAttributes run_attributes(const UnitRun& run, const UnitEvidence& evidence);

}  // namespace headspan
