// How alike two heads of a stream, or of two streams, are: measures in which neither is the source nor the
// target, from the tiles of the fit part's Gram C that pairwise R² reads too:
//
//   cka         ||C_ij||_F^2 / (||C_ii||_F ||C_jj||_F)            linear CKA (Kornblith et al. 2019)
//   cca         ||U_i^T C_ij U_j||_F^2 / min(rank_i, rank_j)      mean squared canonical correlation
//   procrustes  1 - ||C_ij||_* / sqrt(tr C_ii tr C_jj)            distance after the best rotation
//
// with U_i as in pair_sums.h, and ||.||_* the sum of the singular values. Not R² (pairwise.h).
#pragma once

#include "base/range.h"
#include "base/word_list.h"
#include "stats/regression/pairwise.h"

namespace headspan {

enum class SimilarityMeasure { cka, cca, procrustes };

inline const WordList<SimilarityMeasure>& similarity_words() {
  static const WordList<SimilarityMeasure> words{{"cka", SimilarityMeasure::cka},
                                                 {"cca", SimilarityMeasure::cca},
                                                 {"procrustes", SimilarityMeasure::procrustes}};
  return words;
}

/// Returns what a measure is on average for two random subspaces of a space of which they have the shares
/// d / m, for large m: of the hidden state, or of the tokens less one (heads that are pure noise). For
/// procrustes the law of Wachter (1980) of the cosines of their principal angles.
double random_similarity(SimilarityMeasure measure, double share, double other);

/// The rows of this rank's targets, `HeadLayout::targets_of`. NaN where the layout has no pair, for heads
/// that are constant, and everywhere if there are too few tokens for a fit.
struct SimilarityTable {
  Range targets;
  std::map<SimilarityMeasure, std::vector<double>> values;  ///< [targets.count, heads]: target, source
  std::vector<double>
      cka_layer;  ///< [layers, layers] of whole layers, on all ranks; empty without cka, and for two streams
};

/// Compares the heads while a PairSums has the factors of the heads at hand.
class Similarity {
 public:
  explicit Similarity(std::vector<SimilarityMeasure> measures) : measures_(std::move(measures)) {}

  /// Returns a PairSums that does what `sums` does and also compares the heads of each tile, on all threads
  /// of the rank. The object must outlive it.
  PairSums beside(PairSums sums);

  /// Returns the tables after all_pairs has run with beside(); `rank`: PairTable::rank. Collective over the
  /// Gram's grid.
  SimilarityTable finish(const RegressionData& data, const std::vector<int>& rank) const;

 private:
  /// What one tile says; the columns that no measure needs are 0.
  struct TileSums {
    std::int64_t row, column;  // heads
    double square;             // ||C_ij||_F^2
    double nuclear;            // ||C_ij||_*
    double canonical;          // ||U_i^T C_ij U_j||_F^2
  };

  bool has(SimilarityMeasure measure) const;
  TileSums compare(const RegressionData& data, const PairSources& sources, TileSums tile) const;
  std::vector<double> layer_cka(const RegressionData& data) const;

  std::vector<SimilarityMeasure> measures_;
  std::vector<TileSums> tiles_;  // those that this rank stores
};

}  // namespace headspan
