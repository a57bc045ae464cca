#include "app/study/unit_list.h"

#include <set>

#include "app/run/sample.h"
#include "app/study/published.h"
#include "base/error.h"
#include "base/printable.h"
#include "io/inputs/manifest.h"

namespace headspan {
namespace {

/// Throws InputError for a text that scripts could not read back unchanged.
void check_listable(const std::string& key, const std::string& text) {
  if (escaped(text) != text)
    throw InputError("", key, printable(text), "cannot be listed",
                     "text of UTF-8 without control characters is expected");
}

std::string manifest_line(const Job& job, const std::vector<Unit>& units) {
  std::set<std::int64_t> rows;
  for (const Unit& unit : units) rows.insert(unit.row);
  const bool all = rows.size() == read_manifest(job.model.manifest).size();
  return "manifest\t" + job.model.manifest + (all ? "\tall\n" : "\tsome\n");
}

std::string unit_line(const Job& job, const Unit& unit) {
  std::vector<std::string> notices;  // the study logs them
  return "unit\t" + (unit.row < 0 ? "-" : std::to_string(unit.row)) + "\t" + unit.name + "\t" +
         (is_published(job, unit, notices) ? "finished" : "open") + "\t" +
         unit.result_path(job.output.directory) + "\n";
}

}  // namespace

std::string format_units(const Job& job) {
  std::vector<Unit> units = list_units(job);
  check_listable("output.directory", job.output.directory);
  check_listable("model.manifest", job.model.manifest);
  for (const Unit& unit : units) check_listable("the result's path", unit.result_path(job.output.directory));
  if (!job.tokens.path.empty()) set_token_digests(units, hash_tokens(job.tokens), hash_cut(job.tokens));
  std::string text = "directory\t" + job.output.directory + "\n";
  if (!job.model.manifest.empty()) text += manifest_line(job, units);
  for (const Unit& unit : units) text += unit_line(job, unit);
  return text;
}

}  // namespace headspan
