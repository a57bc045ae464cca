#include "stats/gram/panel_product.h"

#include <algorithm>
#include <type_traits>

#include "base/checked.h"
#include "dist/matrix/scalapack.h"
#include "stats/gram/panel_values.h"

namespace headspan {
namespace {

constexpr std::int64_t kSide = 4096;   // rows and columns of a block in FP32
constexpr std::int64_t kNear = 128;    // rows below the diagonal for which integers give all they can
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

/// Covers those of the first `columns` local columns.
void cover_lower_tiles(const Matrix& gram, std::int64_t columns, const RectangleProduct& product) {
  const std::int64_t block = gram.columns().block;
  cover_staircase(gram, 0, (columns + block - 1) / block, gram.rows().local_blocks(gram.grid().row()),
                  product);
}

/// Returns how many local columns are in blocks that begin before the column `summed` of the whole Gram.
std::int64_t columns_summed(const Matrix& gram, std::int64_t summed) {
  const BlockCyclic& columns = gram.columns();
  const std::int64_t end = (summed + columns.block - 1) / columns.block * columns.block;
  return columns.local_before(gram.grid().column(), std::min(end, columns.size));
}

/// Returns the first local row on or below the diagonal for each local column.
std::vector<std::int64_t> diagonal_of(const Matrix& gram) {
  const Grid& grid = gram.grid();
  std::vector<std::int64_t> first_row;
  for (std::int64_t j = 0; j < gram.local_columns(); ++j)
    first_row.push_back(gram.rows().local_before(grid.row(), gram.columns().global(grid.column(), j)));
  return first_row;
}

/// An operand: `count` rows of `tokens` tokens. Rows of a block are contiguous, blocks `distance` apart.
template <class T>
struct Operand {
  const T* values;
  std::int64_t leading, count, tokens, block, distance;
};

/// What is subtracted from the local rows and columns of a panel.
struct LocalOrigin {
  LocalOrigin(const std::vector<double>& shift, const Matrix& gram)
      : rows(gram.rows().local_values(shift, gram.grid().row())),
        columns(gram.columns().local_values(shift, gram.grid().column())) {}

