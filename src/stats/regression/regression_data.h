// What all regressions of one stream work from: the Gram of the fit part, the second moment of the held-out
// part about the *fit part's* mean, and the variances of both. Built once from two HeadGrams. Not the
// regressions.
#pragma once

#include <array>
#include <optional>

#include "base/checked.h"
#include "base/range.h"
#include "stats/gram/gram.h"
#include "stats/regression/regression.h"

namespace headspan {

/// The heads of a stream in layer-major order: layer by layer. Head h has the head_size columns from
/// h * head_size on. Each head predicts each other head. Or the heads of two streams, those of the first
/// before those of the second, both layer by layer, where each head of one predicts each of the other.
struct HeadLayout {
  std::int64_t head_size = 0;
  std::vector<std::int64_t> layer;  ///< [heads] not descending within a stream
  std::vector<std::int64_t> head;   ///< [heads] index within the layer, ascending
  std::int64_t hidden_size = 0;     ///< of the model; 0: unknown
  std::int64_t second = 0;          ///< of two streams: the first head of the second
  bool is_backward = false;         ///< of two streams: the second predicts the first, not vice versa
  std::int64_t source_delay = 0;    ///< a causal source is of a layer at least this far before the target's
  /// Of two streams whose heads differ in size: the sizes. head_size is the larger one, and the last columns
  /// of the smaller heads are 0.
  std::optional<std::array<std::int64_t, 2>> sizes{};

  std::int64_t heads() const { return static_cast<std::int64_t>(layer.size()); }
  std::int64_t columns() const { return heads() * head_size; }
  Range sources() const { return second == 0 ? Range{0, heads()} : stream(is_backward ? 1 : 0); }
  Range targets() const { return second == 0 ? Range{0, heads()} : stream(is_backward ? 0 : 1); }
  std::int64_t source_size() const { return sizes ? sizes->at(is_backward ? 1 : 0) : head_size; }
  std::int64_t target_size() const { return sizes ? sizes->at(is_backward ? 0 : 1) : head_size; }
  /// Returns the targets whose rows a rank has in the tables, and which rank has those of a target.
  Range targets_of(int ranks, int rank) const;
  int owner_of_target(int ranks, std::int64_t target) const;
  /// Returns whether a head predicts another in a table of all pairs.
  bool predicts(std::int64_t source, std::int64_t target) const {
    return source != target && sources().contains(source) && targets().contains(target);
  }
  /// Returns whether it is also there when the target is computed: of the target's layer or an earlier one.
  bool is_causal(std::int64_t source, std::int64_t target) const {
    return predicts(source, target) && layer[to_size(source)] + source_delay <= layer[to_size(target)];
  }

 private:
  Range stream(int number) const { return number == 0 ? Range{0, second} : Range{second, heads() - second}; }
};

/// Returns the layout of two streams, of which the first predicts the second.
HeadLayout cross_layout(const HeadLayout& sources, const HeadLayout& targets, std::int64_t source_delay);

/// Returns the same two streams with the second predicting the first.
HeadLayout reversed(HeadLayout layout);

/// Returns the Gram of the first of two streams, a part of the Gram of both, in blocks of as many heads.
/// Local.
HeadGram first_stream(const HeadGram& both, const HeadLayout& layout);

/// Replaces the Gram of the second of two streams, a part of the Gram of both, but not its mean. `second`: in
/// any blocks of whole heads. Collective over the grid of both.
void set_second_stream(HeadGram& both, const HeadLayout& layout, const HeadGram& second);

/// Vectors are the same on all ranks; those of the held-out part are empty without one.
struct RegressionData {
  HeadLayout layout;
  FitRules rules;
  HeadGram fit;
  std::optional<HeadGram> heldout;      ///< `matrix` is M, the second moment about fit's mean
  std::vector<double> sst;              ///< [D] of fit; 0 marks a constant coordinate
  std::vector<double> sst_heldout;      ///< [D] of heldout about its own mean; 0 marks a constant coordinate
  std::vector<double> moment_diagonal;  ///< [D] of M

  const Comm& comm() const { return fit.matrix.grid().comm(); }
};

/// Builds the data from Grams, which set `rules.tokens` and `rules.tokens_heldout`. `add_to_heldout` moves
/// the held-out Gram's origin, see `recentre`. Collective over the grid.
RegressionData regression_data(HeadLayout layout, FitRules rules, HeadGram fit,
                               std::optional<HeadGram> heldout,
                               const AddOuterProduct& add_to_heldout = add_outer_product);

/// Returns the diagonal of a distributed symmetric matrix, on all ranks. Collective over its grid.
std::vector<double> diagonal(const Matrix& matrix);

/// Scores a fit of a head. explained: [d] of the fit part; errors: [d] of the held-out part, null without
/// one; `deficient`: regressors were dropped. Local.
Score score_head(const RegressionData& data, std::int64_t head, const double* explained, const double* errors,
                 bool deficient);

}  // namespace headspan
