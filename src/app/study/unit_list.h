// What study --units prints: which units a job has, and which of them are finished. Computes nothing.
#pragma once

#include <string>

#include "app/job/job.h"

namespace headspan {

/// Returns lines of tab-separated fields:
///   directory  PATH                     output.directory
///   manifest   PATH  all|some           if the job has one, and whether all of its rows are selected
///   unit       ROW  NAME  STATE  FILE   the row of the manifest from 0, "-" without one; finished, which a
///                                       study would skip, or open; the result's path
/// Throws InputError, also as is_published does and for text that would break a line. Needs no MPI. One rank.
std::string format_units(const Job& job);

}  // namespace headspan
