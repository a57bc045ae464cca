#include "app/inspect/text_table.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace headspan {
namespace {

std::string format(const char* form, double value) {
  std::array<char, 400> text{};  // room for the largest double
  std::snprintf(text.data(), text.size(), form, value);
  return text.data();
}

std::string align(const std::string& text, std::size_t width, bool left) {
  const std::string blanks(width - std::min(width, text.size()), ' ');
  return left ? text + blanks : blanks + text;
}

/// A column and its position in the line.
struct PlacedColumn {
  const TextColumn* column;
  std::size_t gap;  // blanks before it: two before a new group
  std::size_t width;
};

std::vector<PlacedColumn> lay_out(const std::vector<TextColumn>& columns) {
  std::vector<PlacedColumn> placed;
  for (const TextColumn& column : columns) {
    std::size_t width = 0;
    for (const std::string& cell : column.cells) width = std::max(width, cell.size());
    if (width == 0) continue;
    const bool begins_group = !placed.empty() && column.group != placed.back().column->group;
    placed.push_back({&column, begins_group ? std::size_t{2} : std::size_t{placed.empty() ? 0u : 1u},
                      std::max(width, column.title.size())});
  }
  return placed;
}

/// Returns the titles of the groups, each with a rule as wide as its columns.
std::string group_line(const std::vector<PlacedColumn>& placed) {
  std::string line;
  for (std::size_t i = 0; i < placed.size();) {
    const std::string& group = placed[i].column->group;
    std::size_t width = placed[i].width, next = i + 1;
    for (; next < placed.size() && placed[next].column->group == group; ++next)
      width += placed[next].gap + placed[next].width;
    std::string title = group;
    if (!group.empty() && group.size() + 1 < width) title += " " + std::string(width - group.size() - 1, '-');
    title.resize(std::max(width, title.size()), ' ');
    line += std::string(placed[i].gap, ' ') + title;
    i = next;
  }
  return line.find_first_not_of(' ') == std::string::npos ? "" : line + "\n";
}

}  // namespace

std::string format_table(const std::vector<TextColumn>& columns) {
  const std::vector<PlacedColumn> placed = lay_out(columns);
  if (placed.empty()) return "";
  std::string text = group_line(placed);
  for (const PlacedColumn& c : placed)
    text += std::string(c.gap, ' ') + align(c.column->title, c.width, false);
  text += "\n";
  for (std::size_t row = 0; row < placed.front().column->cells.size(); ++row) {
    for (const PlacedColumn& c : placed)
      text += std::string(c.gap, ' ') + align(c.column->cells[row], c.width, c.column->title.empty());
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

std::string format_share(double value) { return value != value ? "nan" : format("%.3f", value); }

std::string format_figure(double value) {
  if (value != value) return "nan";
  return format(value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f", value);
}

std::string format_count(std::int64_t value) {
  constexpr std::array<const char*, 5> kUnits{"", "K", "M", "G", "T"};
  auto scaled = static_cast<double>(value);
  std::size_t unit = 0;
  for (; scaled >= 999.5 && unit + 1 < kUnits.size(); ++unit) scaled /= 1000;
  return unit == 0 ? std::to_string(value) : format_figure(scaled) + kUnits[unit];
}

}  // namespace headspan
