// The HeadGram: everything the statistics need to know of n tokens,
//
//   n,   mean: [D],   G = sum_i (z_i - mean)(z_i - mean)^T: [D, D],
//
// for the D = heads * head_size columns of one stream, heads in layer-major order. G is distributed
// block-cyclically over a grid from the first token on; its lower triangle of tiles is stored, tiles on the
// diagonal whole. Not the regressions (pairwise.h, selection.h), nor its file (io/outputs/gram_file.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <vector>

#include "dist/matrix/large_array.h"
#include "stats/gram/panel_product.h"
#include "stats/gram/panel_values.h"

namespace headspan {

/// n, mean and G of some tokens. Mean is replicated on all ranks of the grid.
struct HeadGram {
  std::int64_t tokens = 0;
  std::vector<double> mean;  ///< [D]
  Matrix matrix;             ///< [D, D]
};

/// The block of a Gram of `heads` heads: whole heads, at least 64 columns where there are that many, but
/// small enough that every process row and column of `grid` has blocks where it can.
std::int64_t gram_block(const GridShape& grid, std::int64_t heads, std::int64_t head_size);

/// Adds the tokens of `other` to `gram` (Chan's update). Same grid, size and block. Collective over the grid.
void merge(HeadGram& gram, const HeadGram& other);

/// matrix += alpha x x^T on the stored tiles, for x: [D]. Local.
using AddOuterProduct = std::function<void(Matrix& matrix, double alpha, const std::vector<double>& x)>;
void add_outer_product(Matrix& matrix, double alpha, const std::vector<double>& x);

/// Moves the origin: `matrix` becomes the second moment about `origin`: [D], which becomes `mean`. `add`: for
/// a matrix that does not lie on the host. Local where `add` is.
void recentre(HeadGram& gram, const std::vector<double>& origin,
              const AddOuterProduct& add = add_outer_product);

/// Makes the blocks on the diagonal symmetric from their lower triangle. Local.
void mirror_diagonal_blocks(Matrix& matrix);

/// Sums over the tokens so far, about a provisional mean `shift`.
struct GramSums {
  GramSums(const Grid& grid, std::int64_t columns, std::int64_t block)
      : matrix(grid, columns, columns, block), sum(static_cast<std::size_t>(columns), 0.0) {}

  Matrix matrix;
  std::vector<double> sum;  ///< [D] of the shifted values of this rank's tokens
  std::int64_t tokens = 0;  ///< of all ranks
};

/// The mean of each column over the tokens of all ranks: the shift of everything that follows, the same bits
/// on every rank. z: [tokens, D], row-major. Zero where no rank has a token. Collective over comm.
template <class T>
std::vector<double> provisional_mean(const Comm& comm, const T* z, std::int64_t tokens, std::int64_t columns);

/// Takes panels of tokens in turn and adds each to its sums. The exchange of a panel overlaps the product of
/// the one before, so `drain` comes before the sums are read. One updater serves any number of sums of one
/// grid. P: double where the precision multiplies doubles, else float.
template <class P>
class GramUpdater {
 public:
  GramUpdater(const Grid& grid, Precision precision)
      : exchange_(grid), precision_(precision), gemm_(FloatGemm::best(precision)) {
    if (std::is_same_v<P, double> && SyrkKernel::is_faster_than_blas()) syrk_kernel_.emplace();
  }

  /// Adds this rank's tokens z: [tokens, D], row-major, less `shift`: [D]. Collective over the grid; `tokens`
  /// may differ between ranks and be 0. `sums` must live until the next `add` or `drain` has returned.
  template <class T>
  void add(GramSums& sums, const T* z, std::int64_t tokens, const std::vector<double>& shift);
  /// Adds what is still under way. Collective over the grid.
  void drain();

 private:
  void multiply(Matrix& matrix, const std::function<void()>& progress);

  PanelExchange<P> exchange_;
  Precision precision_;
  GramSums* pending_ = nullptr;
  PanelOperands<P> operands_;
  std::optional<SyrkKernel> syrk_kernel_;  // of FP64 panels; none: BLAS
  FloatGemm gemm_;                         // of FP32 panels
  LargeArray<P> workspace_;
};

/// Turns the sums into the Gram about the exact mean. `add` as in `recentre`. Collective over the grid.
HeadGram finish(GramSums&& sums, const std::vector<double>& shift,
                const AddOuterProduct& add = add_outer_product);

}  // namespace headspan
