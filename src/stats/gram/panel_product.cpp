#include "stats/gram/panel_product.h"

#include <algorithm>

#include "base/checked.h"
#include "dist/matrix/scalapack.h"
#include "stats/gram/panel_values.h"

namespace headspan {
namespace {

constexpr std::int64_t kSide = 4096;   // rows and columns of a block in FP32
constexpr std::int64_t kStripe = 512;  // the same on the diagonal, where half of a block is wasted

/// A rectangle of the local array.
struct Rectangle {
  std::int64_t row, rows, column, columns;
};
using RectangleProduct = std::function<void(const Rectangle&)>;

/// Covers the local tiles on and below the diagonal with rectangles as large as possible. The staircase of
/// the local block columns [first, last), down to local block row `row_end`, is a rectangle and two smaller
/// staircases.
void cover_staircase(const Matrix& gram, std::int64_t first, std::int64_t last, std::int64_t row_end,
                     const RectangleProduct& product) {
  if (first >= last) return;
  const Grid& grid = gram.grid();
  // Returns the first local block row on or below the diagonal.
  const auto start_row = [&](std::int64_t local_column) {
    return gram.rows().first_local_block_from(grid.row(),
                                              gram.columns().global_block(grid.column(), local_column));
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

/// Returns the first local row on or below the diagonal for each local column.
std::vector<std::int64_t> diagonal_of(const Matrix& gram) {
  const Grid& grid = gram.grid();
  std::vector<std::int64_t> first_row;
  for (std::int64_t j = 0; j < gram.local_columns(); ++j)
    first_row.push_back(gram.rows().local_before(grid.row(), gram.columns().global(grid.column(), j)));
  return first_row;
}

}  // namespace

template <class T>
void add_product(Matrix& gram, const PanelOperands<T>& panel, SyrkKernel<T>& kernel,
                 const std::function<void()>& progress) {
  const std::vector<std::int64_t> first_row = diagonal_of(gram);
  kernel.add(panel, {gram.data(), gram.leading(), gram.local_rows(), gram.local_columns(), first_row.data()},
             progress);
}

template void add_product(Matrix&, const PanelOperands<double>&, SyrkKernel<double>&,
                          const std::function<void()>&);
template void add_product(Matrix&, const PanelOperands<float>&, SyrkKernel<float>&,
                          const std::function<void()>&);

void add_product(Matrix& gram, const PanelOperands<double>& operands, LargeArray<double>& workspace,
                 const std::function<void()>& progress) {
  if (operands.tokens == 0) return;
  const PanelOperands<double> panel = with_contiguous_columns(operands, gram.local_columns(), workspace);
  const int tokens = to_int(panel.tokens), ldc = to_int(gram.leading());
  const int lda = to_int(panel.leading_rows), ldb = to_int(panel.leading_columns);
  const double one = 1;
  if (gram.grid().comm().size() == 1) {
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

void add_product(Matrix& gram, const PanelOperands<float>& panel, FloatGemm& gemm,
                 LargeArray<float>& workspace, const std::function<void()>& progress) {
  if (panel.tokens == 0) return;
  gemm.open(panel, gram.local_columns());
  // Forms a block in FP32 and adds it in FP64. `lower`: leaves out what is above the diagonal of the block.
  const auto add_block = [&](const Rectangle& r, bool lower) {
    workspace.reserve(r.rows * r.columns);
    gemm.multiply(r.row, r.rows, r.column, r.columns, workspace.data());
#pragma omp parallel for schedule(static)
    for (std::int64_t j = 0; j < r.columns; ++j) {
      const std::int64_t first = lower ? j : 0;
      add_values(workspace.data() + j * r.rows + first, r.rows - first, gram.at(r.row + first, r.column + j));
    }
  };
  const auto add_rectangle = [&](const Rectangle& r) {
    for (std::int64_t column = r.column; column < r.column + r.columns; column += kSide)
      for (std::int64_t row = r.row; row < r.row + r.rows; row += kSide)
        add_block({row, std::min(kSide, r.row + r.rows - row), column,
                   std::min(kSide, r.column + r.columns - column)},
                  false);
  };
  if (gram.grid().comm().size() > 1)
    return cover_lower_tiles(gram, [&](const Rectangle& r) {
      add_rectangle(r);
      progress();
    });
  const std::int64_t n = gram.rows().size;
  for (std::int64_t first = 0; first < n; first += kStripe) {
    const std::int64_t width = std::min(kStripe, n - first);
    add_block({first, width, first, width}, true);
    add_rectangle({first + width, n - first - width, first, width});
  }
}

}  // namespace headspan
