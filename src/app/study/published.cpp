#include "app/study/published.h"

#include <filesystem>
#include <set>
#include <sstream>
#include <stdexcept>

#include "app/run/write_target.h"
#include "base/sha256.h"
#include "io/checkpoint/content_digest.h"
#include "io/hdf5/h5_file.h"
#include "io/outputs/publish.h"

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

/// The key that names the unit's result, and its value.
std::pair<std::string, std::string> naming_key(const Job& job, const Unit& unit) {
  if (!job.model.name.empty()) return {"model.name", job.model.name};
  if (unit.kind == Unit::Kind::activations) return {"activations.path", unit.path};
  if (unit.kind == Unit::Kind::grams) return {"grams.paths", job.grams.paths.front()};
  if (!job.model.path.empty()) return {"model.path", unit.path};
  return {"model.manifest", job.model.manifest};
}

/// What a unit is made from: the attribute of its result that has the digest, and the digest now.
struct Input {
  std::string attribute, path, digest;
};

/// Of what there is; why something cannot be read is added to `faults`.
std::vector<Input> inputs(const Job& job, const Unit& unit, std::vector<std::string>& faults) {
  const bool grams = unit.kind == Unit::Kind::grams;
  std::vector<Input> all{
      {"tokens_sha256", grams ? job.grams.paths.front() : job.tokens.path, unit.tokens_sha256},
      {"tokens_cut_digest", "what stands beside " + job.tokens.path, unit.tokens_cut_digest}};
  const auto add = [&](const char* attribute, const std::string& path, const auto& digest) {
    try {
      if (std::filesystem::exists(path)) all.push_back({attribute, path, digest()});
    } catch (const std::runtime_error& error) {
      faults.push_back(error_message(error));
    }
  };
  if (unit.kind == Unit::Kind::activations)
    add("input_digest", unit.path, [&] { return files_digest({unit.path}); });
  if (grams) add("input_digest", job.grams.paths.front(), [&] { return files_digest(job.grams.paths); });
  if (unit.kind != Unit::Kind::model) return all;
  const std::string config = unit.path + "/config.json";
  add("config_sha256", config, [&] { return sha256_file(config); });
  if (!unit.random)
    add("weights_digest", unit.path, [&] { return weights_digest(Checkpoint::open(unit.path)); });
  return all;
}

/// Throws InputError where what the unit is made from has changed since the result at `path`. Results from
/// before an attribute was written do not tell.
void check_inputs(const Job& job, const Unit& unit, const std::string& path,
                  std::vector<std::string>& notices) {
  const H5File file = H5File::open(path);
  std::vector<std::string> faults;
  for (const Input& input : inputs(job, unit, faults)) {
    const std::string there = file.read_attribute<std::string>("/", input.attribute).value_or("");
    if (!there.empty() && !input.digest.empty() && there != input.digest)
      throw InputError(path, input.attribute, there.substr(0, 12),
                       "is not that of " + input.path + " (" + input.digest.substr(0, 12) +
                           "), whose contents have changed since",
                       "choose another output.directory or set output.overwrite = true");
  }
  for (const std::string& fault : faults)
    notices.push_back(path + " is finished; what it was made from can no longer be read: " + fault);
}

}  // namespace

bool is_published(const Job& job, const Unit& unit, std::vector<std::string>& notices) {
  const std::string path = unit.result_path(job.output.directory);
  if (job.output.overwrite || !is_complete(path)) return false;
  const std::string identity = unit_identity(job, unit), digest = sha256_hex(identity);
  if (read_done(path)->job_digest != digest)
    throw InputError(path, "", "", "is the result of another job (" + difference(path, identity) + ")",
                     "choose another output.directory or set output.overwrite = true");
  check_inputs(job, unit, path, notices);
  const std::string gram = unit.gram_path(job.output.directory);
  return !job.output.save_gram || (is_complete(gram) && read_done(gram)->job_digest == digest);
}

void check_writable(const Job& job, const Unit& unit) {
  std::vector<std::string> inputs = input_files(job), results{unit.result_path(job.output.directory)};
  for (const std::string& file : checkpoint_files(unit.path)) inputs.push_back(file);
  if (job.output.save_gram) results.push_back(unit.gram_path(job.output.directory));
  const auto [key, value] = naming_key(job, unit);
  for (const std::string& result : results) {
    check_file_name(result, key, value);
    check_shared_path(result);
    for (const char* suffix : {"", ".done", ".lock", ".state", ".state.done"})
      check_target({"output.directory", job.output.directory, result + suffix}, inputs);
  }
}

}  // namespace headspan
