// The clock that measures durations. Not the time of day (base/provenance.h).
#pragma once

#include <string>

namespace headspan {

/// Returns the seconds since some fixed point in time; never decreases.
double steady_seconds();

/// Returns a duration as "HH:MM:SS"; hours are not limited.
std::string clock_text(double seconds);

}  // namespace headspan
