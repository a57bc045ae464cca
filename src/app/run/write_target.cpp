#include "app/run/write_target.h"

#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/printable.h"

namespace headspan {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

/// Returns whether `input`, or the file that it links to, has the name of an unfinished file of `target`.
/// Publishing the target would remove it (io/outputs/publish.h).
bool is_unfinished(const fs::path& input, const fs::path& target) {
  std::error_code missing;
  const std::string begin = target.filename().string() + ".tmp.";
  const fs::path file = fs::is_symlink(input, missing) ? fs::canonical(input, missing) : input;
  for (const fs::path& path : {input, file})
    if (path.filename().string().rfind(begin, 0) == 0 &&
        fs::equivalent(folder_of(path), folder_of(target), missing))
      return true;
  return false;
}

void check_folder(const fs::path& folder) {
  std::error_code missing;
  fs::path existing = fs::absolute(folder.empty() ? "." : folder);
  while (!fs::exists(existing, missing)) existing = existing.parent_path();  // folders below can be created
  if (!fs::is_directory(existing))
    throw Error("cannot make the folder: " + folder.string() + ": " + existing.string() + " is a file");
  if (::faccessat(AT_FDCWD, existing.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    throw_errno("cannot write to the folder", existing.string());
}

}  // namespace

std::vector<std::string> checkpoint_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json" || name == "model.safetensors.index.json" ||
        entry.path().extension() == ".safetensors")
      files.push_back(entry.path().string());
  }
  return files;
}

std::vector<std::string> input_files(const Job& job) {
  std::vector<std::string> files = checkpoint_files(job.model.path);
  for (const std::string& path :
       {job.file, job.model.manifest, job.activations.path, job.evaluate.requests, job.evaluate.generate})
    files.push_back(path);
  std::vector<std::string> published = job.grams.paths;
  const Job::Evaluate& evaluate = job.evaluate;
  const bool is_read = !job.archive.input.empty() || !evaluate.texts.empty() || !evaluate.requests.empty() ||
                       !evaluate.generate.empty();  // else the codec is written
  const std::string codec = is_read ? job.archive.codec : "";
  for (const std::string& path : {job.evaluate.plan, job.cross.grams, job.archive.input, codec})
    if (!path.empty()) published.push_back(path);
  for (const std::string& path : published)
    for (const char* suffix : {"", ".done"}) files.push_back(path + suffix);
  std::vector<std::string> tokens = job.evaluate.texts;
  tokens.push_back(job.tokens.path);
  for (const std::string& path : tokens)
    for (const char* extension : {".json", ".idx"}) {
      files.push_back(path);
      files.push_back(fs::path(path).replace_extension(extension).string());
    }
  return files;
}

bool have_one_name(const std::string& a, const std::string& b) {
  std::error_code failed;
  const auto canonical = [&](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(path, failed), failed);
  };
  const fs::path name = canonical(a);  // empty where it cannot be found out
  return !a.empty() && !name.empty() && name == canonical(b);
}

void check_target(const WriteTarget& target, const std::vector<std::string>& inputs) {
  std::error_code missing;
  const auto refuse = [&](const std::string& wrong) {
    throw InputError("", target.key, printable(target.value), wrong, "choose another place");
  };
  for (const std::string& input : inputs) {
    if (fs::equivalent(input, target.path, missing))
      refuse("would replace " + printable(input) + ", which the job reads");
    if (have_one_name(input, target.path))  // a token file's sidecar, say
      refuse("would become " + printable(input) + ", which the job reads if it is there");
    if (is_unfinished(input, target.path))
      refuse("would remove " + printable(input) + ", which the job reads, as unfinished");
  }
  if (fs::exists(target.path, missing) && !fs::is_regular_file(target.path, missing))
    refuse("would replace " + printable(target.path) + ", which is no regular file");
  check_folder(fs::path(target.path).parent_path());
}

}  // namespace headspan
