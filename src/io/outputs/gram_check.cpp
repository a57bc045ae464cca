#include "io/outputs/gram_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "base/printable.h"
#include "dist/comm/agreement.h"
#include "dist/matrix/linear_algebra.h"

namespace headspan {
namespace {

constexpr double kSlack = 1e-4;  // relative; products may have been formed in float32
constexpr double kBand = 1e-9;   // of moments, which are summed in FP64 (FitRules::band)
constexpr double kMinNormal = std::numeric_limits<double>::min();  // smaller squares have lost digits

/// Checks the numbers of one Gram. All coordinates of the diagonal are added in order before products are
/// checked. Throws InputError.
class GramRules {
 public:
  GramRules(std::string path, std::string group, std::int64_t head_size, std::int64_t tokens)
      : path_(std::move(path)), group_(std::move(group)), d_(head_size), tokens_(tokens) {}

  /// Checks the next coordinate and stores its norm, which bounds products.
  void add_coordinate(double mean, double squares) {
    const auto i = static_cast<std::int64_t>(lengths_.size());
    if (!std::isfinite(mean))
      throw InputError(path_, group_ + "/mean[" + std::to_string(i) + "]", printable(mean),
                       "is not a finite number", "the file is damaged");
    if (!std::isfinite(squares)) refuse(i, i, squares, "is not a finite number");
    const double error =
        64 * std::numeric_limits<double>::epsilon() * mean;  // of a coordinate that does not vary
    const double rounding = static_cast<double>(tokens_) * error * error;
    if (squares < -rounding) refuse(i, i, squares, "is a negative sum of squares");
    if (tokens_ == 0 && squares > 0) refuse(i, i, squares, "is a sum of squares of no tokens");
    lengths_.push_back(std::sqrt(std::max(squares, 0.0) + rounding));
  }

  void check_product(std::int64_t row, std::int64_t column, double product) const {
    if (!std::isfinite(product)) refuse(row, column, product, "is not a finite number");
    if (std::abs(product) > (1 + kSlack) * bound(row, column))
      refuse(row, column, product, "is more than the sums of squares allow");
  }

  void check_mirrored(std::int64_t row, std::int64_t column, double product, double mirrored) const {
    if (std::abs(product - mirrored) > kSlack * bound(row, column))
      refuse(row, column, product, "differs from its mirror image");
  }

 private:
  double bound(std::int64_t row, std::int64_t column) const {
    return lengths_[to_size(row)] * lengths_[to_size(column)];
  }

  [[noreturn]] void refuse(std::int64_t row, std::int64_t column, double value, const char* wrong) const {
    const std::int64_t a = row / d_, tile = a * (a + 1) / 2 + column / d_;
    throw InputError(path_,
                     group_ + "/tiles[" + std::to_string(tile) + ", " + std::to_string(row % d_) + ", " +
                         std::to_string(column % d_) + "]",
                     printable(value), wrong, "the file is damaged");
  }

