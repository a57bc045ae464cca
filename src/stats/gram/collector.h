// Gathers activations into the Grams of several streams at once. Rows of tokens arrive in rounds, on each
// rank its own. They wait in a buffer per stream and part until all ranks together hold a panel: enough
// tokens for a product at full speed. Then they are added to the sums of their part. Knows nothing of models:
// the caller fills the rows.
#pragma once

#include <optional>
#include <vector>

#include "dist/matrix/large_array.h"
#include "stats/gram/gram.h"

namespace headspan {

/// The tokens that regressions are fitted on, and those that they are tested on.
enum class Part { fit, heldout };

/// The finished Grams of one stream.
struct StreamGrams {
  HeadGram fit;
  std::optional<HeadGram> heldout;  ///< if there is a held-out part
};

/// What a collector sums: for each stream a Gram of D columns, distributed in blocks, per part.
struct GramSpec {
  std::vector<std::int64_t> columns;  ///< by stream: D
  std::vector<std::int64_t> blocks;   ///< by stream
  Precision precision = Precision::float64;
  bool heldout = false;  ///< whether there is a held-out part
  /// By stream: the column from which on no products are summed (GramSums::summed). Empty: all are.
  std::vector<std::int64_t> summed{};

  std::size_t parts() const { return heldout ? 2 : 1; }
};

/// Rows of this rank that wait for the next panel: [tokens, D].
template <class T>
struct WaitingRows {
  LargeArray<T> rows;
  std::int64_t tokens = 0;
};

/// What a collector holds of one stream between rounds.
template <class T>
struct CollectedStream {
  std::int64_t columns = 0;
  std::vector<double> shift;            ///< empty until the first panel
  std::vector<GramSums> sums;           ///< by part
  std::vector<WaitingRows<T>> waiting;  ///< by part
};

/// Returns how many tokens of all ranks make a panel: what fits in an eighth of the memory of the Grams, or
/// in 128 MiB if that is more, within [512, 4096]. `columns`: D of each stream; T: see Collector. Local.
template <class T>
std::int64_t panel_tokens(const GridShape& grid, const std::vector<std::int64_t>& columns,
                          Precision precision, bool heldout);

/// Returns the number of panels in which the waiting rows of all ranks are added, so that none has more than
/// 1.5 `panel_tokens` tokens. `tokens`: those of this rank. Collective over comm.
int panel_count(const Comm& comm, std::int64_t tokens, std::int64_t panel_tokens);

/// T: the type of the values as they arrive, double for a forward pass in float64, else float (which holds
/// every float16 and bfloat16).
template <class T>
class Collector {
 public:
  /// `grid` must outlive the collector.
  Collector(const Grid& grid, const GramSpec& spec);

  /// Returns room for `tokens` more rows of this rank: [tokens, D of the stream], row-major, to be filled
  /// before `end_round`. Valid until the next call for this stream and part. Local.
  T* add_rows(std::size_t stream, Part part, std::int64_t tokens);

  /// Ends a round in which all ranks together added `tokens` rows of `part` to every stream. Collective over
  /// the grid.
  void end_round(Part part, std::int64_t tokens);

  /// Returns the Grams by stream. Collective over the grid.
  std::vector<StreamGrams> finish();

  /// Adds the product of the last panel, which is still pending, so that `stream` holds all that has been
  /// added and can be saved. `finish` returns the same, bit for bit, whether this was called or not. Called
  /// between rounds. Collective over the grid.
  void drain();
  /// Returns the state of a stream: to save it after `drain`, or to fill a fresh collector with it.
  CollectedStream<T>& stream(std::size_t stream) { return streams_.at(stream); }
  /// Sets how many rows of `part` wait on all ranks together, after add_rows has put them back.
  void set_waiting(Part part, std::int64_t tokens) {
    waiting_tokens_.at(static_cast<std::size_t>(part)) = tokens;
  }

 private:
  void flush(std::size_t part);

  const Grid* grid_;
  std::int64_t panel_tokens_;
  std::vector<CollectedStream<T>> streams_;
  std::vector<std::int64_t> waiting_tokens_;  // by part, of all ranks
  GramUpdater<T> updater_;
};

}  // namespace headspan
