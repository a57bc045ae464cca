// Parses the command line: headspan COMMAND [JOB.ini] [--section.key value ...]. Runs nothing and needs no
// MPI.
#pragma once

#include <string>
#include <vector>

#include "app/job/command.h"
#include "app/job/job.h"
#include "app/plan/plan.h"
#include "base/log.h"

namespace headspan {

struct Request {
  std::string answer;    ///< text of --help or --version, to be printed; then the program is done
  bool version = false;  ///< `answer` is that of --version, without the lines on this machine
  Command command = Command::study;
  Job job;               ///< for a command that takes one
  bool units = false;    ///< study --units: list the units, compute nothing
  bool dry_run = false;  ///< study --dry-run: check and say what would be done
  bool json = false;     ///< inspect prints JSON
  Verbosity verbosity = Verbosity::normal;
  PlanRequest plan;                ///< for plan
  std::vector<std::string> files;  ///< for inspect, at least one
};

/// Parses the arguments and reads the job file, whose keys the command line overrides. Throws InputError.
Request parse_command_line(int argc, const char* const* argv);

}  // namespace headspan
