#include "app/job/unit.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "app/job/job_file.h"
#include "io/inputs/manifest.h"

namespace headspan {
namespace {

namespace fs = std::filesystem;

/// The number behind `word` where that begins a word of `name`; -1 where there is none.
std::int64_t number_behind(const std::string& word, const std::string& name) {
  for (auto at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
    if (at > 0 && name[at - 1] >= 'a' && name[at - 1] <= 'z') continue;  // footstep7
    std::size_t first = at + word.size();
    if (first < name.size() && (name[first] == '-' || name[first] == '_')) ++first;
    const std::size_t digits = std::min(name.find_first_not_of("0123456789", first), name.size()) - first;
    if (digits >= 1 && digits <= 18) return std::stoll(name.substr(first, digits));
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

/// The model of a checkpoint on its own: the folder's name, or that of the folder above where the folder's
/// begins with the name of a training step (step1000, stage1-step1000-tokens5B, checkpoint-1000).
std::string model_of_folder(const std::string& path) {
  const fs::path folder = absolute(path);
  const std::string name = last_part(folder);
  const auto begins = [&](const char* word) { return name.rfind(word, 0) == 0; };
  const bool is_step = step_in(name) >= 0 && (begins("step") || begins("stage") || begins("checkpoint"));
  return is_step || !cached_name(folder).empty() ? model_above(path) : name;
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
  unit.step = row.step;
  unit.training_tokens = row.tokens.value_or(-1);
  unit.validation_loss = row.validation_loss;
  for (const std::string& part : {row.repository, row.revision, row.commit})
    if (!part.empty()) unit.revision += (unit.revision.empty() ? "" : " ") + part;
  return unit;
}

/// One unit for each kind of weights that model.init asks for.
void add_by_init(const Job& job, const Unit& unit, std::vector<Unit>& units) {
  for (const std::string& init : job.model.init) {
    Unit& added = units.emplace_back(unit);
    added.random = init == "random";
    if (!added.random) continue;
    added.validation_loss.reset();
    if (job.model.init.size() > 1) added.name += "-random";
  }
}

/// Two units of one result file would overwrite each other.
void check_names(const Job& job, const std::vector<Unit>& units) {
  std::set<std::string> paths;
  for (const Unit& unit : units)
    if (!paths.insert(unit.result_path(job)).second)
      throw InputError(job.model.manifest, "name", unit.name, "names a row and the random weights of another",
                       "rename the row");
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
    units.push_back(
        unit_of_file(Unit::Kind::grams, job.grams.paths.front(), model_above(job.grams.paths.front())));
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

std::string unit_identity(const Job& job, const Unit& unit) {
  std::istringstream lines(to_ini(job));
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
