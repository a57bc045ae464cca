// The clock that measures durations. Not the time of day (base/provenance.h).
#pragma once

namespace headspan {

/// Returns the seconds since some fixed point in time; never decreases.
double steady_seconds();

}  // namespace headspan