  std::string path_, group_;
  std::int64_t d_, tokens_;
  std::vector<double> lengths_;  // [columns] Euclidean norms of the centred coordinates
};

/// Returns the diagonal of a matrix, on all ranks. Collective over its grid.
std::vector<double> diagonal_of(const Matrix& matrix) {
  std::vector<double> squares(to_size(matrix.rows().size), 0.0);
  for (std::int64_t i = 0; i < matrix.local_rows(); ++i) {
    const std::int64_t row = matrix.rows().global(matrix.grid().row(), i);
    if (matrix.columns().owner(row) == matrix.grid().column())
      squares[to_size(row)] = *matrix.at(i, matrix.columns().local(row));
  }
  matrix.grid().comm().sum(squares.data(), matrix.rows().size);
  return squares;
}

/// Checks local column j of a matrix, from the diagonal tile down.
void check_column(const GramRules& rules, const Matrix& matrix, std::int64_t d, std::int64_t j) {
  const std::int64_t column = matrix.columns().global(matrix.grid().column(), j), head = column / d;
  std::int64_t i = matrix.rows().local_before(matrix.grid().row(), head * d);
  for (; i < matrix.local_rows(); ++i) {
    const std::int64_t row = matrix.rows().global(matrix.grid().row(), i);
    const double product = *matrix.at(i, j);
    rules.check_product(row, column, product);
    if (row / d == head)
      rules.check_mirrored(row, column, product,
                           *matrix.at(matrix.rows().local(column), matrix.columns().local(row)));
  }
}

/// Checks a row of tiles as stored in a file, from the first to the diagonal tile.
void check_row(const GramRules& rules, std::int64_t head, std::int64_t d, const std::vector<double>& tiles) {
  for (std::int64_t k = 0; k < (head + 1) * d; ++k)
    for (std::int64_t j = 0; j < d; ++j) {
      const std::int64_t tile = k / d, i = k % d, row = head * d + i, column = tile * d + j;
      const double product = tiles[to_size(k * d + j)];
      rules.check_product(row, column, product);
      if (row > column && tile == head)
        rules.check_mirrored(row, column, product, tiles[to_size((tile * d + j) * d + i)]);
    }
}

/// Checks a moment of attention. `index`: its position in the file, without the closing bracket.
void check_moment(const std::string& path, const std::string& index, const double* matrix, std::int64_t d) {
  const auto refuse = [&](std::int64_t i, std::int64_t j, const char* wrong) {
    throw InputError(path, index + ", " + std::to_string(i) + ", " + std::to_string(j) + "]",
                     printable(matrix[i * d + j]), wrong, "the file is damaged");
  };
  for (std::int64_t i = 0; i < d; ++i) {
    if (!std::isfinite(matrix[i * d + i])) refuse(i, i, "is not a finite number");
    if (matrix[i * d + i] < 0) refuse(i, i, "is a negative sum of squares");
  }
  for (std::int64_t i = 0; i < d; ++i)
    for (std::int64_t j = 0; j < d; ++j) {
      const double value = matrix[i * d + j],
                   bound = std::sqrt(matrix[i * d + i]) * std::sqrt(matrix[j * d + j]);
      if (!std::isfinite(value)) refuse(i, j, "is not a finite number");
      if (std::abs(value) > (1 + kSlack) * bound + kMinNormal)
        refuse(i, j, "is more than the sums of squares allow");
      if (i > j && std::abs(value - matrix[j * d + i]) > kSlack * bound + kMinNormal)
        refuse(i, j, "differs from its mirror image");
    }
  if (!is_semidefinite({matrix, matrix + d * d}, d, std::vector<double>(to_size(d), kMinNormal), kBand))
    throw InputError(path, index + "]", "", "is not positive semidefinite", "the file is damaged");
}

}  // namespace

void check_gram(const std::string& path, const std::string& group, const GramPart& gram,
                std::int64_t head_size) {
  const Matrix& matrix = *gram.matrix;
  const std::vector<double> squares = diagonal_of(matrix);
  agree(matrix.grid().comm(), [&] {
    GramRules rules(path, group, head_size, gram.tokens);
    for (std::size_t i = 0; i < squares.size(); ++i) rules.add_coordinate(gram.mean[i], squares[i]);
    for (std::int64_t j = 0; j < matrix.local_columns(); ++j) check_column(rules, matrix, head_size, j);
  });
}

void check_gram(const H5File& file, const GramStream& stream, const std::string& part) {
  const std::string group = stream.name + "/" + part;
  const std::int64_t d = stream.head_size;
  std::vector<double> mean(to_size(stream.columns())), tiles(to_size(stream.columns() * d));
  file.open_dataset(group + "/mean").read_rows(0, stream.columns(), mean.data());
  H5Dataset dataset = file.open_dataset(group + "/tiles");
  GramRules rules(file.path(), group, d, file.read_attribute<std::int64_t>(group, "tokens").value_or(0));
  for (std::int64_t h = 0; h < stream.heads(); ++h) {
    dataset.read_rows(h * (h + 3) / 2, 1, tiles.data());
    for (std::int64_t i = 0; i < d; ++i)
      rules.add_coordinate(mean[to_size(h * d + i)], tiles[to_size(i * (d + 1))]);
  }
  for (std::int64_t h = 0; h < stream.heads(); ++h) {
    dataset.read_rows(h * (h + 1) / 2, h + 1, tiles.data());
    check_row(rules, h, d, tiles);
  }
}

void check_attention(const std::string& path, const GramAttention& attention) {
  const std::int64_t d = attention.head_size;
  for (std::int64_t layer = 0; layer < attention.layers; ++layer) {
    const std::string index = "[" + std::to_string(layer);
    const double scale = attention.scale[to_size(layer)];
    if (!(scale > 0) || !std::isfinite(scale))
      throw InputError(path, "attention/scale" + index + "]", printable(scale), "is no mean of 1 / squares",
                       "the file is damaged");
    for (std::int64_t h = 0; h < attention.heads; ++h) {
      const std::size_t first = to_size((layer * attention.heads + h) * d * d);
      const std::string head_index = index + ", " + std::to_string(h);
      check_moment(path, "attention/query" + head_index, &attention.query[first], d);
      check_moment(path, "attention/output" + head_index, &attention.output[first], d);
    }
  }
}

}  // namespace headspan
