// The clock that durations are measured with. Not the time of day (base/provenance.h).
#pragma once

namespace headspan {

/// Returns seconds since some fixed point; never goes back.
double steady_seconds();

}  // namespace headspan
