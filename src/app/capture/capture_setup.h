// What a capture is asked for, and what all of its batches share: streams, their Grams, the passes over the
// tokens. Not the rows themselves (app/capture/gram_sink.h).
#pragma once

#include <array>
#include <map>
#include <vector>

#include "app/capture/unit_state.h"
#include "app/run/batch_tokens.h"
#include "app/run/process_layout.h"
#include "base/range.h"
#include "device/device_collector.h"
#include "model/forward/transformer.h"
#include "stats/compression/attention_metric.h"
#include "stats/gram/panel_values.h"
#include "stats/regression/regression_data.h"

namespace headspan {

struct CaptureRequest {
  std::vector<Stream> streams;
  CapturePoint point = CapturePoint::roped;
  Precision precision = Precision::float64;
  std::int64_t batch_tokens = kHostBatch;  ///< tokens per batch of a data-parallel row
  std::int64_t skip_first = 0;             ///< positions of each sequence that the statistics leave out
  bool by_layer = false;  ///< one Gram per layer: with L layers a stream's Grams take an L-th of the memory

  bool on_device = false;  ///< the Grams are summed on the model's device; else in host memory
  /// On a device, what each pass over the tokens sums: DeviceShare::streams index `streams`. Together the
  /// passes sum everything, and a stream's fit part before its held-out part. Empty: one pass.
  std::vector<DeviceShare> passes{};

  /// The state that is saved when due and resumed from; null: none.
  const UnitState* state = nullptr;
  /// What attention does with keys and values of the fit part is added here. The model must then have been
  /// loaded with logits. Null: not wanted.
  AttentionSums* attention = nullptr;
  /// Receives, by index in `streams`, the Grams that the last pass sums completely. They stay on the device.
  /// Not with by_layer. Null: all Grams are copied to the host.
  std::map<std::size_t, ResidentGrams>* resident = nullptr;
  /// Pairs of streams, whose heads have a Gram together. They count as further streams. Not with by_layer.
  std::vector<StreamPair> pairs{};
  /// Another model, with a forward of the same type, that runs the same tokens: the Gram of each stream is
  /// then that of the model's heads and of this one's (reference_layout). Not with by_layer, and on a device
  /// only if its heads have the size of the model's.
  const Transformer* reference = nullptr;
  bool sums_reference = true;  ///< else the reference's own Gram is left 0
};

/// Returns the heads of a stream in the order of the columns of its Gram.
HeadLayout stream_layout(const ModelConfig& config, Stream stream);
HeadLayout pair_layout(const ModelConfig& config, const StreamPair& pair);
/// Returns the heads of a stream of a model, then those of a reference. They know no common hidden state.
HeadLayout reference_layout(const ModelConfig& config, const ModelConfig& reference, Stream stream);

/// The positions in a batch whose activations enter the statistics, by part.
using KeptPositions = std::array<std::vector<std::int64_t>, 2>;

/// What all batches of a capture share. Everything that it points to must outlive it.
struct CaptureSetup {
  CaptureSetup(const Transformer& model, const CaptureRequest& request, const ProcessLayout& processes,
               bool heldout);

  const Transformer* model;
  const CaptureRequest* request;
  const ProcessLayout* processes;
  std::int64_t grams_per_stream;    ///< 1, or the layers
  std::vector<HeadLayout> layouts;  ///< by stream of the request, then by pair
  GramSpec spec;                    ///< of the Grams of the first stream, then of the next, then of the pairs
  std::vector<DeviceShare> passes;  ///< those of the request, or one that sums everything

  /// Returns the streams that a pass needs from the model: those that it sums, and with `queries` q as well.
  std::vector<Stream> streams(const DeviceShare& pass, bool queries) const;
  /// Where a layer of a stream goes: the index of a Gram, its first column there, and how many columns a head
  /// has.
  struct Place {
    std::size_t gram;
    std::int64_t first_column, head_columns;
  };
  /// Returns the places in the Grams of a pass, none if it does not sum the stream.
  std::vector<Place> places(const DeviceShare& pass, std::int64_t layer, Stream stream) const;
  /// Returns the streams that a pass needs from the reference.
  std::vector<Stream> reference_streams(const DeviceShare& pass) const;
  /// Returns the place of a layer of the reference's stream; it must be one of the request's.
  Place reference_place(std::int64_t layer, Stream stream) const;
  /// Returns the index of the Gram that a layer of stream or pair `s` goes into.
  std::size_t gram(std::size_t s, std::int64_t layer) const;
  /// Returns this rank's share of `count` tokens of its data-parallel row.
  Range share_of_rank(std::size_t count) const;
};

}  // namespace headspan
