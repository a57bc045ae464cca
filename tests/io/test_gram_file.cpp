#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "common_folder.h"
#include "dist/comm/agreement.h"
#include "dist/matrix/grid.h"
#include "io/outputs/gram_check.h"
#include "io/outputs/gram_file.h"
#include "support/grids.h"

namespace headspan {
namespace {

constexpr std::int64_t kHeads = 5, kHeadSize = 3, kColumns = kHeads * kHeadSize,
                       kTiles = kHeads * (kHeads + 1) / 2;

GramStream stream() {
  return {"k", {0, 0, 1, 1, 1}, {0, 1, 0, 1, 2}, kHeadSize, 64, "roped", "float64", "float64", 0, false};
}

/// G(i, j) of a Gram with correlations 1 / (1 + |i - j|); coordinate 4 is constant, up to rounding.
double product(std::int64_t i, std::int64_t j) {
  if (i == 4 || j == 4) return i == j ? -1e-26 : 1e-18;
  return static_cast<double>((i + 1) * (j + 1)) / static_cast<double>(1 + std::abs(i - j));
}

Matrix sample(const Grid& grid) {
  Matrix matrix(grid, kColumns, kColumns, kHeadSize);
  for (std::int64_t j = 0; j < matrix.local_columns(); ++j)
    for (std::int64_t i = 0; i < matrix.local_rows(); ++i)
      *matrix.at(i, j) =
          product(matrix.rows().global(grid.row(), i), matrix.columns().global(grid.column(), j));
  return matrix;
}

class GramFileTest : public testing::Test {
 protected:
  GramFileTest() {
    H5File file = H5File::create(comm_, path_);
    const Matrix matrix = sample(grid_);
    write_gram(file, stream(), {100, std::vector<double>(kColumns, 2.0), &matrix}, {});
    file.close();
  }

  /// Returns the error that every rank throws after `spoil` has changed the file on rank 0.
  std::string fault_after(const std::function<void(H5File&)>& spoil) {
    if (comm_.is_root()) {
      H5File file = H5File::edit(path_);
      spoil(file);
      file.close();
    }
    comm_.barrier();
    const H5File file = H5File::open(comm_, path_);
    std::string message = "nothing was refused", alone;
    try {
      std::vector<GramStream> streams;
      agree(comm_, [&] { streams = read_gram_streams(H5File::open(path_)); });
      Matrix matrix(grid_, kColumns, kColumns, kHeadSize);
      alone = fault_found_alone(streams.at(0));
      check_gram(path_, "k/fit", read_gram(file, streams.at(0), "fit", matrix), kHeadSize);
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.exit_code(), 2) << error.what();
      message = error.what();
    }
    if (!alone.empty()) {
      EXPECT_EQ(alone, message);
    }
    comm_.barrier();
    return message.rfind(path_ + ": ", 0) == 0 ? message.substr(path_.size() + 2) : message;
  }

