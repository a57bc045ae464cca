// Takes what a forward pass captures: the ranks that share a model exchange the rows of the kept tokens,
// heads for tokens, and hand them to a collector of Grams. Two implementations: in host memory
// (host_gram_sink.cpp), and on the model's device (device_gram_sink.cpp). app/capture/capture.cpp decides
// which batches are run.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "app/capture/capture_setup.h"
#include "device/resident_grams.h"
#include "model/forward/transformer.h"
#include "stats/gram/collector.h"

namespace headspan {

/// Receives the queries of a layer: [tokens, query heads of this rank, d], in host memory.
template <class T>
using QuerySink = std::function<void(std::int64_t layer, const T* values)>;

template <class T>
class GramSink {
 public:
  virtual ~GramSink() = default;

  /// Returns a collector in host memory. Before the first pass it is empty, to be filled with a saved state;
  /// between rounds it has all that has been added, to be saved. Local.
  virtual Collector<T>& host_collector() = 0;
  /// Starts a pass over the tokens. `resumed`: host_collector has been filled with what was saved in it.
  /// Collective over the group.
  virtual void start_pass(std::size_t pass, bool resumed) = 0;
  /// Runs a batch, which may be empty, and collects the pass's streams at `kept`. Passes on queries if
  /// `queries` is set. Collective over the data-parallel row.
  virtual void run(const PackedBatch& batch, const KeptPositions& kept, const QuerySink<T>& queries,
                   const MeanSquareSink& mean_squares) = 0;
  /// Waits until all work given to a device is done, so that each phase is charged its own time. Local.
  virtual void synchronise() const = 0;
  /// Ends a round in which all ranks added `tokens` rows of `part`. Collective over the group.
  virtual void end_round(Part part, std::int64_t tokens) = 0;
  /// Returns the Grams that stay on the device, by stream; none in host memory. Collective over the group.
  virtual std::map<std::size_t, ResidentGrams> release_resident() { return {}; }
  /// Returns all other Grams. Collective over the group.
  virtual std::vector<StreamGrams> finish() = 0;
};

}  // namespace headspan
