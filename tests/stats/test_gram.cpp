// The Gram against the naive sum in long double, on every grid, with several blocks and head sizes.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "base/range.h"
#include "dist/matrix/scalapack.h"
#include "stats/gram/gram.h"
#include "support/grids.h"
#include "support/synthetic.h"

namespace headspan {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();

struct Moments {
  std::vector<long double> mean;    // [D]
  std::vector<long double> second;  // [D, D] about `origin`
};

/// Sums the Gram by definition, about `origin`, or else the mean.
Moments naive(const Activations& z, const std::vector<double>* origin = nullptr) {
  Moments moments;
  for (std::int64_t j = 0; j < z.columns; ++j) {
    long double sum = 0;
    for (std::int64_t t = 0; t < z.tokens; ++t) sum += z.at(t, j);
    moments.mean.push_back(sum / z.tokens);
  }
  const auto about = [&](std::int64_t j) {
    return origin != nullptr ? static_cast<long double>((*origin)[to_size(j)]) : moments.mean[to_size(j)];
  };
  for (std::int64_t j = 0; j < z.columns; ++j)
    for (std::int64_t i = 0; i < z.columns; ++i) {
      long double sum = 0;
      for (std::int64_t t = 0; t < z.tokens; ++t) sum += (z.at(t, i) - about(i)) * (z.at(t, j) - about(j));
      moments.second.push_back(sum);
    }
  return moments;
}

/// The largest |G_ij - expected| / sqrt(expected_ii expected_jj) of the stored tiles of all ranks, those on
/// the diagonal whole. Collective.
double error_of(const HeadGram& gram, const Moments& expected) {
  const Matrix& g = gram.matrix;
  const Grid& grid = g.grid();
  const std::int64_t n = g.rows().size;
  double worst = 0;
  for (std::int64_t l = 0; l < g.local_columns(); ++l)
    for (std::int64_t k = 0; k < g.local_rows(); ++k) {
      const std::int64_t i = g.rows().global(grid.row(), k), j = g.columns().global(grid.column(), l);
      if (i / g.rows().block < j / g.columns().block) continue;  // not stored
      const long double scale =
          std::sqrt(expected.second[to_size(i * n + i)] * expected.second[to_size(j * n + j)]);
      const long double error = std::abs(*g.at(k, l) - expected.second[to_size(i + j * n)]) / scale;
      if (!(error <= worst)) worst = std::isnan(error) ? 1e300 : static_cast<double>(error);
    }
  return grid.comm().max(worst);
}

double mean_error(const HeadGram& gram, const Moments& expected) {
  double worst = 0;
  for (std::size_t j = 0; j < gram.mean.size(); ++j)
    worst = std::max(worst, static_cast<double>(std::abs(gram.mean[j] - expected.mean[j])));
  return worst;
}

/// Calls `check(grid, layout, block)` for every grid of all ranks, several head counts and sizes, and blocks.
void on_every_layout(const std::function<void(const Grid&, const HeadLayout&, std::int64_t)>& check) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const HeadLayout layouts[] = {make_layout(1, 7, 1), make_layout(1, 5, 2), make_layout(3, 3, 3),
                                make_layout(1, 2, 8)};
  for (const ProcessGrid shape : all_grids(world.size())) {
    const Grid grid(world, shape.rows, shape.columns);
    for (const HeadLayout& layout : layouts)
      for (const std::int64_t block : blocks_to_try(layout)) {
        SCOPED_TRACE(std::to_string(shape.rows) + "x" + std::to_string(shape.columns) + " ranks, " +
                     std::to_string(layout.heads()) + " heads of " + std::to_string(layout.head_size) +
                     ", block " + std::to_string(block));
        check(grid, layout, block);
      }
  }
}

TEST(Gram, IsTheSumOfProductsAboutTheMean) {
  on_every_layout([](const Grid& grid, const HeadLayout& layout, std::int64_t block) {
    const Activations z = correlated(101, layout.columns(), 3, 0.5, 1, 2);

    const HeadGram gram = make_gram(grid, z, {block, Precision::float64, 16});

    Moments expected = naive(z);
    EXPECT_EQ(gram.tokens, z.tokens);
    EXPECT_LE(mean_error(gram, expected), 20 * kEps);
    EXPECT_LE(error_of(gram, expected), static_cast<double>(z.tokens) * kEps);
    EXPECT_TRUE(gram.matrix.guards_intact());
    expected.second.back() *= 2;
    EXPECT_GT(error_of(gram, expected), 0.1) << "nothing was compared";
  });
}

