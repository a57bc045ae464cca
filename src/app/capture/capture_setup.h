// What is captured, and what all batches of a capture have in common: streams, their Grams, the passes over
// the tokens. Not the rows themselves (app/capture/gram_sink.h).
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "app/run/batch_tokens.h"
#include "app/run/process_layout.h"
#include "base/range.h"
#include "device/device_collector.h"
#include "model/forward/transformer.h"
#include "stats/gram/panel_values.h"
#include "stats/regression/regression_data.h"

namespace headspan {

struct CaptureRequest {
  std::vector<Stream> streams;
  CapturePoint point = CapturePoint::roped;
  Precision precision = Precision::float64;
  std::int64_t batch_tokens = kHostBatch;  ///< of a data-parallel row
  std::int64_t skip_first = 0;             ///< positions of each sequence left out of the statistics
  /// Where the Grams grow: unset on the host; else there, which is where the model runs.
  std::optional<at::Device> device{};
  /// There: what each pass over the tokens sums; `streams` are places in `streams`. Everything is in one of
  /// them; those of the fit part come before the others of a stream. Empty: one pass.
  std::vector<DeviceShare> passes{};
  bool by_layer = false;  ///< a Gram for each layer alone: all of them are a layers-th of the one for all
};

/// A pass over all tokens that sums all of some streams.
DeviceShare everything(std::size_t streams, bool heldout);

/// The heads of a stream as the columns of its Gram are laid out.
HeadLayout stream_layout(const ModelConfig& config, Stream stream);

/// Of one batch, by part: the positions in it whose activations count.
using Kept = std::array<std::vector<std::int64_t>, 2>;

/// What all batches of a capture have in common. Everything that it points to outlives it.
struct CaptureSetup {
  const Transformer* model;
  const ProcessLayout* team;
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
  Range own_share(std::size_t kept) const;
};

}  // namespace headspan
