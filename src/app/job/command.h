// The commands of the program, one row each: its name, what --help says of it, and which keys of a job it
// reads; and the options that are not keys of a job. Not what a command does, which app/main.cpp calls.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace headspan {

enum class Command {
  study,
  calibrate,
  evaluate,
  plan,
  theory,
  archive_calibrate,
  archive_encode,
  archive_decode,
  inspect
};

struct CommandRow {
  Command command;
  const char* name;
  const char* usage;
  const char* summary;
  std::vector<std::string> sections;  ///< the sections of a job that it reads; empty: it takes no job
  bool many_checkpoints = false;  ///< whether it reads the keys of [model] that name or draw several models
  bool runs_long = false;         ///< whether a signal stops it with its state saved

  bool reads(const std::string& section) const;
  /// Returns whether its job files may have the section, even if it does not read it: one file serves all
  /// commands that share a section.
  bool accepts(const std::string& section) const;
};

/// Returns all commands, in the order of --help.
const std::vector<CommandRow>& commands();

const CommandRow& row_of(Command command);

/// Returns null if no command has this name.
const CommandRow* find_command(const std::string& name);

/// An option of the command line that is not a key of a job.
struct CommandOption {
  const char* name;            ///< "ranks" of --ranks
  const char* value;           ///< what follows it, such as "N"; empty: nothing
  const char* help;            ///< one line
  std::set<Command> commands;  ///< that have it
  char letter = '\0';          ///< 'q' of -q; '\0': none
};

/// Returns all options, in the order of --help.
const std::vector<CommandOption>& command_options();

/// Returns the options of a command, one line each, for --help; empty: it has none.
std::string command_options_help(Command command);

}  // namespace headspan
