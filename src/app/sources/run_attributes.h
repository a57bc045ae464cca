// The attributes that say how a result came about (design section 8): program, job, model, tokens, ranks,
// versions.
#pragma once

#include "app/job/job.h"
#include "app/job/unit.h"
#include "app/run/process_layout.h"
#include "app/sources/unit_evidence.h"
#include "io/hdf5/netcdf.h"

namespace headspan {

/// Root attributes of the unit's files, equal on every rank. Collective over the team's group.
NetcdfAttributes run_attributes(const Job& job, const Unit& unit, const ProcessLayout& team,
                                const UnitEvidence& evidence);

}  // namespace headspan
