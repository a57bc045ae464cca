// The keys of a job file, one row each, for reading, messages, --help and writing. The defaults are those of
// Job's members.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/job/command.h"
#include "app/job/job.h"

namespace headspan {

struct JobOption {
  std::string name;                                   ///< "tokens.limit"
  std::string allowed;                                ///< values, in words
  std::string help;                                   ///< one line
  std::function<void(Job&, const std::string&)> set;  ///< throws BadValue
  std::function<std::string(const Job&)> get;         ///< text that `set` reads; empty: no value

  std::string section() const { return name.substr(0, name.find('.')); }
  std::string key() const { return name.substr(name.find('.') + 1); }
  bool is_read_by(Command command) const;
};

/// Returns all keys, in the order of a job file.
const std::vector<JobOption>& job_options();

/// Returns the key "section.key"; null if there is none.
const JobOption* find_job_option(const std::string& name);

/// Returns the keys that a command reads, with defaults and allowed values, for --help.
std::string job_options_help(Command command);

}  // namespace headspan