  std::vector<double> rows, columns;
};

/// Copies an operand less its origin, rounded, with all rows contiguous: [panel_leading(count), tokens].
template <class T, class P>
void copy_shifted(const Operand<T>& from, const std::vector<double>& origin, Precision precision,
                  LargeArray<P>& to) {
  const std::int64_t leading = panel_leading<P>(from.count);
  to.reserve(leading * from.tokens);
#pragma omp parallel for schedule(static)
  for (std::int64_t t = 0; t < from.tokens; ++t)
    for (std::int64_t i = 0; i < from.count; i += from.block)
      shift_values(from.values + i / from.block * from.distance + t * from.leading, origin.data() + i,
                   std::min(from.block, from.count - i), precision, to.data() + i + t * leading);
}

/// Returns a panel as a library multiplies it, in `memory`. The columns of a single rank are its rows.
template <class P, class T>
PanelOperands<P> copy_of(const PanelOperands<T>& panel, const Matrix& gram, const LocalOrigin& origin,
                         Precision precision, LargeArray<P> (&memory)[2]) {
  const std::int64_t rows = gram.local_rows(), columns = gram.local_columns();
  copy_shifted(Operand<T>{panel.rows, panel.leading_rows, rows, panel.tokens, rows, 0}, origin.rows,
               precision, memory[0]);
  PanelOperands<P> copy{memory[0].data(), memory[0].data(), panel_leading<P>(rows), panel_leading<P>(rows),
                        panel.tokens};
  if (gram.grid().comm().size() == 1) return copy;
  copy_shifted(
      Operand<T>{panel.columns, panel.leading_columns, columns, panel.tokens, panel.block, panel.distance},
      origin.columns, precision, memory[1]);
  copy.columns = memory[1].data();
  copy.leading_columns = panel_leading<P>(columns);
  return copy;
}

/// Adds the products of a copied panel by BLAS, in the first `columns` local columns.
void add_product(Matrix& gram, const PanelOperands<double>& panel, std::int64_t columns,
                 const std::function<void()>& progress) {
  const int tokens = to_int(panel.tokens), ldc = to_int(gram.leading());
  const int lda = to_int(panel.leading_rows), ldb = to_int(panel.leading_columns);
  const double one = 1;
  if (gram.grid().comm().size() == 1) {
    const int n = to_int(columns), below = to_int(gram.rows().size - columns);
    dsyrk_("L", "N", &n, &tokens, &one, panel.rows, &lda, &one, gram.data(), &ldc);
    if (below > 0)
      dgemm_("N", "T", &below, &n, &tokens, &one, panel.rows + n, &lda, panel.rows, &lda, &one,
             gram.at(columns, 0), &ldc);
    return;
  }
  cover_lower_tiles(gram, columns, [&](const Rectangle& r) {
    const int m = to_int(r.rows), n = to_int(r.columns);
    dgemm_("N", "T", &m, &n, &tokens, &one, panel.rows + r.row, &lda, panel.columns + r.column, &ldb, &one,
           gram.at(r.row, r.column), &ldc);
    progress();
  });
}

/// The same in FP32, block by block, which are added in FP64. `block`: room.
void add_product(Matrix& gram, const PanelOperands<float>& panel, std::int64_t columns, FloatGemm& gemm,
                 LargeArray<float>& block, const std::function<void()>& progress) {
  gemm.open(panel);
  // `lower`: leaves out what is above the diagonal of the block.
  const auto add_block = [&](const Rectangle& r, bool lower) {
    block.reserve(r.rows * r.columns);
    gemm.multiply(r.row, r.rows, r.column, r.columns, block.data());
#pragma omp parallel for schedule(static)
    for (std::int64_t j = 0; j < r.columns; ++j) {
      const std::int64_t first = lower ? j : 0;
      add_values(block.data() + j * r.rows + first, r.rows - first, gram.at(r.row + first, r.column + j));
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
    return cover_lower_tiles(gram, columns, [&](const Rectangle& r) {
      add_rectangle(r);
      progress();
    });
  const std::int64_t n = gram.rows().size;
  for (std::int64_t first = 0; first < columns; first += kStripe) {
    const std::int64_t width = std::min(kStripe, columns - first);
    add_block({first, width, first, width}, true);
    add_rectangle({first + width, n - first - width, first, width});
  }
}

}  // namespace

PanelProduct::PanelProduct(Precision precision, ProductKind kind)
    : precision_(precision), method_(DoubleBlas{}) {
  const bool doubles = multiplies_doubles(precision);
  HS_ASSERT(kind != ProductKind::integers || precision == Precision::split);
  if (kind == ProductKind::integers)
    method_.emplace<IntegerKernel>();
  else if (kind == ProductKind::kernel && doubles)
    method_.emplace<SyrkKernel<double>>(precision);
  else if (kind == ProductKind::kernel)
    method_.emplace<SyrkKernel<float>>(precision);
  else if (!doubles)
    method_.emplace<FloatLibrary>(precision);
}

template <class T>
void PanelProduct::add(Matrix& gram, const PanelOperands<T>& panel, const std::vector<double>& shift,
                       const std::function<void()>& progress, std::int64_t summed) {
  if (panel.tokens == 0) return;
  const std::int64_t columns = columns_summed(gram, summed);
  const LocalOrigin origin(shift, gram);
  const auto add = [&](auto& method) {
    using Method = std::decay_t<decltype(method)>;
    if constexpr (std::is_same_v<Method, DoubleBlas>) {
      add_product(gram, copy_of(panel, gram, origin, precision_, method.copy), columns, progress);
    } else if constexpr (std::is_same_v<Method, FloatLibrary>) {
      add_product(gram, copy_of(panel, gram, origin, precision_, method.copy), columns, method.gemm,
                  method.block, progress);
    } else {
      const std::vector<std::int64_t> first_row = diagonal_of(gram);
      const PanelOrigin shifts{origin.rows.data(), origin.columns.data()};
      const Staircase staircase{gram.data(), gram.leading(), gram.local_rows(), columns, first_row.data()};
      if constexpr (std::is_same_v<Method, IntegerKernel>)
        method.add(panel, shifts, staircase, std::max(kNear, gram.rows().block), progress);
      else
        method.add(panel, shifts, staircase, progress);
    }
  };
  std::visit(add, method_);
}

template void PanelProduct::add(Matrix&, const PanelOperands<double>&, const std::vector<double>&,
                                const std::function<void()>&, std::int64_t);
template void PanelProduct::add(Matrix&, const PanelOperands<float>&, const std::vector<double>&,
                                const std::function<void()>&, std::int64_t);

}  // namespace headspan