  /// Returns the error that a single process throws when it checks the file without a matrix.
  std::string fault_found_alone(const GramStream& stream) const {
    try {
      check_gram(H5File::open(path_), stream, "fit");
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  std::string fault_of_value(std::int64_t tile, std::int64_t i, std::int64_t j, double value) {
    return fault_after([&](H5File& file) {
      auto tiles = file.open_dataset("k/fit/tiles");
      std::vector<double> values(static_cast<std::size_t>(kTiles * kHeadSize * kHeadSize));
      tiles.read_rows(0, kTiles, values.data());
      values[static_cast<std::size_t>((tile * kHeadSize + i) * kHeadSize + j)] = value;
      tiles.write_rows(values.data(), 0, kTiles);
    });
  }

  std::string fault_of_attribute(const std::string& object, const std::string& name, const H5Value& value) {
    return fault_after([&](H5File& file) { file.write_attribute(object, name, value); });
  }

  Comm comm_ = Comm::duplicate(MPI_COMM_WORLD);
  CommonFolder folder_{comm_, "gram_file"};
  std::string path_ = folder_.path("a.gram.h5");
  Grid grid_{comm_, usual_grid(comm_.size()).rows, usual_grid(comm_.size()).columns};
};

constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                 kNan = std::numeric_limits<double>::quiet_NaN();
const std::string kDamaged = "; the file is damaged";

TEST_F(GramFileTest, ASoundOneComesBack) {
  const H5File file = H5File::open(comm_, path_);
  Matrix matrix(grid_, kColumns, kColumns, kHeadSize);
  const GramPart gram = read_gram(file, stream(), "fit", matrix);
  check_gram(path_, "k/fit", gram, kHeadSize);

  EXPECT_EQ(gram.tokens, 100);
  EXPECT_EQ(gram.mean, std::vector<double>(kColumns, 2.0));
  for (std::int64_t j = 0; j < matrix.local_columns(); ++j)
    for (std::int64_t i = 0; i < matrix.local_rows(); ++i) {
      const std::int64_t row = matrix.rows().global(grid_.row(), i),
                         column = matrix.columns().global(grid_.column(), j);
      if (row / kHeadSize < column / kHeadSize) continue;
      EXPECT_EQ(*matrix.at(i, j), product(row, column));
    }
}

TEST_F(GramFileTest, ValuesThatNoGramHasAreRefused) {
  EXPECT_EQ(fault_of_value(4, 2, 1, kNan), "k/fit/tiles[4, 2, 1] = nan: is not a finite number" + kDamaged);
}

TEST_F(GramFileTest, InfinityOffTheDiagonalIsRefused) {
  EXPECT_EQ(fault_of_value(12, 0, 1, -kInfinity),
            "k/fit/tiles[12, 0, 1] = -inf: is not a finite number" + kDamaged);
}

TEST_F(GramFileTest, InfinityOnTheDiagonalIsRefused) {
  EXPECT_EQ(fault_of_value(14, 2, 2, kInfinity),
            "k/fit/tiles[14, 2, 2] = inf: is not a finite number" + kDamaged);
}

TEST_F(GramFileTest, NegativeSquaresAreRefused) {
  EXPECT_EQ(fault_of_value(9, 1, 1, -5),
            "k/fit/tiles[9, 1, 1] = -5: is a negative sum of squares" + kDamaged);
}

TEST_F(GramFileTest, AsymmetryIsRefused) {
  EXPECT_EQ(fault_of_value(9, 2, 0, 7), "k/fit/tiles[9, 2, 0] = 7: differs from its mirror image" + kDamaged);
}

TEST_F(GramFileTest, ProductsBeyondTheSquaresAreRefused) {
  EXPECT_EQ(fault_of_value(10, 1, 1, 29),
            "k/fit/tiles[10, 1, 1] = 29: is more than the sums of squares allow" + kDamaged);
}

TEST_F(GramFileTest, MeansThatAreNotFiniteAreRefused) {
  const std::string message = fault_after([](H5File& file) {
    std::vector<double> mean(kColumns, 1.0);
    mean[7] = kNan;
    file.open_dataset("k/fit/mean").write_rows(mean.data(), 0, kColumns);
  });

  EXPECT_EQ(message, "k/fit/mean[7] = nan: is not a finite number" + kDamaged);
}

TEST_F(GramFileTest, AttributesThatNoGramHasAreRefused) {
  const auto whole = [](std::int64_t value) { return H5Value(value); };
  const auto heads = [](const std::vector<std::int64_t>& values) { return H5Value(values); };

  EXPECT_EQ(fault_of_attribute("k", "head", heads({0, 0, 0, 1, 2})),
            "k: layer, head = 0, 0: does not follow the head before it" + kDamaged);
  EXPECT_EQ(fault_of_attribute("k", "head", heads({0, 1, 0, 2, 1})),
            "k: layer, head = 1, 1: does not follow the head before it" + kDamaged);
  EXPECT_EQ(fault_of_attribute("k", "head", heads({0, 1, 0, 1})),
            "k: layer, head: name no heads, or are of different lengths" + kDamaged);
  fault_of_attribute("k", "head", heads({0, 1, 0, 1, 2}));
  EXPECT_EQ(fault_of_attribute("k", "hidden_size", whole(-3)), "k: hidden_size = -3: is negative" + kDamaged);
  fault_of_attribute("k", "hidden_size", whole(64));
  EXPECT_EQ(fault_of_attribute("k", "skip_first", whole(-1)), "k: skip_first = -1: is negative" + kDamaged);
  fault_of_attribute("k", "skip_first", whole(0));
  EXPECT_EQ(fault_of_attribute("k", "head_size", whole(std::int64_t{1} << 62)),
            "k: head_size = 4611686018427387904: is no size of a head" + kDamaged);
  fault_of_attribute("k", "head_size", whole(kHeadSize));
  EXPECT_EQ(fault_of_attribute("k/fit", "tokens", whole(-7)),
            "k/fit: tokens = -7: is no number of tokens" + kDamaged);
  EXPECT_EQ(fault_of_attribute("k/fit", "tokens", whole((std::int64_t{1} << 53) + 1)),
            "k/fit: tokens = 9007199254740993: is no number of tokens" + kDamaged);
  EXPECT_EQ(fault_of_attribute("k/fit", "tokens", whole(0)),
            "k/fit/tiles[0, 0, 0] = 1: is a sum of squares of no tokens" + kDamaged);
  EXPECT_EQ(fault_of_attribute("k/fit", "tokens", whole(100)), "nothing was refused");
  EXPECT_EQ(fault_of_attribute("k", "capture", whole(1)),
            "k: capture: is not a string; a single string is needed");
}

}  // namespace
}  // namespace headspan
