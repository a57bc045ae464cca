// The attributes that say how a result came about (design section 8): program, job, model, tokens, ranks,
// versions.
#pragma once

#include "app/gram_source.h"
#include "io/netcdf.h"

namespace headspan {

/// Compiler, MPI, HDF5 and LibTorch.
std::string library_versions();

/// Root attributes of the unit's files, equal on every rank. Collective over the team's group.
NetcdfAttributes run_attributes(const Job& job, const Unit& unit, const Team& team,
                                const UnitEvidence& evidence);

}  // namespace headspan
