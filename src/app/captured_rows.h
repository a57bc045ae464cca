// What of a forward goes into the Grams: the rows of the tokens that count, on their way from the heads that
// a rank has to the columns of its tokens, and the collector that they end in. Two implementations: on the
// host (host_rows.cpp), and where the model runs (device_rows.cpp). Which batches there are is
// app/capture.h's.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "app/capture.h"

namespace headspan {

/// Of one batch, by part: the positions in it whose activations count.
using Kept = std::array<std::vector<std::int64_t>, 2>;

/// What all batches of a capture have in common. Everything that it points to outlives it.
struct CaptureSetup {
  const Transformer* model;
  const Team* team;
  const CaptureRequest* request;
  bool heldout = false;
  std::int64_t pieces = 1;                    ///< Grams of a stream
  std::vector<HeadLayout> layouts;            ///< by stream of the request
  std::vector<std::int64_t> columns, blocks;  ///< by Gram: the pieces of a stream in turn
  std::vector<DeviceShare> passes;            ///< those of the request, or one of everything

  std::size_t parts() const { return heldout ? 2 : 1; }
  /// Whether a pass sums a stream.
  bool sums(const DeviceShare& pass, Stream stream) const;
  /// Those that a pass sums, and `queries` too where they are wanted besides.
  std::vector<Stream> streams(const DeviceShare& pass, bool queries) const;
  /// The number of a stream in the request; as many as there are where it is not asked for.
  std::size_t place(Stream stream) const;
  /// The number of the Gram that a layer of a stream goes into, and where in it.
  std::size_t gram(std::size_t place, std::int64_t layer) const;
  std::int64_t first_column(std::size_t place, std::int64_t layer) const;
  /// Which of `kept` tokens this rank takes.
  Slab own_share(std::size_t kept) const;
};

/// Receives the queries of a layer, as a CaptureSink does.
template <class T>
using QuerySink = std::function<void(std::int64_t layer, const T* values)>;

template <class T>
class CapturedRows {
 public:
  virtual ~CapturedRows() = default;

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
  virtual std::map<std::size_t, ResidentGrams> stay() { return {}; }
  /// As Collector's. Collective over the group.
  virtual std::vector<StreamGrams> finish() = 0;
};

template <class T>
std::unique_ptr<CapturedRows<T>> rows_on_host(const CaptureSetup& setup);
/// On the request's device.
template <class T>
std::unique_ptr<CapturedRows<T>> rows_on_device(const CaptureSetup& setup);

}  // namespace headspan
