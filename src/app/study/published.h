// The place of a unit's result, before it is computed: what stands there already (of this very job it is
// skipped, of another job it is not touched), and whether a result could be written.
#pragma once

#include <string>
#include <vector>

#include "app/job/unit.h"

namespace headspan {

/// True when the unit's result, and its Grams where the job saves them, are complete and of this job. False
/// where there is none, where it is incomplete, or where output.overwrite replaces it. Throws InputError that
/// says what differs when a complete result of another job stands there, or of this job with other contents
/// of its tokens, weights, activations or Grams than these have now. Nothing is computed from these again, so
/// that those that are no longer there are not asked for, and of those that can no longer be read a line is
/// added to `notices`. One rank.
bool is_published(const Job& job, const Unit& unit, std::vector<std::string>& notices);

/// Throws as check_target does for all files that the unit is published in. Makes nothing. One rank.
void check_writable(const Job& job, const Unit& unit);

}  // namespace headspan
