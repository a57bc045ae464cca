// The HeadGram: all that the statistics need to know of n tokens,
//
//   n,   mean: [D],   G = sum_i (z_i - mean)(z_i - mean)^T: [D, D],
//
// for the D = heads * head_size columns of one stream (keys, queries or values), heads in layer-major order.
// G is distributed block-cyclically over a grid from the first token on. Its lower triangle of tiles is
// stored, diagonal tiles in full. Not the regressions (stats/regression), nor its file
// (io/outputs/gram_file.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/checked.h"
#include "dist/matrix/large_array.h"
#include "stats/gram/panel_product.h"
#include "stats/gram/panel_values.h"

namespace headspan {

/// n, mean and G of a set of tokens. The mean is replicated on all ranks of the grid.
struct HeadGram {
  std::int64_t tokens = 0;
  std::vector<double> mean;  ///< [D]
  Matrix matrix;             ///< [D, D]
};

/// Returns the block of a Gram of `heads` heads, in columns: as many whole heads as fit in 64 columns, at
/// least one, but few enough to give every process row and column of `grid` two blocks where possible.
std::int64_t gram_block(const GridShape& grid, std::int64_t heads, std::int64_t head_size);

/// Adds the tokens of `other`, on the same grid with the same size and block, to `gram`: the update of Chan,
/// Golub and LeVeque (1979). Local.
void merge(HeadGram& gram, const HeadGram& other);

/// Adds alpha x x^T to the stored tiles of a matrix; x: [D]. Local.
using AddOuterProduct = std::function<void(Matrix& matrix, double alpha, const std::vector<double>& x)>;
void add_outer_product(Matrix& matrix, double alpha, const std::vector<double>& x);

/// Turns `matrix` into the second moment about `origin`: [D], which becomes `mean`. `add` replaces
/// add_outer_product for sums that lie on a device. Local if `add` is.
void recentre(HeadGram& gram, const std::vector<double>& origin,
              const AddOuterProduct& add = add_outer_product);

/// Copies the lower triangle of each diagonal block onto its upper one. Local.
void mirror_diagonal_blocks(Matrix& matrix);

/// Sums over the tokens so far, of values less a provisional mean, `shift`.
struct GramSums {
  /// Sets all sums to zero. `summed`: see below; all columns if it is not given. Throws std::bad_alloc.
  /// Local.
  GramSums(const Grid& grid, std::int64_t columns, std::int64_t block,
           std::optional<std::int64_t> summed = std::nullopt);

  Matrix matrix;
  std::int64_t summed;  ///< products are summed in the blocks of columns before this one, all rows of them
  std::vector<double> sum;  ///< [D] shifted values of this rank's tokens
  std::int64_t tokens = 0;  ///< of all ranks
};

/// Returns the sums of all ranks, [D], divided by the tokens of all ranks; zeros where there are no tokens.
/// The same bits on every rank. Collective over comm.
std::vector<double> mean_over_ranks(const Comm& comm, std::vector<double> sums, std::int64_t tokens);

/// Returns the mean of each column over the tokens of all ranks. It becomes the shift of everything that
/// follows. z: [tokens, D], row-major. Collective over comm.
template <class T>
std::vector<double> provisional_mean(const Comm& comm, const T* z, std::int64_t tokens, std::int64_t columns);

/// Adds panels of tokens to sums. On several ranks the exchange of a panel overlaps the product of the
/// previous one, so call `drain` before reading the sums. One updater serves any number of sums on one grid.
/// T: the type of the activations, double or float.
template <class T>
class GramUpdater {
 public:
  GramUpdater(const Grid& grid, Precision precision) : exchange_(grid), product_(precision) {}

  /// Adds this rank's tokens z: [tokens, D], row-major, less `shift`: [D]. `tokens` may differ between ranks
  /// and be 0. `sums` and `shift` must live until the next `add` or `drain` has returned. Collective over the
  /// grid.
  void add(GramSums& sums, const T* z, std::int64_t tokens, const std::vector<double>& shift);
  /// Adds the product of the last panel. Collective over the grid.
  void drain();

 private:
  /// The panel that is exchanged and not multiplied yet.
  struct Pending {
    GramSums* sums;
    const std::vector<double>* shift;
    PanelOperands<T> operands;
  };
  void multiply(const std::optional<Pending>& panel, const std::function<void()>& progress);

  PanelExchange<T> exchange_;
  PanelProduct product_;
  std::optional<Pending> pending_;
};

/// Turns the sums into the Gram about the exact mean. `add`: see `recentre`. Collective over the grid.
HeadGram finish(GramSums&& sums, const std::vector<double>& shift,
                const AddOuterProduct& add = add_outer_product);

}  // namespace headspan
