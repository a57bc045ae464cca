// Overlap dimensions of weights with planted common directions, by both routes, on every grid.
#include <cmath>
#include <optional>

#include "dist/matrix/linear_algebra.h"
#include "stats/layers/overlap.h"
#include "support/grids.h"
#include "support/tables.h"

namespace headspan {
namespace {

constexpr std::int64_t kRows = 24, kHeadSize = 3, kHeads = 4;
const std::vector<double> kNoGain(kHeads* kHeadSize, 1.0);
constexpr std::optional<double> kPaper;  // its tolerance, else a relative one

/// W: [24, 4 heads of 3]. Heads 1 and 2 share `shared` directions with head 0, less `noise` times a direction
/// of their own; all others are orthogonal and of length 1.
Activations planted(std::int64_t shared, double noise) {
  const Activations basis = cosines(kRows, 18);
  Activations directions{18, 12, std::vector<double>(18 * 12, 0.0)};
  for (std::int64_t column = 0; column < 12; ++column) {
    const std::int64_t j = column % kHeadSize, head = column / kHeadSize;
    const bool common = (head == 1 || head == 2) && j < shared;
    directions.at(common ? j : column, column) = 1;
    if (common) directions.at(12 + (head - 1) * 3 + j, column) = noise;
  }
  Activations w = product(basis, directions);
  for (double& value : w.values) value *= std::sqrt(2.0 / kRows);
  return w;
}

Matrix distributed(const Grid& grid, const Activations& w) {
  Matrix matrix(grid, w.tokens, w.columns, kHeadSize);
  for (std::int64_t j = 0; j < matrix.local_columns(); ++j)
    for (std::int64_t i = 0; i < matrix.local_rows(); ++i)
      *matrix.at(i, j) = w.at(matrix.rows().global(grid.row(), i), matrix.columns().global(grid.column(), j));
  return matrix;
}

/// Returns the spectra from W^T W and from W itself.
std::array<ProjectionSpectrum, 2> spectra(const Grid& grid, const Activations& weights,
                                          const std::vector<double>& gain) {
  const Matrix w = distributed(grid, weights);
  Matrix gram(grid, w.columns().size, w.columns().size, kHeadSize);
  multiply_transposed(w, gram);
  mirror_lower(gram);
  return {spectrum_of_gram(gram, gain, kRows, kHeadSize), spectrum_of_weights(w, gain, kHeadSize)};
}

TEST(Overlap, CountsSharedDirections) {
  for (const std::int64_t shared : {0, 1, 2, 3}) {
    const Activations w = planted(shared, 0);
    on_all_grids([&](const Grid& grid) {
      for (const ProjectionSpectrum& spectrum : spectra(grid, w, kNoGain))
        for (const std::optional<double> tolerance : {kPaper, {1e-1}, {1e-4}}) {
          const OverlapRanks ranks = overlap_ranks(spectrum, kRows, kHeadSize, tolerance);
          EXPECT_EQ(ranks.sum, 12) << tolerance.value_or(0);
          EXPECT_EQ(ranks.overlap_dimension(), 2 * shared) << tolerance.value_or(0);
        }
    });
  }
}

// v, v + noise u and v + noise w, twice: the squares of their singular values are noise^2 and two with sum
// 3 + noise^2 and product noise^2.
TEST(Overlap, NoiseDecidesAtWhichTolerance) {
  for (const double noise : {1e-2, 1e-5}) {
    const Activations w = planted(2, noise);
    on_all_grids([&](const Grid& grid) {
      const auto both = spectra(grid, w, kNoGain);
      for (const ProjectionSpectrum& spectrum : both) {
        const double square = noise * noise, sum = 3 + square;
        const double largest = std::sqrt((sum + std::sqrt(sum * sum - 4 * square)) / 2);
        const std::vector<double> expected{largest,         largest,        1, 1, 1, 1, 1, 1, noise, noise,
                                           noise / largest, noise / largest};
        expect_near(spectrum.joint, expected, 1e-9, "joint");
        EXPECT_EQ(overlap_ranks(spectrum, kRows, kHeadSize, 1e-1).overlap_dimension(), 4);
        EXPECT_EQ(overlap_ranks(spectrum, kRows, kHeadSize, 1e-4).overlap_dimension(), noise > 1e-3 ? 0 : 4);
        EXPECT_EQ(overlap_ranks(spectrum, kRows, kHeadSize, 1e-6).overlap_dimension(), 0);
      }
    });
  }
}

TEST(Overlap, GainScalesColumns) {
  const Activations w = planted(0, 0);
  std::vector<double> gain;
  for (std::int64_t j = 0; j < 12; ++j) gain.push_back(12.0 - static_cast<double>(j));
  on_all_grids([&](const Grid& grid) {
    for (const ProjectionSpectrum& spectrum : spectra(grid, w, gain)) {
      expect_near(spectrum.joint, gain, 1e-12, "joint");
      expect_near(spectrum.heads.at(3), {3, 2, 1}, 1e-12, "head 3");
      EXPECT_EQ(overlap_ranks(spectrum, kRows, kHeadSize, 0.26).joint, 9);  // 12 .. 4 exceed 3.12
      EXPECT_EQ(overlap_ranks(spectrum, kRows, kHeadSize, 0.26).sum, 9);    // one sigma_max for all terms
    }
  });
}

// Weights whose squares overflow a double.
TEST(Overlap, IsTheSameOfScaledWeights) {
  const Activations w = planted(2, 1e-2);
  on_all_grids([&](const Grid& grid) {
    const auto plain = spectra(grid, w, kNoGain);
    for (const int power : {0, 300, -300, 520, -600}) {
      Matrix scaled = distributed(grid, w);
      for (std::int64_t j = 0; j < scaled.local_columns(); ++j)
        for (std::int64_t i = 0; i < scaled.local_rows(); ++i)
          *scaled.at(i, j) = std::ldexp(*scaled.at(i, j), power);

      const int exponent = bring_into_range(scaled);

      EXPECT_EQ(exponent != 0, std::abs(power) > 332) << power;  // 2^332 is about 1e100
      if (exponent == 0) continue;
      Matrix gram(grid, scaled.columns().size, scaled.columns().size, kHeadSize);
      multiply_transposed(scaled, gram);
      mirror_lower(gram);
      const std::array<ProjectionSpectrum, 2> found{spectrum_of_gram(gram, kNoGain, kRows, kHeadSize),
                                                    spectrum_of_weights(scaled, kNoGain, kHeadSize)};
      for (std::size_t route = 0; route < 2; ++route) {
        std::vector<double> values = found[route].joint;
        for (double& value : values) value = std::ldexp(value, exponent - power);
        expect_near(values, plain[route].joint, 1e-9, "joint");
        for (const std::optional<double> tolerance : {kPaper, {1e-1}, {1e-4}})
          EXPECT_EQ(overlap_ranks(found[route], kRows, kHeadSize, tolerance).overlap_dimension(),
                    overlap_ranks(plain[route], kRows, kHeadSize, tolerance).overlap_dimension());
      }
    }
  });
}

// Gains whose squares and products with weights overflow a double: of all heads, and of one.
TEST(Overlap, GainsScaleColumnsWhateverTheirMagnitude) {
  const Activations w = planted(0, 0);
  on_all_grids([&](const Grid& grid) {
    for (const auto& [power, last_head] :
         {std::pair{520, 0}, {1000, 0}, {-540, 0}, {-1000, 0}, {0, -540}, {600, -540}}) {
      std::vector<double> gain;
      for (int j = 0; j < 12; ++j) gain.push_back(std::ldexp(12.0 - j, power + (j < 9 ? 0 : last_head)));
      for (const ProjectionSpectrum& spectrum : spectra(grid, w, gain)) {
        std::vector<double> joint, head;
        for (const double value : spectrum.joint) joint.push_back(std::ldexp(value, -power));
        for (const double value : spectrum.heads.at(3)) head.push_back(std::ldexp(value, -power - last_head));
        std::vector<double> expected{12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1};
        for (std::size_t j = 9; j < 12; ++j) expected[j] = std::ldexp(expected[j], last_head);
        expect_near(joint, expected, 1e-12, "joint");
        expect_near(head, {3, 2, 1}, 1e-12, "head 3");
        EXPECT_EQ(overlap_ranks(spectrum, kRows, kHeadSize, kPaper).sum, 12);
        EXPECT_EQ(overlap_ranks(spectrum, kRows, kHeadSize, kPaper).joint, last_head == 0 ? 12 : 9);
        EXPECT_EQ(overlap_ranks(spectrum, kRows, kHeadSize, 1e-2).sum, last_head == 0 ? 12 : 9);
      }
    }
  });
}

TEST(Overlap, MoreColumnsThanRowsOverlapByWhatDoesNotFit) {
  const Activations w = gaussian(7, 12, 4);
  on_all_grids([&](const Grid& grid) {
    const Matrix matrix = distributed(grid, w);
    Matrix gram(grid, 12, 12, kHeadSize);
    multiply_transposed(matrix, gram);
    mirror_lower(gram);
    const ProjectionSpectrum from_gram = spectrum_of_gram(gram, kNoGain, 7, kHeadSize);
    const ProjectionSpectrum from_weights = spectrum_of_weights(matrix, kNoGain, kHeadSize);
    EXPECT_EQ(from_gram.joint.size(), 7);
    expect_near(from_gram.joint, from_weights.joint, 1e-12, "joint");
    EXPECT_EQ(overlap_ranks(from_gram, 7, kHeadSize, kPaper).overlap_dimension(), 12 - 7);
  });
}

// The tolerance is max(m, d) eps32 sigma_max of each matrix: a head of length 2e-6 has full rank by itself,
// but adds nothing to the joint rank.
TEST(Overlap, PaperToleranceIsOfEachMatrixItself) {
  const Activations w = planted(0, 0);
  std::vector<double> gain(kNoGain);
  for (std::size_t j = 0; j < 3; ++j) gain[j] = 2e-6;
  on_all_grids([&](const Grid& grid) {
    for (const ProjectionSpectrum& spectrum : spectra(grid, w, gain)) {
      EXPECT_EQ(overlap_ranks(spectrum, kRows, kHeadSize, kPaper).sum, 12);
      EXPECT_EQ(overlap_ranks(spectrum, kRows, kHeadSize, kPaper).joint, 9);
      EXPECT_EQ(overlap_ranks(spectrum, kRows, kHeadSize, 1e-5).sum, 9);
    }
  });
}

}  // namespace
}  // namespace headspan
