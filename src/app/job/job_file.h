// A job as text: reads a job file or the keys of a command line, refuses keys that contradict each other, and
// writes a job as a job file.
#pragma once

#include <map>
#include <string>

#include "app/job/command.h"
#include "app/job/job.h"

namespace headspan {

/// Writes the job of a command as a job file: every key that the command reads and that has a value, in the
/// order of app/job/job_options.h. Reading it gives the same Job.
std::string to_ini(const Job& job, Command command = Command::study);

constexpr char kCommandLine[] = "command line";  ///< where a key came from that no job file has

/// The text of a key, and where it came from: a job file, or kCommandLine.
struct GivenValue {
  std::string origin;
  std::string text;
};

/// By "section.key".
using GivenKeys = std::map<std::string, GivenValue>;

/// Reads the keys of the job file `text`; messages call it `name`. Throws InputError at a line that is not a
/// key, a section or a comment, at an unknown key, and at a key given twice. Lines that start with # or ; are
/// comments, and # after a value starts one too.
GivenKeys read_job_text(const std::string& name, const std::string& text);

/// Reads the keys of the job file at `path`. Throws InputError as read_job_text does.
GivenKeys read_job_file(const std::string& path);

/// Makes the job of a command from the given keys: sets what follows from predict.mode, and refuses keys that
/// contradict each other. Messages blame `name` for a key that is missing. Throws InputError.
Job make_job(Command command, const std::string& name, const GivenKeys& given);

}  // namespace headspan
