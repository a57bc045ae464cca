// A table of texts for people to read: columns under titles, titles under group titles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headspan {

struct TextColumn {
  std::string group;               ///< printed once above neighbouring columns of the same group
  std::string title;               ///< of right-aligned cells; without a title cells are left-aligned
  std::vector<std::string> cells;  ///< [rows], the same number in all columns
};

/// Returns complete lines. A column whose cells are all empty is left out.
std::string format_table(const std::vector<TextColumn>& columns);

/// Returns three decimals: "0.123", "-1.500"; or "nan".
std::string format_share(double value);

/// Returns three digits: "5.43", "12.3", "123"; or "nan".
std::string format_figure(double value);

/// Returns three digits and a unit: 0, 512, 41.0K, 2.00T.
std::string format_count(std::int64_t value);

}  // namespace headspan
