// The commands of the program, one row each: how --help tells of a command, and which keys of a job it reads.
// What a command does is called by app/main.cpp, and its job is made by app/job/job_file.h.
#pragma once

#include <string>
#include <vector>

namespace headspan {

enum class Command { study, calibrate, evaluate, plan, theory, inspect };

struct CommandRow {
  Command command;
  const char* name;
  const char* usage;
  const char* summary;
  std::vector<std::string> sections;  ///< of a job, those that it reads; none: it takes no job
  bool many_checkpoints = false;  ///< whether it reads the keys of [model] that name or draw several models
  bool runs_long = false;         ///< whether a signal stops it with its state saved

  bool reads(const std::string& section) const;
  /// Whether a job file for it may hold the section: one file serves all commands that read some section in
  /// common.
  bool accepts(const std::string& section) const;
};

/// In the order in which --help lists them.
const std::vector<CommandRow>& commands();

const CommandRow& row_of(Command command);

/// Null where no command is called `name`.
const CommandRow* find_command(const std::string& name);

}  // namespace headspan
