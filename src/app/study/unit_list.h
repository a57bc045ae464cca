// The answer of study --units: which units a job has, and which of them are finished. Computes nothing.
#pragma once

#include <string>

#include "app/job/job.h"

namespace headspan {

/// Lines of tab-separated fields:
///   directory  PATH                     output.directory
///   manifest   PATH  all|some           and whether all of its rows are selected; where the job has one
///   unit       ROW  NAME  STATE  FILE   row of the manifest counted from 0 ("-" without one); finished,
///   which
///                                       a study would skip, or open; the result's path
/// Throws InputError, also for what stands in the place of a result (is_published) and for text that would
/// break a line. Needs no MPI. One rank.
std::string format_units(const Job& job);

}  // namespace headspan
