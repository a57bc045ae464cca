// Cases of sums of outer products on a staircase: triangles, rectangles, edges, and columns that are not
// stored side by side. The values are whole numbers, whose sums are exact.
#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "stats/gram/staircase_product.h"

namespace headspan {

constexpr double kUntouched = 0.5;

/// [count, tokens] with gaps of NaN, which no sum may touch. Whole numbers, whose sums are exact.
template <class T>
struct Operand {
  std::int64_t leading;
  std::vector<T> values;

  Operand(std::int64_t count, std::int64_t tokens, unsigned seed)
      : leading(count + 3),
        values(static_cast<std::size_t>(leading * tokens), std::numeric_limits<T>::quiet_NaN()) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> number(-9, 9);
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t i = 0; i < count; ++i)
        values[static_cast<std::size_t>(i + t * leading)] = static_cast<T>(number(random));
  }
  double at(std::int64_t i, std::int64_t t) const {
    return values[static_cast<std::size_t>(i + t * leading)];
  }
};

using FirstRows = std::vector<std::int64_t>;

inline FirstRows steps(std::int64_t columns, std::int64_t width, std::int64_t height) {
  FirstRows rows;
  for (std::int64_t j = 0; j < columns; ++j) rows.push_back(j / width * height);
  return rows;
}

struct Case {
  std::int64_t rows, columns, tokens;
  FirstRows first_row;
  std::int64_t block = 1, distance = 1;  // of the columns, as PanelOperands has it

  /// Returns where a column is stored.
  std::int64_t offset(std::int64_t column) const { return column / block * distance + column % block; }
};

inline std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::int64_t n : {1, 7, 8, 9, 23, 24, 25, 64, 65, 240, 241})
    for (const std::int64_t tokens : {1, 255, 256, 257}) {
      all.push_back({n, n, tokens, steps(n, 1, 1)});          // a triangle
      all.push_back({n, 2 * n, tokens, steps(2 * n, 3, 5)});  // columns at the end with no row
    }
  all.push_back({100, 30, 700, FirstRows(30, 0)});
  all.push_back({100, 30, 20, FirstRows(30, 100)});  // nothing
  all.push_back({0, 5, 20, FirstRows(5, 0)});
  all.push_back({5, 0, 20, {}});
  all.push_back({5, 5, 0, FirstRows(5, 0)});
  all.push_back({300, 2100, 3, steps(2100, 50, 6)});  // several panels of columns
  all.push_back({2100, 2100, 2, steps(2100, 1, 1)});
  for (const std::int64_t block : {1, 5, 8, 12, 64, 100})
    all.push_back({90, 150, 300, steps(150, 2, 1), block, 3 * block});
  return all;
}

/// What is subtracted from an operand: whole numbers too.
inline std::vector<double> origin_of(std::int64_t count, int seed) {
  std::vector<double> origin;
  for (std::int64_t i = 0; i < count; ++i) origin.push_back(static_cast<double>((i * seed) % 7 - 2));
  return origin;
}

/// Calls add(panel, origin, staircase) for a case and returns what it has written. T: the type of the
/// activations.
template <class T, class Add>
std::vector<double> written_by(const Case& c, const Add& add) {
  const Operand<T> rows(c.rows, c.tokens, 1), columns(c.offset(c.columns), c.tokens, 2);
  const std::vector<double> row_origin = origin_of(c.rows, 3), column_origin = origin_of(c.columns, 5);
  const std::int64_t leading = c.rows + 2;
  std::vector<double> result(static_cast<std::size_t>(leading * c.columns), kUntouched);
  add(PanelOperands<T>{rows.values.data(), columns.values.data(), rows.leading, columns.leading, c.tokens,
                       c.block, c.distance},
      PanelOrigin{row_origin.data(), column_origin.data()},
      Staircase{result.data(), leading, c.rows, c.columns, c.first_row.data()});
  return result;
}

inline std::vector<double> expected(const Case& c) {
  const Operand<double> rows(c.rows, c.tokens, 1), columns(c.offset(c.columns), c.tokens, 2);
  const std::vector<double> row_origin = origin_of(c.rows, 3), column_origin = origin_of(c.columns, 5);
  const std::int64_t leading = c.rows + 2;
  std::vector<double> result(static_cast<std::size_t>(leading * c.columns), kUntouched);
  for (std::int64_t j = 0; j < c.columns; ++j)
    for (std::int64_t i = c.first_row[static_cast<std::size_t>(j)]; i < c.rows; ++i)
      for (std::int64_t t = 0; t < c.tokens; ++t)
        result[static_cast<std::size_t>(i + j * leading)] +=
            (rows.at(i, t) - row_origin[static_cast<std::size_t>(i)]) *
            (columns.at(c.offset(j), t) - column_origin[static_cast<std::size_t>(j)]);
  return result;
}

}  // namespace headspan
