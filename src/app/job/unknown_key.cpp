#include "app/job/unknown_key.h"

#include <algorithm>
#include <vector>

#include "app/job/job_options.h"
#include "base/error.h"
#include "base/printable.h"

namespace headspan {
namespace {

/// Returns the fewest insertions, deletions and replacements that turn a into b (Levenshtein).
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

/// Returns the key nearest to `name`, at most `limit` edits away; empty if there is none.
std::string nearest_key(const std::string& name, std::size_t limit) {
  std::string nearest;
  std::size_t smallest = limit + 1;
  for (const JobOption& option : job_options()) {
    const std::size_t distance = edit_distance(name, option.name);
    if (distance >= smallest) continue;
    smallest = distance;
    nearest = option.name;
  }
  return nearest;
}

/// Returns the texts of the options that match, separated by commas, without consecutive repetitions.
template <class Matches, class Text>
std::string list_options(const Matches& matches, const Text& text) {
  std::string list;
  std::string last;
  for (const JobOption& option : job_options()) {
    if (!matches(option) || text(option) == last) continue;
    last = text(option);
    list += (list.empty() ? "" : ", ") + last;
  }
  return list;
}

/// Returns what to write instead of the unknown key `name`.
std::string advice(const std::string& name) {
  const std::size_t dot = name.find('.');
  const std::string section = dot == std::string::npos ? "" : name.substr(0, dot);
  const std::string key = dot == std::string::npos ? name : name.substr(dot + 1);
  const auto section_name = [](const JobOption& option) { return "[" + option.section() + "]"; };

  const std::string slip = nearest_key(name, 1);
  if (!slip.empty()) return "did you mean " + slip + "?";
  const std::string homes = list_options([&](const JobOption& o) { return o.key() == key; }, section_name);
  if (!homes.empty()) return key + " is a key of " + homes;
  const std::string nearest = nearest_key(name, 2);
  if (!nearest.empty()) return "did you mean " + nearest + "?";
  const std::string siblings = list_options([&](const JobOption& o) { return o.section() == section; },
                                            [](const JobOption& o) { return o.key(); });
  if (!siblings.empty()) return "the keys of [" + section + "] are " + siblings;
  return "the sections are " + list_options([](const JobOption&) { return true; }, section_name);
}

}  // namespace

void refuse_unknown_key(const std::string& origin, const std::string& key, const std::string& text) {
  throw InputError(origin, printable(key), printable(text), "is not a key", advice(key));
}

}  // namespace headspan
