#include "stats/panel_product.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "dist/scalapack.h"

namespace headspan {
namespace {

/// A rectangle of the local array, in elements.
struct Rectangle {
  std::int64_t row, rows, column, columns;
};
using RectangleProduct = std::function<void(const Rectangle&)>;

/// Covers the local tiles on and below the diagonal with rectangles as large as possible: the staircase of
/// the local block columns [first, last), down to local block row `row_end`, is a rectangle and two smaller
/// staircases.
void cover_staircase(const Matrix& gram, std::int64_t first, std::int64_t last, std::int64_t row_end,
                     const RectangleProduct& product) {
  if (first >= last) return;
  const Grid& grid = gram.grid();
  const auto start_row =
      [&](std::int64_t local_column) {  // the first local block row at or below the diagonal
        const std::int64_t column = gram.columns().global_block(grid.column(), local_column);
        return gram.rows().first_local_block_from(grid.row(), column);
      };
  const auto apply = [&](std::int64_t row_begin, std::int64_t column_end) {
    const std::int64_t block = gram.rows().block;
    const std::int64_t row = row_begin * block, column = first * block;
    const std::int64_t rows = std::min(row_end * block, gram.local_rows()) - row;
    const std::int64_t columns = std::min(column_end * block, gram.local_columns()) - column;
    if (rows > 0 && columns > 0) product({row, rows, column, columns});
  };
  if (last - first == 1) return apply(start_row(first), last);
  const std::int64_t middle = (first + last) / 2;
  const std::int64_t below = std::min(start_row(middle), row_end);
  apply(below, middle);
  cover_staircase(gram, first, middle, below, product);
  cover_staircase(gram, middle, last, row_end, product);
}

void cover_lower_tiles(const Matrix& gram, const RectangleProduct& product) {
  cover_staircase(gram, 0, gram.columns().local_blocks(gram.grid().column()),
                  gram.rows().local_blocks(gram.grid().row()), product);
}

float to_bfloat16(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/// What a split value z is made of: hi is its bfloat16, lo = z - hi, which is a bfloat16 itself.
std::vector<float> high_parts(const float* z, std::int64_t count) {
  std::vector<float> high(static_cast<std::size_t>(count));
  std::transform(z, z + count, high.begin(), to_bfloat16);
  return high;
}
std::vector<float> low_parts(const float* z, const std::vector<float>& high) {
  std::vector<float> low(high.size());
  std::transform(z, z + high.size(), high.begin(), low.begin(), [](float x, float hi) { return x - hi; });
  return low;
}

/// One FP32 product: factors a: [rows, tokens] and b: [columns, tokens].
struct Term {
  const float* a;
  const float* b;
};

/// Adds the sum of the terms over one rectangle, block by block: FP32 sums over the panel, then FP64.
void add_terms(Matrix& gram, const std::vector<Term>& terms, const PanelOperands<float>& panel,
               const Rectangle& r, std::vector<float>& block) {
  constexpr std::int64_t kRows = 4096, kColumns = 512;
  const int lda = to_int(std::max<std::int64_t>(1, gram.local_rows()));
  const int ldb = to_int(std::max<std::int64_t>(1, gram.local_columns()));
  const int tokens = to_int(panel.tokens);
  const float one = 1;
  for (std::int64_t column = r.column; column < r.column + r.columns; column += kColumns)
    for (std::int64_t row = r.row; row < r.row + r.rows; row += kRows) {
      const int m = to_int(std::min(kRows, r.row + r.rows - row));
      const int n = to_int(std::min(kColumns, r.column + r.columns - column));
      block.resize(static_cast<std::size_t>(m) * static_cast<std::size_t>(n));
      for (std::size_t k = 0; k < terms.size(); ++k) {
        const float beta = k == 0 ? 0 : 1;
        sgemm_("N", "T", &m, &n, &tokens, &one, terms[k].a + row, &lda, terms[k].b + column, &ldb, &beta,
               block.data(), &m);
      }
#pragma omp parallel for schedule(static)
      for (int j = 0; j < n; ++j) {
        double* out = gram.at(row, column + j);
        const float* in = block.data() + static_cast<std::int64_t>(j) * m;
        for (int i = 0; i < m; ++i) out[i] += static_cast<double>(in[i]);
      }
    }
}

}  // namespace

float round_for_product(double z, Precision precision) {
  const auto x = static_cast<float>(z);
  if (precision == Precision::bfloat16) return to_bfloat16(x);
  if (precision == Precision::split) {
    const float high = to_bfloat16(x);
    return high + to_bfloat16(x - high);
  }
  return x;
}

void add_product(Matrix& gram, const PanelOperands<double>& panel, const std::function<void()>& progress) {
  if (panel.tokens == 0) return;
  const int tokens = to_int(panel.tokens), ldc = to_int(gram.leading());
  const int lda = to_int(std::max<std::int64_t>(1, gram.local_rows()));
  const int ldb = to_int(std::max<std::int64_t>(1, gram.local_columns()));
  const double one = 1;
  if (panel.rows == panel.columns) {
    const int n = to_int(gram.rows().size);
    dsyrk_("L", "N", &n, &tokens, &one, panel.rows, &lda, &one, gram.data(), &ldc);
    return;
  }
  cover_lower_tiles(gram, [&](const Rectangle& r) {
    const int m = to_int(r.rows), n = to_int(r.columns);
    dgemm_("N", "T", &m, &n, &tokens, &one, panel.rows + r.row, &lda, panel.columns + r.column, &ldb, &one,
           gram.at(r.row, r.column), &ldc);
    progress();
  });
}

void add_product(Matrix& gram, const PanelOperands<float>& panel, Precision precision,
                 const std::function<void()>& progress) {
  if (panel.tokens == 0) return;
  std::vector<Term> terms{{panel.rows, panel.columns}};
  std::vector<float> high_rows, low_rows, high_columns, low_columns;
  if (precision == Precision::split) {
    high_rows = high_parts(panel.rows, gram.local_rows() * panel.tokens);
    low_rows = low_parts(panel.rows, high_rows);
    high_columns = high_parts(panel.columns, gram.local_columns() * panel.tokens);
    low_columns = low_parts(panel.columns, high_columns);
    terms = {{high_rows.data(), high_columns.data()},
             {high_rows.data(), low_columns.data()},
             {low_rows.data(), high_columns.data()}};
  }
  std::vector<float> block;
  cover_lower_tiles(gram, [&](const Rectangle& r) {
    add_terms(gram, terms, panel, r, block);
    progress();
  });
}

}  // namespace headspan
