#include "io/outputs/gram_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/printable.h"
#include "dist/comm/agreement.h"

namespace headspan {
namespace {

constexpr double kSlack = 1e-4;  // products may have been formed in float32

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

class GramCheck {
 public:
  GramCheck(const std::string& path, const std::string& group, const GramPart& gram, std::int64_t head_size)
      : path_(path), group_(group), gram_(gram), matrix_(*gram.matrix), d_(head_size) {}

  void run() {
    const std::vector<double> squares = diagonal();
    agree(matrix_.grid().comm(), [&] {
      for (std::int64_t i = 0; i < matrix_.rows().size; ++i) check_coordinate(i, squares[to_size(i)]);
      for (std::int64_t j = 0; j < matrix_.local_columns(); ++j) check_products(j);
    });
  }

 private:
  /// [columns], on all ranks.
  std::vector<double> diagonal() const {
    std::vector<double> squares(to_size(matrix_.rows().size), 0.0);
    for (std::int64_t i = 0; i < matrix_.local_rows(); ++i) {
      const std::int64_t row = global_row(i);
      if (matrix_.columns().owner(row) == matrix_.grid().column())
        squares[to_size(row)] = *matrix_.at(i, matrix_.columns().local(row));
    }
    matrix_.grid().comm().sum(squares.data(), matrix_.rows().size);
    return squares;
  }

  std::int64_t global_row(std::int64_t i) const { return matrix_.rows().global(matrix_.grid().row(), i); }

  /// Takes down how large the products with this coordinate can be.
  void check_coordinate(std::int64_t i, double squares) {
    const double mean = gram_.mean[to_size(i)];
    if (!std::isfinite(mean))
      throw InputError(path_, group_ + "/mean[" + std::to_string(i) + "]", printable(mean),
                       "is not a finite number", "the file is damaged");
    if (!std::isfinite(squares)) refuse(i, i, squares, "is not a finite number");
    const double error =
        64 * std::numeric_limits<double>::epsilon() * mean;  // of a coordinate that does not vary
    const double rounding = static_cast<double>(gram_.tokens) * error * error;
    if (squares < -rounding) refuse(i, i, squares, "is a negative sum of squares");
    lengths_.push_back(std::sqrt(std::max(squares, 0.0) + rounding));
  }

  /// A local column, from the tile on the diagonal down.
  void check_products(std::int64_t j) const {
    const std::int64_t column = matrix_.columns().global(matrix_.grid().column(), j), head = column / d_;
    std::int64_t i = matrix_.rows().local_before(matrix_.grid().row(), head * d_);
    for (; i < matrix_.local_rows(); ++i) {
      const std::int64_t row = global_row(i);
      const double product = *matrix_.at(i, j), most = lengths_[to_size(row)] * lengths_[to_size(column)];
      if (!std::isfinite(product)) refuse(row, column, product, "is not a finite number");
      if (std::abs(product) > (1 + kSlack) * most)
        refuse(row, column, product, "is more than the sums of squares allow");
      if (row / d_ != head) continue;
      const double mirrored = *matrix_.at(matrix_.rows().local(column), matrix_.columns().local(row));
      if (std::abs(product - mirrored) > kSlack * most)
        refuse(row, column, product, "differs from its mirror image");
    }
  }

  [[noreturn]] void refuse(std::int64_t row, std::int64_t column, double value, const char* wrong) const {
    const std::int64_t a = row / d_, tile = a * (a + 1) / 2 + column / d_;
    throw InputError(path_,
                     group_ + "/tiles[" + std::to_string(tile) + ", " + std::to_string(row % d_) + ", " +
                         std::to_string(column % d_) + "]",
                     printable(value), wrong, "the file is damaged");
  }

  const std::string &path_, &group_;
  const GramPart& gram_;
  const Matrix& matrix_;
  std::int64_t d_;
  std::vector<double> lengths_;  // [columns] of the centred coordinates
};

}  // namespace

void check_gram(const std::string& path, const std::string& group, const GramPart& gram,
                std::int64_t head_size) {
  GramCheck(path, group, gram, head_size).run();
}

}  // namespace headspan
