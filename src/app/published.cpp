#include "app/published.h"

#include <filesystem>
#include <set>
#include <sstream>

#include <fcntl.h>
#include <unistd.h>

#include "base/sha256.h"
#include "io/h5_file.h"
#include "io/publish.h"

namespace headspan {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The lines of the job here that the job of the file at `path` does not have, as the user may compare them.
std::string difference(const std::string& path, const std::string& identity) {
  const auto there = H5File::open(path).read_attribute<std::string>("/", "identity");
  if (!there) return "it does not say what it was made with";
  const auto theirs = lines_of(*there), ours = lines_of(identity);
  const std::set<std::string> ours_set(ours.begin(), ours.end()), theirs_set(theirs.begin(), theirs.end());
  std::string text;
  for (const std::string& line : theirs)
    if (ours_set.count(line) == 0) text += (text.empty() ? "there " : ", ") + line;
  std::string here;
  for (const std::string& line : ours)
    if (theirs_set.count(line) == 0) here += (here.empty() ? "here " : ", ") + line;
  return text + (text.empty() || here.empty() ? "" : ", ") + here;
}

}  // namespace

bool is_published(const Job& job, const Unit& unit) {
  const std::string path = unit.result_path(job);
  if (job.output.overwrite || !is_complete(path)) return false;
  const std::string identity = unit_identity(job, unit), digest = sha256_hex(identity);
  if (read_done(path)->job_digest != digest)
    throw InputError(path, "", "", "is the result of another job (" + difference(path, identity) + ")",
                     "choose another output.directory or set output.overwrite = true");
  const std::string gram = unit.gram_path(job);
  return !job.output.save_gram || (is_complete(gram) && read_done(gram)->job_digest == digest);
}

void check_writable(const Job& job, const Unit& unit) {
  std::vector<std::string> inputs = job.grams.paths, results{unit.result_path(job)};
  inputs.push_back(unit.path);
  if (job.output.save_gram) results.push_back(unit.gram_path(job));
  std::error_code missing;
  for (const std::string& input : inputs)
    for (const std::string& result : results)
      if (fs::equivalent(input, result, missing))
        throw InputError("", "output.directory", job.output.directory,
                         "would replace " + input + " by the result", "choose another folder");
  const fs::path folder = fs::path(unit.result_path(job)).parent_path();
  fs::path there = fs::absolute(folder);  // the first that exists: what is below it can be made
  while (!fs::exists(there, missing)) there = there.parent_path();
  if (!fs::is_directory(there))
    throw Error("cannot make the folder: " + folder.string() + ": " + there.string() + " is a file");
  if (::faccessat(AT_FDCWD, there.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    throw_errno("cannot write to the folder", there.string());
}

}  // namespace headspan
