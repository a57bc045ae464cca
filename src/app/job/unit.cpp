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

/// The number that begins at `first`, or behind a - or _ there, and ends there; -1 where there is none.
std::int64_t number_at(const std::string& name, std::size_t first) {
  if (first < name.size() && (name[first] == '-' || name[first] == '_')) ++first;
  const std::size_t end = std::min(name.find_first_not_of("0123456789", first), name.size());
  const bool ends = end == name.size() || std::isalpha(static_cast<unsigned char>(name[end])) == 0;  // 2b
  return ends && end > first && end - first <= 18 ? std::stoll(name.substr(first, end - first)) : -1;
}

/// The number behind `word` where that begins a word of `name`; -1 where there is none.
std::int64_t number_behind(const std::string& word, const std::string& name) {
  for (auto at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
    if (at > 0 && name[at - 1] >= 'a' && name[at - 1] <= 'z') continue;  // footstep7
    if (const std::int64_t number = number_at(name, at + word.size()); number >= 0) return number;
  }
  return -1;
}

/// "step1000", "stage1-step1000-tokens5B" and "checkpoint-1000" are step 1000; -1 where no step is named.
std::int64_t step_in(const std::string& name) {
  return std::max(number_behind("step", name), number_behind("checkpoint", name));
}

fs::path absolute(const std::string& path) {
  fs::path full = fs::absolute(path).lexically_normal();
  return full.has_filename() ? full : full.parent_path();
}

std::string last_part(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.empty() ? "model" : name;
}

/// "ORG--NAME" of a folder models--ORG--NAME/snapshots/COMMIT, as in a hub's cache; else empty.
std::string cached_name(const fs::path& folder) {
  const std::string prefix = "models--", name = folder.parent_path().parent_path().filename().string();
  const bool is_cached = folder.parent_path().filename() == "snapshots" && name.rfind(prefix, 0) == 0;
  return is_cached ? name.substr(prefix.size()) : "";
}

/// The model whose checkpoints lie side by side in the folder above, as a manifest's do.
std::string model_above(const std::string& path) {
  const std::string cached = cached_name(absolute(path));
  return cached.empty() ? last_part(absolute(path).parent_path()) : cached;
}

/// Whether a folder is named after a training step: step1000, checkpoint-1000 or stage1-step1000-tokens5B,
/// but not step-by-step-2b.
bool is_step(const std::string& name) {
  const auto leads = [&](const std::string& word) {
    return name.rfind(word, 0) == 0 && number_at(name, word.size()) >= 0;
  };
  return leads("step") || leads("checkpoint") || (leads("stage") && number_behind("step", name) >= 0);
}

/// The model of a checkpoint on its own: the folder's name, or that of the folder above where the folder is
/// named after a training step.
std::string model_of_folder(const std::string& path) {
  const fs::path folder = absolute(path);
  const std::string name = last_part(folder);
  return is_step(name) || !cached_name(folder).empty() ? model_above(path) : name;
}

/// "org/name" as one file name.
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
  unit.validation_loss = row.validation_loss;
  for (const std::string& part : {row.repository, row.revision, row.commit})
    if (!part.empty()) unit.revision += (unit.revision.empty() ? "" : " ") + part;
  return unit;
}

/// One unit for each kind of weights that model.init asks for.
void add_by_init(const Job& job, const Unit& unit, std::vector<Unit>& units) {
  for (const WeightSource source : job.model.init) {
    Unit& added = units.emplace_back(unit);
    added.random = source == WeightSource::random;
    if (!added.random) continue;
    added.validation_loss.reset();
    if (job.model.init.size() > 1) added.name += "-random";
  }
}

