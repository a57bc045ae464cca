#include "io/inputs/manifest.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file_name.h"
#include "base/input_file.h"
#include "base/printable.h"

namespace headspan {
namespace fs = std::filesystem;
namespace {

constexpr const char* kRequired[] = {"name", "step", "tokens", "path"};
constexpr const char* kOptional[] = {"repository", "revision",        "commit", "bytes",
                                     "sha256",     "validation_loss", "seed"};

constexpr std::string_view kRow = "row:";  // marks an index, which could also be the name of a row

bool begins_with_row(const std::string& text) { return text.rfind(kRow, 0) == 0; }

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  for (std::size_t begin = 0;;) {
    const std::size_t tab = line.find('\t', begin);
    fields.push_back(line.substr(begin, tab - begin));
    if (tab == std::string::npos) return fields;
    begin = tab + 1;
  }
}

/// Parses the whole of `text` as a number, whatever the locale.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Reads one manifest, line by line.
class ManifestReader {
 public:
  explicit ManifestReader(const std::string& path) : path_(path), folder_(fs::path(path).parent_path()) {}

  std::vector<ManifestRow> read() {
    std::istringstream file(read_small_file(path_));
    std::vector<ManifestRow> rows;
    std::set<std::string> names;
    for (std::string text; std::getline(file, text);) {
      ++line_;
      if (!text.empty() && text.back() == '\r') text.pop_back();
      if (text.empty()) continue;
      if (columns_.empty()) {
        read_header(text);
        continue;
      }
      rows.push_back(read_row(text));
      rows.back().number = static_cast<std::int64_t>(rows.size()) - 1;
      if (!names.insert(rows.back().name).second)
        throw error("name", rows.back().name, "is the name of an earlier row too", "names must differ");
    }
    if (rows.empty())
      throw InputError(path_, "", "", "holds no row",
                       "a header line and one line per checkpoint are expected");
    return rows;
  }

 private:
  InputError error(const std::string& field, const std::string& value, const std::string& wrong,
                   const std::string& right) const {
    return InputError(path_, "line " + std::to_string(line_) + (field.empty() ? "" : " " + field),
                      printable(value), wrong, right);
  }

  void read_header(const std::string& text) {
    columns_ = split(text);
    std::set<std::string> seen;
    for (const std::string& column : columns_) {
      const auto is = [&](const char* known) { return column == known; };
      if (std::none_of(std::begin(kRequired), std::end(kRequired), is) &&
          std::none_of(std::begin(kOptional), std::end(kOptional), is))
        throw error("column", "'" + column + "'", "is unknown",
                    "tab-separated columns: name step tokens path, and any of repository revision commit "
                    "bytes sha256 validation_loss seed");
      if (!seen.insert(column).second) throw error("column", column, "is given twice", "remove one");
    }
    for (const char* column : kRequired)
      if (seen.count(column) == 0) throw error("column", column, "is missing", "add it");
  }

  /// Sets cells_. Their text must be printable, because it goes into messages, results and names of files.
  void read_cells(const std::string& text) {
    const std::vector<std::string> fields = split(text);
    if (fields.size() != columns_.size())
      throw error("", "", "has " + std::to_string(fields.size()) + " fields",
                  "the header has " + std::to_string(columns_.size()) + ", separated by tabs");
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (escaped(fields[i]) != fields[i])
        throw error(columns_[i], "'" + fields[i] + "'",
                    "holds a control character or a byte that is no UTF-8",
                    "text that shows as it is is expected");
      cells_[columns_[i]] = fields[i];
    }
  }

  std::optional<std::int64_t> count(const std::string& column) {
    const std::string& text = cells_[column];
    if (text.empty()) return std::nullopt;
    const auto number = parse_number<std::int64_t>(text);
    if (!number || *number < 0)
      throw error(column, text, "is not a count", "a non-negative integer is expected");
    return number;
  }

  ManifestRow read_row(const std::string& text) {
    read_cells(text);
    ManifestRow row;
    row.name = cells_["name"];
    check_name(row.name);
    const auto step = count("step");
    if (!step) throw error("step", "''", "is empty", "a non-negative integer is expected");
    row.step = *step;
    row.tokens = count("tokens");
    const std::string& path = cells_["path"];
    if (path.empty()) throw error("path", "''", "is empty", "the folder of the checkpoint is expected");
    row.path = resolve(path);
    row.repository = cells_["repository"];
    check_repository(row.repository);
    row.revision = cells_["revision"];
    row.commit = cells_["commit"];
    row.bytes = count("bytes");
    row.sha256 = cells_["sha256"];
    check_sha256(row.sha256);
    const std::string& loss = cells_["validation_loss"];
    row.validation_loss = parse_number<double>(loss);
    if (!loss.empty() && !(row.validation_loss && std::isfinite(*row.validation_loss)))
      throw error("validation_loss", loss, "is not a number", "a decimal number, or nothing, is expected");
    row.seed = count("seed");
    return row;
  }

