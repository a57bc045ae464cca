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
};

/// Returns the heads of a stream in the order of the columns of its Gram.
HeadLayout stream_layout(const ModelConfig& config, Stream stream);

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
  std::vector<HeadLayout> layouts;  ///< by stream of the request
  GramSpec spec;                    ///< of the Grams of the first stream, then of the next
  std::vector<DeviceShare> passes;  ///< those of the request, or one that sums everything

  bool sums(const DeviceShare& pass, Stream stream) const;
  /// Returns the streams that a pass needs from the model: those that it sums, and with `queries` q as well.
  std::vector<Stream> streams(const DeviceShare& pass, bool queries) const;
  /// Returns the index of a stream in the request, or the number of its streams if it is not among them.
  std::size_t index_of(Stream stream) const;
  /// Returns the index of the Gram that a layer of stream `s` goes into, and its first column there.
  std::size_t gram(std::size_t s, std::int64_t layer) const;
  std::int64_t first_column(std::size_t s, std::int64_t layer) const;
  /// Returns this rank's share of `count` tokens of its data-parallel row.
  Range share_of_rank(std::size_t count) const;
};

}  // namespace headspan
