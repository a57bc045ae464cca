#include "io/inputs/manifest.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
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
constexpr const char* kOptional[] = {"repository", "revision", "commit",
                                     "bytes",      "sha256",   "validation_loss"};

constexpr std::string_view kRow = "row:";  // before an index that is not to be taken for a name

bool begins_with_row(const std::string& text) { return text.rfind(kRow, 0) == 0; }

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  std::size_t begin = 0;
  for (std::size_t tab = line.find('\t'); tab != std::string::npos; tab = line.find('\t', begin)) {
    fields.push_back(line.substr(begin, tab - begin));
    begin = tab + 1;
  }
  fields.push_back(line.substr(begin));
  return fields;
}

/// All of `text` as a number, in a spelling that does not depend on the locale.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// One line of the file with the header that explains it.
class Line {
 public:
  Line(const std::string& file, std::int64_t number, std::vector<std::string> fields)
      : file_(file), number_(number), fields_(std::move(fields)) {}

  const std::vector<std::string>& fields() const { return fields_; }

  InputError error(const std::string& field, const std::string& value, const std::string& wrong,
                   const std::string& right) const {
    return InputError(file_, "line " + std::to_string(number_) + (field.empty() ? "" : " " + field),
                      printable(value), wrong, right);
  }

  /// The cell of a column; empty where the file has no such column.
  const std::string& cell(const Line& header, const std::string& column) const {
    static const std::string kNone;
    const auto& columns = header.fields_;
    const auto found = std::find(columns.begin(), columns.end(), column);
    return found == columns.end() ? kNone : fields_[static_cast<std::size_t>(found - columns.begin())];
  }

  std::optional<std::int64_t> count(const Line& header, const std::string& column) const {
    const std::string& text = cell(header, column);
    if (text.empty()) return std::nullopt;
    const auto number = parse_number<std::int64_t>(text);
    if (!number || *number < 0)
      throw error(column, text, "is not a count", "a non-negative integer is expected");
    return number;
  }

 private:
  const std::string& file_;
  std::int64_t number_;
  std::vector<std::string> fields_;
};

void check_header(const Line& header) {
  std::set<std::string> seen;
  for (const std::string& column : header.fields()) {
    const auto is = [&](const char* known) { return column == known; };
    if (std::none_of(std::begin(kRequired), std::end(kRequired), is) &&
        std::none_of(std::begin(kOptional), std::end(kOptional), is))
      throw header.error(
          "column", "'" + column + "'", "is unknown",
          "tab-separated columns: name step tokens path, and any of repository revision commit bytes "
          "sha256 validation_loss");
    if (!seen.insert(column).second) throw header.error("column", column, "is given twice", "remove one");
  }
  for (const char* column : kRequired)
    if (seen.count(column) == 0) throw header.error("column", column, "is missing", "add it");
}

/// Text of a manifest goes into messages, results and names of files.
void check_text(const Line& header, const Line& line) {
  for (const std::string& column : header.fields())
    if (const std::string& text = line.cell(header, column); escaped(text) != text)
      throw line.error(column, "'" + text + "'", "holds a control character or a byte that is no UTF-8",
                       "text that shows as it is is expected");
}

void check_name(const Line& line, const std::string& name) {
  if (!is_file_name(name))
    throw line.error("name", "'" + name + "'", "cannot name a result file",
                     std::string(kFileNameRule) + " is expected");
  const bool is_selectable = name.find_first_of(",#") == std::string::npos && name.front() != ' ' &&
                             name.back() != ' ' && name.front() != '-' && name != "all" &&
                             !begins_with_row(name);
  if (!is_selectable)
    throw line.error(
        "name", "'" + name + "'", "cannot be selected (model.select)",
        "no comma or #, no blank at the ends, no - or row: at the front, and not all is expected");
}

/// The repository names the folder of the results, with -- for each /.
void check_repository(const Line& line, const std::string& repository) {
  std::string whole;
  bool is_name = repository.empty() || repository.back() != '/';
  std::istringstream parts(repository);
  for (std::string part; std::getline(parts, part, '/'); whole += part + "--")
    is_name = is_name && is_file_name(part);
  if (!is_name || (!whole.empty() && !is_file_name(whole)))
    throw line.error("repository", "'" + repository + "'", "cannot name the folder of the results",
                     "ORGANISATION/NAME, of at most 160 bytes, is expected");
}

