#include "app/job/unit.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <sstream>

#include "app/job/job_file.h"
#include "base/file_name.h"
#include "base/printable.h"
#include "io/hdf5/h5_file.h"
#include "io/inputs/manifest.h"

namespace headspan {
namespace {

namespace fs = std::filesystem;

/// Returns the number at `first`, after a - or _ if there is one; -1 if there is no number.
std::int64_t number_at(const std::string& name, std::size_t first) {
  if (first < name.size() && (name[first] == '-' || name[first] == '_')) ++first;
  const std::size_t end = std::min(name.find_first_not_of("0123456789", first), name.size());
  const bool ends = end == name.size() || std::isalpha(static_cast<unsigned char>(name[end])) == 0;  // not 2b
  return ends && end > first && end - first <= 18 ? std::stoll(name.substr(first, end - first)) : -1;
}

/// Returns the number that follows `word` in `name`, unless `word` ends a longer word; -1 if there is none.
std::int64_t number_after(const std::string& word, const std::string& name) {
  for (auto at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
    if (at > 0 && name[at - 1] >= 'a' && name[at - 1] <= 'z') continue;  // as in footstep7
    if (const std::int64_t number = number_at(name, at + word.size()); number >= 0) return number;
  }
  return -1;
}

/// Returns 1000 for "step1000", "stage1-step1000-tokens5B" and "checkpoint-1000"; -1 if no step is named.
std::int64_t step_in(const std::string& name) {
  return std::max(number_after("step", name), number_after("checkpoint", name));
}

fs::path absolute(const std::string& path) {
  fs::path full = fs::absolute(path).lexically_normal();
  return full.has_filename() ? full : full.parent_path();
}

std::string last_part(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.empty() ? "model" : name;
}

/// Returns "ORG--NAME" for a folder models--ORG--NAME/snapshots/COMMIT of the Hugging Face cache; else empty.
std::string cached_name(const fs::path& folder) {
  const std::string prefix = "models--", name = folder.parent_path().parent_path().filename().string();
  const bool is_cached = folder.parent_path().filename() == "snapshots" && name.rfind(prefix, 0) == 0;
  return is_cached ? name.substr(prefix.size()) : "";
}

/// Returns the model's name if its checkpoints are sibling folders: ORG--NAME in the Hugging Face cache, else
/// the name of the parent folder.
std::string model_above(const std::string& path) {
  const std::string cached = cached_name(absolute(path));
  return cached.empty() ? last_part(absolute(path).parent_path()) : cached;
}

/// Returns whether a folder is named after a training step: step1000, checkpoint-1000 or
/// stage1-step1000-tokens5B, but not step-by-step-2b.
bool is_step(const std::string& name) {
  const auto leads = [&](const std::string& word) {
    return name.rfind(word, 0) == 0 && number_at(name, word.size()) >= 0;
  };
  return leads("step") || leads("checkpoint") || (leads("stage") && number_after("step", name) >= 0);
}

/// Returns the model's name for a single checkpoint: the folder's name, or model_above if the folder is named
/// after a training step or lies in the Hugging Face cache.
std::string model_of_folder(const std::string& path) {
  const fs::path folder = absolute(path);
  const std::string name = last_part(folder);
  return is_step(name) || !cached_name(folder).empty() ? model_above(path) : name;
}

/// Returns "org--name" for "org/name", which is one file name.
std::string folder_name(std::string repository) {
  for (std::size_t at = repository.find('/'); at != std::string::npos; at = repository.find('/', at))
    repository.replace(at, 1, "--");
  return repository;
}

Unit unit_of_path(const std::string& path) {
  Unit unit;
  unit.name = last_part(absolute(path));
  unit.model_name = model_of_folder(path);
  unit.path = path;
  unit.step = step_in(unit.name);
  return unit;
}

Unit unit_of_row(const ManifestRow& row) {
  Unit unit;
  unit.name = row.name;
  unit.model_name = row.repository.empty() ? model_above(row.path) : folder_name(row.repository);
  unit.path = row.path;
  unit.row = row.number;
  unit.step = row.step;
  unit.training_tokens = row.tokens.value_or(-1);
  unit.training_seed = row.seed.value_or(-1);
  unit.validation_loss = row.validation_loss;
  for (const std::string& part : {row.repository, row.revision, row.commit})
    if (!part.empty()) unit.revision += (unit.revision.empty() ? "" : " ") + part;
  return unit;
}

/// Adds a unit for each of the weights that model.init asks for.
void add_by_init(const Job::Model& rule, const Unit& unit, std::vector<Unit>& units) {
  for (const WeightSource source : rule.init) {
    Unit& added = units.emplace_back(unit);
    added.random = source == WeightSource::random;
    if (!added.random) continue;
    added.validation_loss.reset();
    if (rule.init.size() > 1) added.name += "-random";
  }
}

/// Sets the reference of all units: the manifest's checkpoint that cross.model names, or the folder there.
void set_reference(const Job& job, std::vector<Unit>& units) {
  const std::string& name = job.cross.model;
  const auto set = [&](const std::string& path, const std::string& called) {
    for (Unit& unit : units) {
      unit.reference = path;
      unit.reference_name = called;
    }
  };
  if (!job.model.manifest.empty())
    for (const ManifestRow& row : read_manifest(job.model.manifest))
      if (row.name == name) return set(row.path, row.name);
  std::error_code missing;
  if (job.model.manifest.empty() || fs::exists(name, missing)) return set(name, last_part(absolute(name)));
  throw InputError("", "cross.model", printable(name),
                   "is neither a folder nor a checkpoint of " + printable(job.model.manifest),
                   "give a path, or a name of the manifest");
}

/// Throws InputError if units would overwrite each other's results or Grams.
void check_names(const std::string& manifest, const Job::Output& output, const std::vector<Unit>& units) {
  std::set<std::string> results;
  for (const Unit& unit : units)
    if (!results.insert(unit.result_path(output.directory)).second)
      throw InputError(manifest, "name", unit.name, "names a row and the random weights of another",
                       "rename the row");
  for (const Unit& unit : units)
    if (output.save_gram && results.count(unit.gram_path(output.directory)) > 0)
      throw InputError(manifest, "name", unit.name + ".gram",
                       "has its result where the Grams of " + unit.name + " are saved", "rename the row");
}

Unit unit_of_file(Unit::Kind kind, const std::string& path, const std::string& model_name) {
  Unit unit;
  unit.kind = kind;
  unit.path = path;
  unit.model_name = model_name;
  unit.name = absolute(path).stem().string();
  if (unit.name.size() > 5 && unit.name.substr(unit.name.size() - 5) == ".gram")
    unit.name.resize(unit.name.size() - 5);
  unit.step = step_in(unit.name);
  return unit;
}

/// Returns tokens_sha256 of the Gram files, separated by commas.
std::string tokens_of_grams(const Words& paths) {
  std::string all;
  std::error_code missing;
  for (const std::string& path : paths) {
    if (!fs::exists(path, missing)) continue;
    const auto digest = H5File::open(path).read_attribute<std::string>("/", "tokens_sha256");
    if (digest && !digest->empty()) all += (all.empty() ? "" : ",") + *digest;
  }
  return all;
}

/// Returns the unit that starts from Grams. The first file names its model, all files together its tokens.
/// Missing files are no error here, because the unit's result may be published already.
Unit unit_of_grams(const Words& paths, bool is_named) {
  const std::string& first = paths.front();
  Unit unit = unit_of_file(Unit::Kind::grams, first, model_above(first));
  unit.tokens_sha256 = tokens_of_grams(paths);
  std::error_code missing;
  if (!fs::exists(first, missing)) return unit;
  const H5File file = H5File::open(first);
  const auto name = file.read_attribute<std::string>("/", "model_name");
  if (name && !is_named && !is_file_name(*name))
    throw InputError(first, "model_name", printable(*name), "cannot name the folder of the results",
                     "give model.name");
  unit.model_name = name.value_or(unit.model_name);
  unit.step = file.read_attribute<std::int64_t>("/", "step").value_or(unit.step);
  unit.training_tokens = file.read_attribute<std::int64_t>("/", "training_tokens").value_or(-1);
  unit.training_seed = file.read_attribute<std::int64_t>("/", "training_seed").value_or(-1);
  if (const auto init = file.read_attribute<std::string>("/", "init"))
    unit.random = value_of(weight_source_words(), *init) == WeightSource::random;
  unit.validation_loss = file.read_attribute<double>("/", "validation_loss");
  return unit;
}

/// Returns whether a line is the default of a key that version 0.2 did not have: its results still count.
bool says_nothing(const std::string& line) {
  return line == "predict.similarity = none" || line == "cross.streams = none" ||
         line == "attention.scores = false";
}

/// Returns whether a key changes the numbers of a unit, not only where or how they are computed.
bool changes_numbers(const std::string& key) {
  static const std::vector<std::string> kNot{"model.path", "model.manifest", "model.select",
                                             "model.init", "model.name",     "cross.grams"};
  return key.rfind("run.", 0) != 0 && key.rfind("output.", 0) != 0 &&
         std::find(kNot.begin(), kNot.end(), key) == kNot.end();
}

}  // namespace

std::string Unit::result_path(const std::string& directory) const {
  return directory + "/" + model_name + "/" + name + ".h5";
}

std::string Unit::gram_path(const std::string& directory) const {
  return directory + "/" + model_name + "/" + name + ".gram.h5";
}

std::string Unit::state_path(const std::string& directory) const { return result_path(directory) + ".state"; }

std::vector<Unit> list_units(const Job& job) {
  std::vector<Unit> units;
  if (!job.activations.path.empty())
    units.push_back(unit_of_file(Unit::Kind::activations, job.activations.path, "activations"));
  else if (!job.grams.paths.empty())
    units.push_back(unit_of_grams(job.grams.paths, !job.model.name.empty()));
  else if (!job.model.path.empty())
    add_by_init(job.model, unit_of_path(job.model.path), units);
  else
    for (const ManifestRow& row : select_rows(read_manifest(job.model.manifest), job.model.select))
      add_by_init(job.model, unit_of_row(row), units);
  if (!job.model.name.empty())
    for (Unit& unit : units) unit.model_name = job.model.name;
  if (!job.cross.model.empty()) set_reference(job, units);
  check_names(job.model.manifest, job.output, units);
  return units;
}

void set_token_digests(std::vector<Unit>& units, const std::string& tokens_sha256,
                       const std::string& cut_digest) {
  for (Unit& unit : units) {
    unit.tokens_sha256 = tokens_sha256;
    unit.tokens_cut_digest = cut_digest;
  }
}

std::string unit_identity(const Job& job, const Unit& unit) {
  Job compared = job;
  if (unit.kind == Unit::Kind::grams) {  // the Gram files decide these, whether the job gives them or not
    compared.predict.capture = Job::Predict().capture;
    compared.predict.precision = Job::Predict().precision;
  }
  std::istringstream lines(to_ini(compared));
  std::string line, section,
      identity =
          "unit.path = " + unit.path + "\nunit.init = " + (unit.random ? "random" : "pretrained") + "\n";
  while (std::getline(lines, line)) {
    if (!line.empty() && line.front() == '[') section = line.substr(1, line.find(']') - 1) + ".";
    const auto equals = line.find('=');
    if (equals == std::string::npos || line.front() == '#') continue;
    const std::string key = section + line.substr(0, line.find_last_not_of(' ', equals - 1) + 1);
    if (changes_numbers(key) && !says_nothing(section + line)) identity += section + line + "\n";
  }
  return identity;
}

}  // namespace headspan