/// Two units of one file, of a result or of Grams, would overwrite each other.
void check_names(const Job& job, const std::vector<Unit>& units) {
  std::set<std::string> results;
  for (const Unit& unit : units)
    if (!results.insert(unit.result_path(job)).second)
      throw InputError(job.model.manifest, "name", unit.name, "names a row and the random weights of another",
                       "rename the row");
  for (const Unit& unit : units)
    if (job.output.save_gram && results.count(unit.gram_path(job)) > 0)
      throw InputError(job.model.manifest, "name", unit.name + ".gram",
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

/// Of the tokens behind the Grams, with commas between those of several files.
std::string tokens_behind(const Words& paths) {
  std::string all;
  std::error_code missing;
  for (const std::string& path : paths) {
    if (!fs::exists(path, missing)) continue;
    const auto one = H5File::open(path).read_attribute<std::string>("/", "tokens_sha256");
    if (one && !one->empty()) all += (all.empty() ? "" : ",") + *one;
  }
  return all;
}

/// What Grams say of their model and tokens stands at their root, as at that of a result; of the model, the
/// first tell. Those that are gone say nothing: a result of theirs may be there.
Unit unit_of_grams(const Job& job) {
  const std::string& first = job.grams.paths.front();
  Unit unit = unit_of_file(Unit::Kind::grams, first, model_above(first));
  unit.tokens_sha256 = tokens_behind(job.grams.paths);
  std::error_code missing;
  if (!fs::exists(first, missing)) return unit;
  const H5File file = H5File::open(first);
  const auto name = file.read_attribute<std::string>("/", "model_name");
  if (name && job.model.name.empty() && !is_file_name(*name))
    throw InputError(first, "model_name", printable(*name), "cannot name the folder of the results",
                     "give model.name");
  unit.model_name = name.value_or(unit.model_name);
  unit.step = file.read_attribute<std::int64_t>("/", "step").value_or(unit.step);
  unit.training_tokens = file.read_attribute<std::int64_t>("/", "training_tokens").value_or(-1);
  if (const auto init = file.read_attribute<std::string>("/", "init"))
    unit.random = value_of(weight_source_words(), *init) == WeightSource::random;
  unit.validation_loss = file.read_attribute<double>("/", "validation_loss");
  return unit;
}

/// Keys that say where and how a job runs, not what its numbers mean.
bool changes_numbers(const std::string& key) {
  static const std::vector<std::string> kNot{"model.path", "model.manifest", "model.select", "model.init",
                                             "model.name"};
  return key.rfind("run.", 0) != 0 && key.rfind("output.", 0) != 0 &&
         std::find(kNot.begin(), kNot.end(), key) == kNot.end();
}

}  // namespace

std::string Unit::result_path(const Job& job) const {
  return job.output.directory + "/" + model_name + "/" + name + ".h5";
}

std::string Unit::gram_path(const Job& job) const {
  return job.output.directory + "/" + model_name + "/" + name + ".gram.h5";
}

std::vector<Unit> list_units(const Job& job) {
  std::vector<Unit> units;
  if (!job.activations.path.empty())
    units.push_back(unit_of_file(Unit::Kind::activations, job.activations.path, "activations"));
  else if (!job.grams.paths.empty())
    units.push_back(unit_of_grams(job));
  else if (!job.model.path.empty())
    add_by_init(job, unit_of_path(job.model.path), units);
  else
    for (const ManifestRow& row : select_rows(read_manifest(job.model.manifest), job.model.select))
      add_by_init(job, unit_of_row(row), units);
  if (!job.model.name.empty())
    for (Unit& unit : units) unit.model_name = job.model.name;
  check_names(job, units);
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
  Job own = job;
  if (unit.kind == Unit::Kind::grams) {
    // These are as the Grams have them, whether the job gives them or not.
    own.predict.capture = Job::Predict().capture;
    own.predict.precision = Job::Predict().precision;
  }
  std::istringstream lines(to_ini(own));
  std::string line, section,
      identity =
          "unit.path = " + unit.path + "\nunit.init = " + (unit.random ? "random" : "pretrained") + "\n";
  while (std::getline(lines, line)) {
    if (!line.empty() && line.front() == '[') section = line.substr(1, line.find(']') - 1) + ".";
    const auto equals = line.find('=');
    if (equals == std::string::npos || line.front() == '#') continue;
    const std::string key = section + line.substr(0, line.find_last_not_of(' ', equals - 1) + 1);
    if (changes_numbers(key)) identity += section + line + "\n";
  }
  return identity;
}

}  // namespace headspan