TEST(Gram, KeepsItsDigitsUnderLargeMeans) {
  on_every_layout([](const Grid& grid, const HeadLayout& layout, std::int64_t block) {
    Activations z = correlated(101, layout.columns(), 3, 0.5, 3, 4);
    for (double& value : z.values) value += 1e6;

    const HeadGram gram = make_gram(grid, z, {block, Precision::float64, 16});

    const Moments expected = naive(z);
    EXPECT_LE(mean_error(gram, expected), 1e6 * 2 * kEps);
    EXPECT_LE(error_of(gram, expected), static_cast<double>(z.tokens) * kEps);
  });
}

// Values z are rounded by r |z| and their products summed in FP32 over panels of k tokens: an error of at
// most (2 r + k 2^-24) sum |z_i z_j|. r is 2^-24 for float32, 2^-16 for split, which sums in FP64, and 2^-8
// for bfloat16.
TEST(Gram, ErrsByNoMoreThanItsPrecision) {
  constexpr std::int64_t kPanel = 16;
  constexpr double kSum = kPanel * 0x1p-24;
  const std::pair<Precision, double> bounds[] = {{Precision::float32, kSum + 2 * 0x1p-24},
                                                 {Precision::split, 2 * 0x1p-16},
                                                 {Precision::bfloat16, kSum + 2 * 0x1p-8}};
  on_every_layout([&](const Grid& grid, const HeadLayout& layout, std::int64_t block) {
    Activations z = correlated(101, layout.columns(), 3, 0.5, 5, 6);
    for (double& value : z.values) value += 1000;  // FP32 alone would keep 4 digits of what varies
    const Moments expected = naive(z);

    for (const auto& [precision, bound] : bounds) {
      const HeadGram gram = make_gram(grid, z, {block, precision, kPanel});

      EXPECT_LE(error_of(gram, expected), bound);
      EXPECT_GT(error_of(gram, expected), kEps);
      EXPECT_TRUE(gram.matrix.guards_intact());
    }
  });
}

// Small integers, whose products FP32 adds exactly.
TEST(Gram, MayHaveMoreColumnsThanAPieceOfAProduct) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const ProcessGrid shape = usual_grid(world.size());
  const Grid grid(world, shape.rows, shape.columns);
  constexpr std::int64_t kColumns = 8260, kTokens = 3;
  Activations z{kTokens, kColumns, {}};
  for (std::int64_t k = 0; k < kTokens * kColumns; ++k)
    z.values.push_back(static_cast<double>(k * k % 13 - 6));
  const std::vector<double> shift(kColumns, 0.0);
  const Range mine = dealt_tokens(kTokens, world.size(), world.rank());
  for (const Precision precision : {Precision::float64, Precision::float32}) {
    GramSums sums(grid, kColumns, 4);
    GramUpdater<double> updater(grid, precision);
    updater.add(sums, z.values.data() + mine.first * kColumns, mine.count, shift);
    updater.drain();

    std::int64_t wrong = 0;
    const Matrix& g = sums.matrix;
    for (std::int64_t j = 0; j < g.local_columns(); ++j)
      for (std::int64_t i = 0; i < g.local_rows(); ++i) {
        const std::int64_t row = g.rows().global(grid.row(), i),
                           column = g.columns().global(grid.column(), j);
        double sum = 0;
        for (std::int64_t t = 0; t < kTokens; ++t) sum += z.at(t, row) * z.at(t, column);
        if (row >= column && *g.at(i, j) != sum) ++wrong;
      }
    EXPECT_EQ(wrong, 0) << static_cast<int>(precision);
    EXPECT_TRUE(g.guards_intact());
  }
}

TEST(Gram, OfMergedPartsIsThatOfAllTokens) {
  on_every_layout([](const Grid& grid, const HeadLayout& layout, std::int64_t block) {
    const Activations z = correlated(90, layout.columns(), 3, 0.5, 7, 8);
    const auto part = [&](std::int64_t first, std::int64_t count) {
      const auto begin = z.values.begin() + first * z.columns;
      return make_gram(grid, {count, z.columns, {begin, begin + count * z.columns}}, {block});
    };

    HeadGram gram = part(0, 31);
    merge(gram, part(31, 0));
    merge(gram, part(31, 58));
    merge(gram, part(89, 1));
    HeadGram from_nothing = part(0, 0);
    merge(from_nothing, part(0, 90));

    const Moments expected = naive(z);
    EXPECT_EQ(gram.tokens, 90);
    EXPECT_LE(mean_error(gram, expected), 20 * kEps);
    EXPECT_LE(error_of(gram, expected), 90 * kEps);
    EXPECT_EQ(from_nothing.tokens, 90);
    EXPECT_LE(error_of(from_nothing, expected), 90 * kEps);
  });
}

