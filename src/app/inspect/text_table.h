// A table of texts for people to read: columns under titles, titles under group titles. Knows nothing of
// what it shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headspan {

struct TextColumn {
  std::string group;               ///< stands once over neighbours of the same group
  std::string title;               ///< its cells are right-aligned; left-aligned without a title
  std::vector<std::string> cells;  ///< [rows], as many as every other column has
};

/// Lines, each ended; a column all of whose cells are empty is left out.
std::string format_table(const std::vector<TextColumn>& columns);

/// "0.123" or "-1.500"; "nan".
std::string format_share(double value);

/// Three digits: "5.43", "12.3", "123"; "nan".
std::string format_figure(double value);

/// Three digits and a unit: 0, 512, 41.0K, 2.00T.
std::string format_count(std::int64_t value);

}  // namespace headspan