  void check_name(const std::string& name) const {
    if (!is_file_name(name))
      throw error("name", "'" + name + "'", "cannot name a result file",
                  std::string(kFileNameRule) + " is expected");
    const bool is_selectable = name.find_first_of(",#") == std::string::npos && name.front() != ' ' &&
                               name.back() != ' ' && name.front() != '-' && name != "all" &&
                               !begins_with_row(name);
    if (!is_selectable)
      throw error("name", "'" + name + "'", "cannot be selected (model.select)",
                  "no comma or #, no blank at the ends, no - or row: at the front, and not all is expected");
  }

  /// Throws InputError unless the repository, with -- in place of /, can name the folder of the results.
  void check_repository(const std::string& repository) const {
    std::string whole;
    bool is_name = repository.empty() || repository.back() != '/';
    std::istringstream parts(repository);
    for (std::string part; std::getline(parts, part, '/'); whole += part + "--")
      is_name = is_name && is_file_name(part);
    if (!is_name || (!whole.empty() && !is_file_name(whole)))
      throw error("repository", "'" + repository + "'", "cannot name the folder of the results",
                  "ORGANISATION/NAME, of at most 160 bytes, is expected");
  }

  void check_sha256(const std::string& digest) const {
    const bool is_digest =
        digest.size() == 64 && digest.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    if (!digest.empty() && !is_digest)
      throw error("sha256", digest, "is not a digest", "64 hexadecimal digits are expected");
  }

  /// Resolves a path of the manifest by the rule of read_manifest.
  std::string resolve(const std::string& path) const {
    std::error_code error;
    const fs::path beside = folder_ / path;  // `path` itself if it is absolute
    return !fs::exists(beside, error) && fs::exists(path, error) ? path : beside.string();
  }

  std::string path_;
  fs::path folder_;
  std::int64_t line_ = 0;
  std::vector<std::string> columns_;
  std::map<std::string, std::string> cells_;  // of the current row, by column
};

/// Returns the first and the last index of "5" or "3-7"; nothing for another text.
std::optional<std::pair<std::int64_t, std::int64_t>> parse_range(std::string_view item) {
  const std::size_t dash = std::min(item.find('-'), item.size());
  const auto first = parse_number<std::int64_t>(item.substr(0, dash));
  const auto last = dash == item.size() ? first : parse_number<std::int64_t>(item.substr(dash + 1));
  if (!first || !last) return std::nullopt;
  return std::pair(*first, *last);
}

/// Returns the first and the last row that an item of model.select names.
std::pair<std::int64_t, std::int64_t> select_range(const std::vector<ManifestRow>& rows,
                                                   const std::string& item) {
  const auto count = static_cast<std::int64_t>(rows.size());
  if (item == "all") return {0, count - 1};
  const auto named =
      std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.name == item; });
  if (named != rows.end()) return {named - rows.begin(), named - rows.begin()};
  const bool is_row = begins_with_row(item);
  const auto range = parse_range(is_row ? std::string_view(item).substr(kRow.size()) : item);
  if (range && range->first <= range->second && range->second < count) return *range;
  throw InputError("", "model.select", printable(item), "is no row of the manifest",
                   "all, names such as " + rows.front().name + ", indices from 0 to " +
                       std::to_string(count - 1) + " or ranges of them such as 0-" +
                       std::to_string(count - 1) + " are expected");
}

}  // namespace

std::vector<ManifestRow> read_manifest(const std::string& path) { return ManifestReader(path).read(); }

std::vector<ManifestRow> select_rows(const std::vector<ManifestRow>& rows,
                                     const std::vector<std::string>& select) {
  HS_ASSERT(!rows.empty());
  if (select.empty())
    throw InputError("", "model.select", "", "is empty", "all, or names or indices of rows, is expected");
  std::vector<ManifestRow> selected;
  std::set<std::int64_t> seen;
  for (const std::string& item : select) {
    const auto [first, last] = select_range(rows, item);
    for (std::int64_t i = first; i <= last; ++i)
      if (seen.insert(i).second) selected.push_back(rows[static_cast<std::size_t>(i)]);
  }
  return selected;
}

}  // namespace headspan