TEST(Gram, MovesItsOrigin) {
  on_every_layout([](const Grid& grid, const HeadLayout& layout, std::int64_t block) {
    const Activations z = correlated(60, layout.columns(), 3, 0.5, 9, 10);
    const std::vector<double> origin = gaussian(1, z.columns, 11).values;
    HeadGram gram = make_gram(grid, z, {block});

    recentre(gram, origin);

    EXPECT_EQ(gram.mean, origin);
    EXPECT_LE(error_of(gram, naive(z, &origin)), 60 * kEps);
  });
}

TEST(Gram, HasTheSameBitsWhenRepeated) {
  on_every_layout([](const Grid& grid, const HeadLayout& layout, std::int64_t block) {
    const Activations z = correlated(70, layout.columns(), 3, 0.5, 12, 13);
    for (const Precision precision : {Precision::float64, Precision::float32, Precision::split}) {
      const HeadGram first = make_gram(grid, z, {block, precision, 16});
      const HeadGram second = make_gram(grid, z, {block, precision, 16});

      const std::int64_t count = first.matrix.leading() * first.matrix.local_columns();
      EXPECT_EQ(first.mean, second.mean);
      EXPECT_TRUE(std::equal(first.matrix.data(), first.matrix.data() + count, second.matrix.data()));
    }
  });
}

TEST(Gram, OfNoTokensIsZero) {
  on_every_layout([](const Grid& grid, const HeadLayout& layout, std::int64_t block) {
    const HeadGram gram = make_gram(grid, Activations{0, layout.columns(), {}}, {block});

    EXPECT_EQ(gram.tokens, 0);
    EXPECT_EQ(gram.mean, std::vector<double>(to_size(layout.columns()), 0.0));
    EXPECT_EQ(gather_symmetric(gram.matrix),
              std::vector<double>(to_size(layout.columns() * layout.columns()), 0.0));
  });
}

TEST(GramUpdater, ServesTwoSumsInTurnFromFloatsToo) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const ProcessGrid shape = usual_grid(world.size());
  const Grid grid(world, shape.rows, shape.columns);
  Activations parts[] = {correlated(80, 10, 3, 0.5, 14, 15), correlated(80, 6, 3, 0.5, 14, 16)};
  std::vector<float> narrow[2];
  for (std::size_t k = 0; k < 2; ++k) {
    narrow[k].assign(parts[k].values.begin(), parts[k].values.end());
    parts[k].values.assign(narrow[k].begin(), narrow[k].end());
  }
  GramSums sums[] = {GramSums(grid, 10, 4), GramSums(grid, 6, 3)};
  const std::vector<double> shifts[] = {std::vector<double>(10, 1.5), std::vector<double>(6, -0.5)};
  GramUpdater<float> updater(grid, Precision::float64);

  for (std::int64_t first = 0; first < 80; first += 10)
    for (std::size_t k = 0; k < 2; ++k) {
      const Range mine = dealt_tokens(10, world.size(), world.rank());
      updater.add(sums[k], narrow[k].data() + (first + mine.first) * parts[k].columns, mine.count, shifts[k]);
    }
  updater.drain();

  for (std::size_t k = 0; k < 2; ++k)
    EXPECT_LE(error_of(finish(std::move(sums[k]), shifts[k]), naive(parts[k])), 80 * kEps);
}

TEST(GramBlock, HoldsWholeHeadsAndReachesEveryRank) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  for (const ProcessGrid shape : all_grids(world.size())) {
    const Grid grid(world, shape.rows, shape.columns);
    for (std::int64_t heads = 1; heads <= 40; ++heads)
      for (const std::int64_t d : {1, 2, 3, 8, 64, 100, 128}) {
        const std::int64_t block = gram_block(grid.shape(), heads, d),
                           widest = std::max(shape.rows, shape.columns);

        EXPECT_EQ(block % d, 0);
        EXPECT_LE(block, std::max<std::int64_t>(64, d));
        EXPECT_GE((heads * d + block - 1) / block, std::min<std::int64_t>(heads, widest));
      }
  }
}

/// ||A - L L^T||_1 / (||A||_1 n eps), with what ScaLAPACK's tests call eps: 2^-53.
double cholesky_residual(const std::vector<double>& a, const std::vector<double>& l, std::int64_t n) {
  double norm = 0, residual_norm = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    double column = 0, residual = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      long double product = 0;
      for (std::int64_t k = 0; k <= std::min(i, j); ++k)
        product += static_cast<long double>(l[to_size(i + k * n)]) * l[to_size(j + k * n)];
      column += std::abs(a[to_size(i + j * n)]);
      residual += static_cast<double>(std::abs(a[to_size(i + j * n)] - product));
    }
    norm = std::max(norm, column);
    residual_norm = std::max(residual_norm, residual);
  }
  return residual_norm / (norm * static_cast<double>(n) * 0x1p-53);
}