void check_sha256(const Line& line, const std::string& digest) {
  const bool is_digest =
      digest.size() == 64 && digest.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
  if (!digest.empty() && !is_digest)
    throw line.error("sha256", digest, "is not a digest", "64 hexadecimal digits are expected");
}

/// Where a path of the manifest leads; see read_manifest.
std::string resolve(const fs::path& folder, const std::string& path) {
  std::error_code error;
  const fs::path beside = folder / path;  // `path` itself where it is absolute
  return !fs::exists(beside, error) && fs::exists(path, error) ? path : beside.string();
}

ManifestRow parse_row(const Line& header, const Line& line, const fs::path& folder) {
  if (line.fields().size() != header.fields().size())
    throw line.error("", "", "has " + std::to_string(line.fields().size()) + " fields",
                     "the header has " + std::to_string(header.fields().size()) + ", separated by tabs");
  check_text(header, line);
  ManifestRow row;
  row.name = line.cell(header, "name");
  check_name(line, row.name);
  const auto step = line.count(header, "step");
  if (!step) throw line.error("step", "''", "is empty", "a non-negative integer is expected");
  row.step = *step;
  row.tokens = line.count(header, "tokens");
  const std::string& path = line.cell(header, "path");
  if (path.empty()) throw line.error("path", "''", "is empty", "the folder of the checkpoint is expected");
  row.path = resolve(folder, path);
  row.repository = line.cell(header, "repository");
  check_repository(line, row.repository);
  row.revision = line.cell(header, "revision");
  row.commit = line.cell(header, "commit");
  row.bytes = line.count(header, "bytes");
  row.sha256 = line.cell(header, "sha256");
  check_sha256(line, row.sha256);
  const std::string& loss = line.cell(header, "validation_loss");
  row.validation_loss = parse_number<double>(loss);
  if (!loss.empty() && !(row.validation_loss && std::isfinite(*row.validation_loss)))
    throw line.error("validation_loss", loss, "is not a number", "a decimal number, or nothing, is expected");
  return row;
}

/// The bounds of "5" or "3-7".
std::optional<std::pair<std::int64_t, std::int64_t>> parse_range(std::string_view item) {
  const std::size_t dash = std::min(item.find('-'), item.size());
  const auto first = parse_number<std::int64_t>(item.substr(0, dash));
  const auto last = dash == item.size() ? first : parse_number<std::int64_t>(item.substr(dash + 1));
  if (!first || !last) return std::nullopt;
  return std::pair(*first, *last);
}

/// Bounds of the rows that one item of model.select means.
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

std::vector<ManifestRow> read_manifest(const std::string& path) {
  std::istringstream file(read_small_file(path));
  const fs::path folder = fs::path(path).parent_path();
  std::optional<Line> header;
  std::vector<ManifestRow> rows;
  std::set<std::string> names;
  std::int64_t number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    if (!text.empty() && text.back() == '\r') text.pop_back();
    if (text.empty()) continue;
    const Line line(path, number, split(text));
    if (!header) {
      header.emplace(line);
      check_header(*header);
      continue;
    }
    rows.push_back(parse_row(*header, line, folder));
    rows.back().number = static_cast<std::int64_t>(rows.size()) - 1;
    if (!names.insert(rows.back().name).second)
      throw line.error("name", rows.back().name, "is the name of an earlier row too", "names must differ");
  }
  if (rows.empty())
    throw InputError(path, "", "", "holds no row", "a header line and one line per checkpoint are expected");
  return rows;
}

std::vector<ManifestRow> select_rows(const std::vector<ManifestRow>& rows,
                                     const std::vector<std::string>& select) {
  HS_ASSERT(!rows.empty());
  if (select.empty())
    throw InputError("", "model.select", "", "is empty", "all, or names or indices of rows, is expected");
  std::vector<ManifestRow> selected;
  std::set<std::int64_t> taken;
  for (const std::string& item : select) {
    const auto [first, last] = select_range(rows, item);
    for (std::int64_t i = first; i <= last; ++i)
      if (taken.insert(i).second) selected.push_back(rows[static_cast<std::size_t>(i)]);
  }
  return selected;
}

}  // namespace headspan
