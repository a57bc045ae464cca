// The keys of a job file, each told once: this table serves reading, messages, --help and the echo of a job.
// Defaults are those of Job's own members.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/job/command.h"
#include "app/job/job.h"

namespace headspan {

struct JobOption {
  std::string name;                                   ///< "tokens.limit"
  std::string allowed;                                ///< what a value may be, in words
  std::string help;                                   ///< one line
  std::function<void(Job&, const std::string&)> set;  ///< throws BadValue
  std::function<std::string(const Job&)> get;         ///< text that `set` reads; empty: not given

  std::string section() const { return name.substr(0, name.find('.')); }
  std::string key() const { return name.substr(name.find('.') + 1); }
  bool is_read_by(Command command) const;
};

/// Ordered as in a job file: the keys of a section stand together.
const std::vector<JobOption>& job_options();

/// Nothing when `name` ("section.key") is no key.
const JobOption* find_job_option(const std::string& name);

/// The keys of a command with default, help and what is allowed, for --help.
std::string job_options_help(Command command);

}  // namespace headspan