/// This rank's share of a panel whose values are small whole numbers: element of a column and a token.
template <class T>
std::vector<T> operand(const BlockCyclic& axis, int part, std::int64_t local, std::int64_t tokens) {
  std::vector<T> values;
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t i = 0; i < local; ++i)
      values.push_back(static_cast<T>(axis.global(part, i) * 7 % 13 + t % 5 + 1));
  return values;
}

/// Returns the local elements on and below the diagonal of the product of a panel of type T, of which the
/// blocks of columns before `summed` are asked for.
template <class T>
std::vector<double> product_of(const Grid& grid, std::int64_t columns, std::int64_t block,
                               Precision precision, ProductKind kind, std::int64_t summed) {
  constexpr std::int64_t kTokens = 300;
  Matrix gram(grid, columns, columns, block);
  const std::vector<T> x = operand<T>(gram.rows(), grid.row(), gram.local_rows(), kTokens);
  const std::vector<T> y = operand<T>(gram.columns(), grid.column(), gram.local_columns(), kTokens);
  PanelOperands<T> panel{x.data(), y.data(), gram.local_rows(), gram.local_columns(), kTokens};
  if (grid.rows() == 1) {  // as a PanelExchange has them
    panel.columns = panel.rows + grid.column() * block;
    panel.leading_columns = panel.leading_rows;
    panel.block = block;
    panel.distance = grid.columns() * block;
  }
  std::vector<double> shift;
  for (std::int64_t j = 0; j < columns; ++j) shift.push_back(static_cast<double>(j % 3));
  PanelProduct(precision, kind)
      .add(
          gram, panel, shift, [] {}, summed);
  EXPECT_TRUE(gram.guards_intact());
  std::vector<double> stored;
  for (std::int64_t l = 0; l < gram.local_columns(); ++l)
    for (std::int64_t k = 0; k < gram.local_rows(); ++k)
      if (gram.rows().global(grid.row(), k) >= gram.columns().global(grid.column(), l))
        stored.push_back(*gram.at(k, l));
  return stored;
}

/// Returns product_of without the columns that are not asked for.
std::vector<double> without_last(std::vector<double> product, const Grid& grid, std::int64_t columns,
                                 std::int64_t block, std::int64_t summed) {
  const Matrix gram(grid, columns, columns, block);
  std::size_t i = 0;
  for (std::int64_t l = 0; l < gram.local_columns(); ++l)
    for (std::int64_t k = 0; k < gram.local_rows(); ++k) {
      const std::int64_t column = gram.columns().global(grid.column(), l);
      if (gram.rows().global(grid.row(), k) < column) continue;
      if (column / block * block >= summed) product[i] = 0;
      ++i;
    }
  return product;
}

TEST(PanelProduct, HasTheSameSumsByLibrariesAndByKernels) {
  on_every_layout([](const Grid& grid, const HeadLayout& layout, std::int64_t block) {
    const std::int64_t columns = layout.columns();
    const std::vector<double> whole =
        product_of<double>(grid, columns, block, Precision::float64, ProductKind::library, columns);
    EXPECT_TRUE(whole.empty() || *std::max_element(whole.begin(), whole.end()) > 0);
    for (const std::int64_t summed : {columns, columns / 2, block}) {
      const std::vector<double> expected = without_last(whole, grid, columns, block, summed);
      for (const Precision precision :
           {Precision::float64, Precision::float32, Precision::split, Precision::bfloat16})
        for (const ProductKind kind : {ProductKind::kernel, ProductKind::library}) {
          EXPECT_EQ(product_of<double>(grid, columns, block, precision, kind, summed), expected);
          EXPECT_EQ(product_of<float>(grid, columns, block, precision, kind, summed), expected);
        }
    }
  });
}

TEST(Gram, IsFactoredByScalapackWhereItLies) {
  on_every_layout([](const Grid& grid, const HeadLayout& layout, std::int64_t block) {
    HeadGram gram = make_gram(grid, correlated(101, layout.columns(), 3, 0.5, 17, 18), {block});
    const std::vector<double> a = gather_symmetric(gram.matrix);
    const int n = static_cast<int>(layout.columns()), one = 1;
    int info = -1;

    pdpotrf_("L", &n, gram.matrix.data(), &one, &one, gram.matrix.descriptor().data(), &info);

    ASSERT_EQ(info, 0);
    EXPECT_LE(cholesky_residual(a, gather_symmetric(gram.matrix), n), 3);
    EXPECT_GT(cholesky_residual(a, a, n), 1e3) << "what was not factored passes too";
    EXPECT_TRUE(gram.matrix.guards_intact());
  });
}

}  // namespace
}  // namespace headspan
