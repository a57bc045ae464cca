// Gathers activations into the Grams of several streams at once. Rows of tokens arrive in rounds, some on
// each rank; they wait in one buffer for each stream and part until there are enough of them on all ranks for
// a product that runs at full speed, and go into the sums of their part then. Knows nothing of models: a
// caller fills rows.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "dist/matrix/large_array.h"
#include "stats/gram/gram.h"

namespace headspan {

enum class Part { fit, heldout };

/// The finished Grams of one stream. `heldout` is there only where it was asked for.
struct StreamGrams {
  HeadGram fit;
  std::optional<HeadGram> heldout;
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

/// How many tokens of all ranks make a panel: as many as an eighth of the memory of the Grams, or 128 MiB
/// where that is more, has room for, within [512, 4096]. `columns`: D of each stream; T as for a Collector.
/// Local.
template <class T>
std::int64_t panel_tokens(const GridShape& grid, const std::vector<std::int64_t>& columns,
                          Precision precision, bool heldout);

/// T is the type of the values as they arrive: double for a forward in float64, else float (which holds every
/// float16 and bfloat16).
template <class T>
class Collector {
 public:
  /// One Gram pair for each entry of `columns` (D of each stream) with the blocks of `blocks`.
  /// `grid` must outlive the collector.
  Collector(const Grid& grid, const std::vector<std::int64_t>& columns,
            const std::vector<std::int64_t>& blocks, Precision precision, bool heldout);

  /// Room for `tokens` more rows of this rank: [tokens, columns[stream]], row-major, to be filled before
  /// `end_round`. Valid until the next call for this stream and part. Local.
  T* add_rows(std::size_t stream, Part part, std::int64_t tokens);

  /// Ends a round: `tokens` is how many rows of `part` all ranks added in it, the same for every stream.
  /// Collective over the grid.
  void end_round(Part part, std::int64_t tokens);

  /// The Grams, by stream. Collective over the grid.
  std::vector<StreamGrams> finish();

  /// Between rounds: adds the panel that is under way, so that `stream` shows all that has come, for saving
  /// it; a fresh collector can be filled with it. Neither changes what `finish` gives, to the bit. Collective
  /// over the grid.
  void settle();
  CollectedStream<T>& stream(std::size_t stream) { return streams_.at(stream); }
  /// How many rows of `part` wait on all ranks together, after they were put back with add_rows.
  void set_waiting(Part part, std::int64_t tokens) {
    waiting_tokens_.at(static_cast<std::size_t>(part)) = tokens;
  }

 private:
  void flush(std::size_t part);

  const Grid* grid_;
  std::int64_t panel_tokens_;
  std::vector<CollectedStream<T>> streams_;
  std::vector<std::int64_t> waiting_tokens_;  // by part, of all ranks
  std::variant<GramUpdater<double>, GramUpdater<float>> updater_;
};

}  // namespace headspan
