#include "app/study/published.h"

#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "app/run/write_target.h"
#include "base/sha256.h"
#include "io/checkpoint/content_digest.h"
#include "io/hdf5/h5_file.h"
#include "io/outputs/publish.h"

namespace headspan {
namespace {

/// Returns the lines of `text` that `other` lacks, separated by commas.
std::string lines_only_in(const std::string& text, const std::string& other) {
  std::istringstream lines(text);
  std::string missing;
  for (std::string line; std::getline(lines, line);)
    if (("\n" + other + "\n").find("\n" + line + "\n") == std::string::npos)
      missing += (missing.empty() ? "" : ", ") + line;
  return missing;
}

/// Returns how the job of the file at `path` differs from this one: the lines that only one of them has.
std::string difference(const std::string& path, const std::string& identity) {
  const auto saved = H5File::open(path).read_attribute<std::string>("/", "identity");
  if (!saved) return "it does not say what it was made with";
  const std::string there = lines_only_in(*saved, identity), here = lines_only_in(identity, *saved);
  return (there.empty() ? "" : "there " + there) + (there.empty() || here.empty() ? "" : ", ") +
         (here.empty() ? "" : "here " + here);
}

/// Returns the key that names the unit's result, and its value.
std::pair<std::string, std::string> naming_key(const Job::Model& model, const Unit& unit) {
  if (!model.name.empty()) return {"model.name", model.name};
  if (unit.kind == Unit::Kind::activations) return {"activations.path", unit.path};
  if (unit.kind == Unit::Kind::grams) return {"grams.paths", unit.path};
  if (!model.path.empty()) return {"model.path", unit.path};
  return {"model.manifest", model.manifest};
}

/// An input of a unit: the attribute of the result that holds its digest, and its digest now.
struct Input {
  std::string attribute, path, digest;
};

/// Returns the inputs that exist and can be read. Adds to `faults` why others cannot.
std::vector<Input> inputs(const Job& job, const Unit& unit, std::vector<std::string>& faults) {
  const bool grams = unit.kind == Unit::Kind::grams;
  std::vector<Input> all{
      {"tokens_sha256", grams ? unit.path : job.tokens.path, unit.tokens_sha256},
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
  if (grams) add("input_digest", unit.path, [&] { return files_digest(job.grams.paths); });
  if (unit.kind != Unit::Kind::model) return all;
  const std::string config = unit.path + "/config.json";
  add("config_sha256", config, [&] { return sha256_file(config); });
  if (!unit.random)
    add("weights_digest", unit.path, [&] { return weights_digest(Checkpoint::open(unit.path)); });
  if (unit.reference.empty()) return all;
  const std::string reference = unit.reference + "/config.json";
  add("reference_config_sha256", reference, [&] { return sha256_file(reference); });
  add("reference_weights_digest", unit.reference,
      [&] { return weights_digest(Checkpoint::open(unit.reference)); });
  return all;
}

/// Throws InputError if an input of the unit has changed since the result at `path` was made. Results of
/// earlier versions lack some attributes; these are not compared.
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
  const std::string finished = path + " is finished; what it was made from can no longer be read: ";
  for (const std::string& fault : faults) notices.push_back(finished + fault);
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
  for (const std::string& folder : {unit.path, unit.reference})
    for (const std::string& file : checkpoint_files(folder)) inputs.push_back(file);
  if (job.output.save_gram) results.push_back(unit.gram_path(job.output.directory));
  const auto [key, value] = naming_key(job.model, unit);
  for (const std::string& result : results) {
    check_file_name(result, key, value);
    for (const char* suffix : {"", ".done", ".lock", ".state", ".state.done"})
      check_target({"output.directory", job.output.directory, result + suffix}, inputs);
  }
}

}  // namespace headspan
