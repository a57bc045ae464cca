#include "app/published.h"

#include <set>
#include <sstream>

#include "base/sha256.h"
#include "io/h5_file.h"
#include "io/publish.h"

namespace headspan {
namespace {

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
  const std::string identity = unit_identity(job, unit);
  if (read_done(path)->job_digest != sha256_hex(identity))
    throw InputError(path, "", "", "is the result of another job (" + difference(path, identity) + ")",
                     "choose another output.directory or set output.overwrite = true");
  return !job.output.save_gram || is_complete(unit.gram_path(job));
}

}  // namespace headspan
