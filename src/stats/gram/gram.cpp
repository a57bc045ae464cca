#include "stats/gram/gram.h"

#include <algorithm>
#include <utility>

#include "dist/matrix/local_algebra.h"

namespace headspan {
namespace {

/// Returns the first stored local row of a local column: the first row of the first block on or below the
/// diagonal.
std::int64_t first_row(const Matrix& matrix, std::int64_t local_column) {
  const Grid& grid = matrix.grid();
  const std::int64_t block = matrix.columns().global(grid.column(), local_column) / matrix.columns().block;
  return matrix.rows().first_local_block_from(grid.row(), block) * matrix.rows().block;
}

/// Writes a zero to every page of the stored tiles. A page that is read before it is written would be mapped
/// twice, the second time with an interrupt of all other threads.
void touch_pages(Matrix& matrix) {
  constexpr std::int64_t kPage = 4096 / sizeof(double);
#pragma omp parallel for schedule(dynamic, 16)
  for (std::int64_t j = 0; j < matrix.local_columns(); ++j)
    for (std::int64_t i = first_row(matrix, j); i < matrix.local_rows(); i += kPage) *matrix.at(i, j) = 0;
}

/// Calls add(t, first, count) for all tokens of each block of columns in turn; threads share the blocks.
template <class Add>
void for_column_blocks(std::int64_t tokens, std::int64_t columns, const Add& add) {
  constexpr std::int64_t kColumns = 1024;  // whose sums stay in the first-level cache
#pragma omp parallel for schedule(static)
  for (std::int64_t first = 0; first < columns; first += kColumns)
    for (std::int64_t t = 0; t < tokens; ++t) add(t, first, std::min(kColumns, columns - first));
}

}  // namespace

GramSums::GramSums(const Grid& grid, std::int64_t columns, std::int64_t block,
                   std::optional<std::int64_t> summed_)
    : matrix(grid, columns, columns, block), summed(summed_.value_or(columns)), sum(to_size(columns), 0.0) {
  touch_pages(matrix);
}

std::int64_t gram_block(const GridShape& grid, std::int64_t heads, std::int64_t head_size) {
  const std::int64_t wide = std::max<std::int64_t>(1, 64 / head_size);
  const std::int64_t fair = std::max<std::int64_t>(1, heads / (2 * std::max(grid.rows, grid.columns)));
  return std::min(wide, fair) * head_size;
}

void add_outer_product(Matrix& matrix, double alpha, const std::vector<double>& x) {
  const std::vector<double> rows = matrix.rows().local_values(x, matrix.grid().row());
#pragma omp parallel for schedule(dynamic, 16)
  for (std::int64_t j = 0; j < matrix.local_columns(); ++j) {
    const double factor = alpha * x[to_size(matrix.columns().global(matrix.grid().column(), j))];
    double* const column = matrix.at(0, j);
    for (std::int64_t i = first_row(matrix, j); i < matrix.local_rows(); ++i)
      column[i] += factor * rows[to_size(i)];
  }
}

void mirror_diagonal_blocks(Matrix& matrix) {
  const Grid& grid = matrix.grid();
  for (std::int64_t b = 0; b < matrix.rows().blocks(); ++b) {
    if (matrix.rows().owner_of_block(b) != grid.row() || matrix.columns().owner_of_block(b) != grid.column())
      continue;
    const std::int64_t first = b * matrix.rows().block;
    mirror_lower(matrix.at(matrix.rows().local(first), matrix.columns().local(first)),
                 matrix.rows().block_size(b), matrix.leading());
  }
}

void merge(HeadGram& gram, const HeadGram& other) {
  HS_ASSERT(gram.mean.size() == other.mean.size() && gram.matrix.rows().block == other.matrix.rows().block);
  if (other.tokens == 0) return;
  const auto n = static_cast<double>(gram.tokens), m = static_cast<double>(other.tokens);
  std::vector<double> difference(gram.mean.size());
  for (std::size_t j = 0; j < difference.size(); ++j) {
    difference[j] = other.mean[j] - gram.mean[j];
    gram.mean[j] += difference[j] * (m / (n + m));
  }
#pragma omp parallel for schedule(dynamic, 16)
  for (std::int64_t j = 0; j < gram.matrix.local_columns(); ++j)
    for (std::int64_t i = first_row(gram.matrix, j); i < gram.matrix.local_rows(); ++i)
      *gram.matrix.at(i, j) += *other.matrix.at(i, j);
  add_outer_product(gram.matrix, n * m / (n + m), difference);
  mirror_diagonal_blocks(gram.matrix);
  gram.tokens += other.tokens;
}

void recentre(HeadGram& gram, const std::vector<double>& origin, const AddOuterProduct& add) {
  std::vector<double> offset(origin.size());
  for (std::size_t j = 0; j < origin.size(); ++j) offset[j] = gram.mean[j] - origin[j];
  add(gram.matrix, static_cast<double>(gram.tokens), offset);
  mirror_diagonal_blocks(gram.matrix);
  gram.mean = origin;
}

std::vector<double> mean_over_ranks(const Comm& comm, std::vector<double> sums, std::int64_t tokens) {
  comm.sum(&tokens, 1);
  comm.sum(sums.data(), static_cast<std::int64_t>(sums.size()));
  if (tokens > 0)
    for (double& value : sums) value /= static_cast<double>(tokens);
  return sums;
}

template <class T>
std::vector<double> provisional_mean(const Comm& comm, const T* z, std::int64_t tokens,
                                     std::int64_t columns) {
  std::vector<double> sums(to_size(columns), 0.0);
  for_column_blocks(tokens, columns, [&](std::int64_t t, std::int64_t first, std::int64_t count) {
    add_values(z + t * columns + first, count, sums.data() + first);
  });
  return mean_over_ranks(comm, std::move(sums), tokens);
}

template <class T>
void GramUpdater<T>::add(GramSums& sums, const T* z, std::int64_t tokens, const std::vector<double>& shift) {
  const auto columns = static_cast<std::int64_t>(shift.size());
  for_column_blocks(tokens, columns, [&](std::int64_t t, std::int64_t first, std::int64_t count) {
    add_shifted(z + t * columns + first, shift.data() + first, count, product_.rounding(),
                sums.sum.data() + first);
  });
  exchange_.start(sums.matrix, z, tokens);
  multiply(std::exchange(pending_, std::nullopt), [&] { exchange_.progress(); });
  pending_ = Pending{&sums, &shift, exchange_.finish()};
  sums.tokens += pending_->operands.tokens;
  if (sums.matrix.grid().comm().size() == 1) drain();  // the operands are z, which may change after this call
}

template <class T>
void GramUpdater<T>::multiply(const std::optional<Pending>& panel, const std::function<void()>& progress) {
  if (panel) product_.add(panel->sums->matrix, panel->operands, *panel->shift, progress, panel->sums->summed);
}

template <class T>
void GramUpdater<T>::drain() {
  multiply(std::exchange(pending_, std::nullopt), [] {});
}

HeadGram finish(GramSums&& sums, const std::vector<double>& shift, const AddOuterProduct& add) {
  sums.matrix.grid().comm().sum(sums.sum.data(), static_cast<std::int64_t>(sums.sum.size()));
  HeadGram gram{sums.tokens, shift, std::move(sums.matrix)};
  if (gram.tokens > 0) {
    const auto n = static_cast<double>(gram.tokens);
    std::vector<double> offset(sums.sum);  // exact mean less provisional mean
    for (std::size_t j = 0; j < offset.size(); ++j) {
      offset[j] /= n;
      gram.mean[j] += offset[j];
    }
    add(gram.matrix, -n, offset);
  }
  mirror_diagonal_blocks(gram.matrix);
  HS_ASSERT(gram.matrix.guards_intact());
  return gram;
}

template std::vector<double> provisional_mean(const Comm&, const double*, std::int64_t, std::int64_t);
template std::vector<double> provisional_mean(const Comm&, const float*, std::int64_t, std::int64_t);
template class GramUpdater<double>;
template class GramUpdater<float>;

}  // namespace headspan
