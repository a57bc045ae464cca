// The command line: headspan COMMAND [JOB.ini] [--section.key value ...]. It only says what is asked; needs
// no MPI.
#pragma once

#include <string>
#include <vector>

#include "app/job/command.h"
#include "app/job/job.h"
#include "app/plan/plan.h"

namespace headspan {

struct Request {
  std::string answer;  ///< not empty: the text of --help or --version; print it and exit with 0
  Command command = Command::study;
  Job job;                         ///< of a command that takes a job
  bool units = false;              ///< of study: its units are to be listed, not computed
  PlanRequest plan;                ///< of plan
  std::vector<std::string> files;  ///< of inspect, at least one
};

/// Reads the job file too; the command line overrides it. Throws InputError.
Request parse_command_line(int argc, const char* const* argv);

}  // namespace headspan
