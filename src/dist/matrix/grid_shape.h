// The shape of a process grid, without the grid.
#pragma once

#include <cstdint>
#include <string>

namespace headspan {

constexpr std::int64_t kMaxRanks = std::int64_t{1} << 20;  ///< for which a run can be planned

/// Rows and columns of processes.
struct GridShape {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
};

/// Returns "2x3" for 2 rows and 3 columns.
inline std::string to_string(const GridShape& shape) {
  return std::to_string(shape.rows) + "x" + std::to_string(shape.columns);
}

/// Returns the grid of `ranks` processes with rows <= columns that is closest to a square.
inline GridShape squarest_grid(std::int64_t ranks) {
  std::int64_t rows = 1;
  for (std::int64_t r = 1; r * r <= ranks; ++r)
    if (ranks % r == 0) rows = r;
  return {rows, ranks / rows};
}

}  // namespace headspan
