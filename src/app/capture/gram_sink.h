// What of a forward goes into the Grams: the rows of the tokens that count, on their way from the heads that
// a rank has to the columns of its tokens, and the collector that they end in. Two implementations: on the
// host (host_gram_sink.cpp), and where the model runs (device_gram_sink.cpp). Which batches there are is
// app/capture/capture.h's.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "app/capture/capture_setup.h"
#include "app/capture/unit_state.h"
#include "device/resident_grams.h"
#include "model/forward/transformer.h"
#include "stats/gram/collector.h"

namespace headspan {

/// Receives the queries of a layer, as a CaptureSink does.
template <class T>
using QuerySink = std::function<void(std::int64_t layer, const T* values)>;

template <class T>
class GramSink {
 public:
  virtual ~GramSink() = default;

  /// Before the first batch of each pass, but for the one that `resume` begins. Collective over the group.
  virtual void begin(std::size_t pass) = 0;
  /// As UnitState's; begins the pass. Collective over the group.
  virtual PiecesDone resume(const UnitState& state, std::int64_t pieces) = 0;
  /// Runs a batch, which may be empty, and collects the streams of the pass at `kept`. `queries`: these too;
  /// unset: not. Collective over the data-parallel row.
  virtual void run(const PackedBatch& batch, const Kept& kept, const QuerySink<T>& queries,
                   const MeanSquareSink& mean_squares) = 0;
  /// Returns when what was asked for is computed: for whoever reads a clock. Local.
  virtual void wait() const = 0;
  /// As UnitState's. Collective over the group.
  virtual void keep(const UnitState& state, const PiecesDone& pieces) = 0;
  /// As Collector's. Collective over the group.
  virtual void end_round(Part part, std::int64_t tokens) = 0;
  /// As DeviceCollector's, by place in the request; none on the host. Collective over the group.
  virtual std::map<std::size_t, ResidentGrams> release_resident() { return {}; }
  /// As Collector's. Collective over the group.
  virtual std::vector<StreamGrams> finish() = 0;
};

}  // namespace headspan
