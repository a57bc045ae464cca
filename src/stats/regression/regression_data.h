// What all regressions of one stream work from: the Gram of the fit part, the second moment of the held-out
// part about the *fit part's* mean, and the variances of both. Built once from two HeadGrams; read by
// pairwise.h and selection.h.
#pragma once

#include <optional>

#include "stats/gram/gram.h"
#include "stats/regression/regression.h"

namespace headspan {

/// The heads of a stream in layer-major order: the columns of head h are h * head_size .. (h + 1) *
/// head_size.
struct HeadLayout {
  std::int64_t head_size = 0;
  std::vector<std::int64_t> layer;  ///< [heads] not descending
  std::vector<std::int64_t> head;   ///< [heads] index within the layer, ascending within it
  std::int64_t hidden_size = 0;     ///< m of the geometric null; 0: unknown

  std::int64_t heads() const { return static_cast<std::int64_t>(layer.size()); }
  std::int64_t columns() const { return heads() * head_size; }
};

struct RegressionData {
  HeadLayout layout;
  FitRules rules;
  HeadGram fit;
  std::optional<HeadGram> heldout;  ///< `matrix` is M: the second moment about fit's mean
  std::vector<double> sst;          ///< [D] of fit; 0 marks a constant coordinate. Replicated
  std::vector<double> sst_heldout;  ///< [D] of heldout about its own mean; 0 marks a constant. Empty without
  std::vector<double> moment_diagonal;  ///< [D] of M. Empty without

  const Comm& comm() const { return fit.matrix.grid().comm(); }
};

/// `rules.tokens` and `rules.tokens_heldout` are set from the Grams. `add_to_heldout`: for one that does not
/// lie on the host, as in `recentre`. Collective over the grid.
RegressionData regression_data(HeadLayout layout, FitRules rules, HeadGram fit,
                               std::optional<HeadGram> heldout,
                               const AddOuterProduct& add_to_heldout = add_outer_product);

/// The diagonal of a distributed symmetric matrix, on all ranks. Collective over its grid.
std::vector<double> diagonal(const Matrix& matrix);

}  // namespace headspan
