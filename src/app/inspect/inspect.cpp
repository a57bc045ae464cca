#include "app/inspect/inspect.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>

#include "app/inspect/describe_inputs.h"
#include "app/inspect/describe_outputs.h"
#include "app/inspect/result_json.h"
#include "app/inspect/result_table.h"
#include "base/input_file.h"
#include "base/log.h"
#include "base/printable.h"
#include "dist/comm/agreement.h"
#include "io/archive/archive_file.h"
#include "io/hdf5/h5_file.h"
#include "io/outputs/publish.h"

namespace headspan {
namespace {

namespace fs = std::filesystem;

bool ends_in(const std::string& path, const char* extension) {
  return fs::path(path).extension() == extension;
}

bool is_checkpoint(const std::string& path) { return fs::exists(path + "/config.json"); }

bool is_tokens(const std::string& path) {
  return ends_in(path, ".bin") || ends_in(path, ".npy") ||
         (!ends_in(path, ".json") && fs::exists(fs::path(path).replace_extension(".json")));
}

bool is_manifest(const std::string& path) { return ends_in(path, ".tsv"); }

bool is_job(const std::string& path) { return ends_in(path, ".ini"); }

bool is_hdf5(const std::string& path) {
  silence_h5();
  return fs::is_regular_file(path) && H5Fis_hdf5(path.c_str()) > 0;
}

bool holds(const std::string& path, const std::vector<std::string>& any_of) {
  if (!is_hdf5(path)) return false;
  const H5File file = H5File::open(path);
  return std::any_of(any_of.begin(), any_of.end(), [&](const auto& name) { return file.has(name); });
}

bool is_activations(const std::string& path) { return holds(path, {"activations"}); }

bool is_gram(const std::string& path) { return holds(path, {"k/fit", "q/fit", "v/fit", "z/fit"}); }

bool is_plan(const std::string& path) {
  return is_hdf5(path) && H5File::open(path).read_attribute<std::string>("/", "algorithm").has_value();
}

bool is_codec(const std::string& path) {
  return is_hdf5(path) && H5File::open(path).read_attribute<std::string>("/", "headspan_codec").has_value();
}

bool is_archive(const std::string& path) {
  return fs::is_regular_file(path) && ArchiveReader::is_archive(path);
}

bool is_result(const std::string& path) {
  return is_hdf5(path) && !is_gram(path) && !is_plan(path) &&
         H5File::open(path).read_attribute<std::string>("/", "headspan_schema").has_value();
}

struct Kind {
  const char* name;
  bool (*is)(const std::string& path);
  Description (*describe)(const std::string& path);
};

constexpr std::array<Kind, 9> kKinds{{
    {"a checkpoint folder (holds config.json)", is_checkpoint, describe_checkpoint},
    {"a manifest (.tsv)", is_manifest, describe_manifest},
    {"a job file (.ini)", is_job, describe_job},
    {"activations (HDF5)", is_activations, describe_activations},
    {"Grams (HDF5)", is_gram, describe_gram},
    {"a compression plan (HDF5)", is_plan, describe_plan},
    {"a codec (HDF5)", is_codec, describe_codec},
    {"an archive of keys and values", is_archive, describe_archive},
    {"a token file (.bin, .npy, or any with a sidecar .json)", is_tokens, describe_tokens},
}};

Description describe(const std::string& path) {
  for (const Kind& kind : kKinds)
    if (kind.is(path)) return kind.describe(path);
  if (!fs::exists(path)) throw InputError(path, "", "", "does not exist", "name a file or folder");
  std::string known = "a result or a folder of results (HDF5)";
  for (const Kind& kind : kKinds) known += std::string(", ") + kind.name;
  throw InputError(path, "", "", "is nothing that headspan knows", "known: " + known);
}

/// Returns whether a file in a folder may be a result. An unreadable file may be one: inspecting it reports
/// the error.
bool may_be_result(const std::string& path) {
  try {
    return ends_in(path, ".h5") && is_result(path);
  } catch (const InputError&) {
    return true;
  }
}

/// Returns the results in and below a folder, sorted by path; the path itself if there are none.
std::vector<std::string> expand(const std::string& path) {
  std::vector<std::string> results;
  if (fs::is_directory(path) && !is_checkpoint(path))
    for (const auto& entry : fs::recursive_directory_iterator(path))
      if (may_be_result(entry.path())) results.push_back(entry.path());
  std::sort(results.begin(), results.end());
  return results.empty() ? std::vector<std::string>{path} : results;
}

class Inspection {
 public:
  Inspection(bool json, const Log& log) : json_(json), log_(log) {}

  int run(const std::vector<std::string>& files) {
    for (const std::string& path : files)
      guarded(path, [&] {
        for (const std::string& file : expand(path)) guarded(file, [&] { inspect_file(file); });
      });
    if (!results_.empty() && files.size() == 1 && fs::is_directory(files[0]))
      log_.next("headspan-report report " + shell_word(files[0]));
    if (json_)
      std::printf("%s\n", all_.dump(1, ' ', false, Values::error_handler_t::replace).c_str());
    else if (!results_.empty())
      print(format_results(std::move(results_)));
    return code_;
  }

 private:
  void inspect_file(const std::string& path) {
    if (fs::is_regular_file(path)) InputFile{path};  // throws if it cannot be read
    const bool done = check_done(path), result = is_result(path);
    if ((result || is_gram(path)) && !done)
      log_.notice(path + " has no .done beside it: " +
                  (result ? "a study would compute it anew" : "it is read with a warning"));
    if (!done && is_plan(path))
      log_.notice(path + " has no .done beside it: it is not checked, and evaluate would warn of it");
    if (json_)
      all_.push_back(result ? to_json(summarise_result(path)) : to_json(describe(path)));
    else if (result)
      results_.push_back(summarise_result(path));
    else
      print(format(describe(path)));
  }

  /// Runs `step` and reports what is wrong with the file, so that the other files are still inspected.
  template <class Step>
  void guarded(const std::string& path, const Step& step) {
    try {
      return step();
    } catch (const InputError& e) {
      report(e);
    } catch (const fs::filesystem_error& e) {
      report(InputError(path, "", "", e.code().message()));
    }
  }

  void report(const InputError& error) {
    std::fprintf(stderr, "headspan: %s\n", error.what());
    code_ = 2;
  }

  /// Prints a text, after a blank line unless it is the first.
  void print(const std::string& text) {
    std::printf("%s%s", printed_ ? "\n" : "", text.c_str());
    std::fflush(stdout);
    printed_ = true;
  }

  bool json_;
  const Log& log_;
  std::vector<ResultSummary> results_;  // printed as tables, at the end
  Values all_ = Values::array();        // printed as JSON, at the end
  int code_ = 0;
  bool printed_ = false;
};

}  // namespace

int inspect(const std::vector<std::string>& files, bool json, const Comm& world, const Log& log) {
  int code = 0;
  agree(world, [&] {
    if (world.is_root()) code = Inspection(json, log).run(files);
  });
  world.broadcast(&code, 1, 0);
  return code;
}

}  // namespace headspan
