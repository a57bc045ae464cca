// A job as text: reading a job file or the keys of a command line, checking what contradicts itself, and
// writing a job out again.
#pragma once

#include <map>
#include <string>

#include "app/job/command.h"
#include "app/job/job.h"

namespace headspan {

/// The job of a command as a job file: every key of its own that holds something, in the table's order
/// (app/job/job_options.h). Reading it gives the same Job.
std::string to_ini(const Job& job, Command command = Command::study);

/// Where a key's text came from: a job file, or "command line".
struct GivenValue {
  std::string origin;
  std::string text;
};

/// Keys as "section.key".
using GivenKeys = std::map<std::string, GivenValue>;

/// The keys of the job file `text`; `name` is what messages call it. Throws InputError at a line that is
/// none, at an unknown key and at one given twice. A line that starts with # or ; is a comment; # also starts
/// one behind a value.
GivenKeys read_job_text(const std::string& name, const std::string& text);

/// As read_job_text, of the file at `path`.
GivenKeys read_job_file(const std::string& path);

/// The job of a command that `given` asks for, resolved: what follows from `predict.mode` is set, and what
/// contradicts itself is refused. `name` is blamed for what is missing. Throws InputError.
Job make_job(Command command, const std::string& name, const GivenKeys& given);

/// The InputError for a key that is none, with the nearest one or the section where it lives.
[[noreturn]] void refuse_unknown_key(const std::string& origin, const std::string& key,
                                     const std::string& text);

}  // namespace headspan
