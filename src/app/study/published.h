// What is found at the place of a unit's result before it is computed: a result of this very job, which is
// kept, or of another, which is not touched; and whether a result could be written there.
#pragma once

#include <string>
#include <vector>

#include "app/job/unit.h"

namespace headspan {

/// Returns whether the unit's result, and its Grams if the job saves them, are complete and of this job. A
/// result that is missing, incomplete, or replaced by output.overwrite is not. Throws InputError, which says
/// what differs, for a complete result of another job, or of this job if its tokens, weights, activations or
/// Grams have changed since. Inputs that are gone are not compared; for those that cannot be read a line is
/// added to `notices`. One rank.
bool is_published(const Job& job, const Unit& unit, std::vector<std::string>& notices);

/// Calls check_target for all files that the unit is published in. Makes nothing. Throws InputError. One
/// rank.
void check_writable(const Job& job, const Unit& unit);

}  // namespace headspan
