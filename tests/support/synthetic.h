// Activations made from a seed, the same on every rank, and the production path from them to a Gram and its
// regression data on any grid. Not a reference: what the results should be comes from reference_ols.h or a
// closed form.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/range.h"
#include "stats/regression/regression_data.h"
#include "support/grids.h"

namespace headspan {

/// z: [tokens, columns], row-major.
struct Activations {
  std::int64_t tokens = 0;
  std::int64_t columns = 0;
  std::vector<double> values;

  double& at(std::int64_t token, std::int64_t column) {
    return values[static_cast<std::size_t>(token * columns + column)];
  }
  double at(std::int64_t token, std::int64_t column) const {
    return values[static_cast<std::size_t>(token * columns + column)];
  }
};

/// Independent standard normal values.
Activations gaussian(std::int64_t tokens, std::int64_t columns, std::uint64_t seed);

/// Columns of the discrete cosine transform, from the first that is not constant: orthogonal, of mean 0 and
/// sum of squares tokens / 2, so that regressions among their mixtures have closed forms. columns < tokens.
Activations cosines(std::int64_t tokens, std::int64_t columns);

/// a * b for b: [a.columns, ..].
Activations product(const Activations& a, const Activations& b);

/// Columns that share `latents` hidden Gaussian directions, plus independent noise and a mean for each.
/// `mixing_seed` draws directions and means, `token_seed` the tokens: parts of one data set differ in the
/// latter only.
Activations correlated(std::int64_t tokens, std::int64_t columns, std::int64_t latents, double noise,
                       std::uint64_t mixing_seed, std::uint64_t token_seed);

/// Copies head `from` of d columns over head `to`.
void copy_head(Activations& z, std::int64_t d, std::int64_t from, std::int64_t to);

/// Gives a column one value everywhere.
void make_constant(Activations& z, std::int64_t column, double value);

/// `layers` layers of `heads` heads each.
HeadLayout make_layout(std::int64_t layers, std::int64_t heads, std::int64_t d);

/// Block sizes worth trying: a head, three heads, all of them.
std::array<std::int64_t, 3> blocks_to_try(const HeadLayout& layout);

/// Calls `check(grid, block)` for every grid of all ranks and these blocks. Collective over MPI_COMM_WORLD.
template <class Check>
void on_every_grid(const HeadLayout& layout, const Check& check) {
  on_all_grids([&](const Grid& grid) {
    for (const std::int64_t block : blocks_to_try(layout)) {
      SCOPED_TRACE(std::to_string(layout.heads()) + " heads of " + std::to_string(layout.head_size) +
                   ", block " + std::to_string(block));
      check(grid, block);
    }
  });
}

/// Which tokens of a panel belong to a rank: uneven shares, and none for every third rank.
Range dealt_tokens(std::int64_t tokens, int ranks, int rank);

/// How `make_gram` and `make_data` go about it.
struct GramPlan {
  std::int64_t block;
  Precision precision = Precision::float64;
  std::int64_t panel = 64;  ///< tokens of all ranks in one step
};

/// Sums over all tokens, through the updater, about the provisional mean of the first panel. Collective over
/// grid.
HeadGram make_gram(const Grid& grid, const Activations& z, const GramPlan& plan);

/// Collective over grid.
RegressionData make_data(const Grid& grid, const HeadLayout& layout, const Activations& fit,
                         const Activations* heldout, const GramPlan& plan);

/// A distributed symmetric matrix, whole on every rank: [n, n], both triangles. Collective over its grid.
std::vector<double> gather_symmetric(const Matrix& matrix);

/// The rows that each rank holds of a table dealt out by slab, one after another, on every rank. Collective.
template <class T>
std::vector<T> gather_slabs(const Comm& comm, const std::vector<T>& mine) {
  const std::vector<std::vector<T>> send(static_cast<std::size_t>(comm.size()), mine);
  std::vector<T> all;
  for (const auto& part : comm.exchange(send)) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace headspan
