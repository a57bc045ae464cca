// How the values of a stream came about, and what a Gram file says about it.
#pragma once

#include <string>
#include <vector>

#include "io/outputs/gram_file.h"
#include "io/stream.h"
#include "model/core/dtype.h"
#include "stats/gram/panel_values.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// Whose heads the sources and the targets of two streams are: of one model, or one of them of the reference
/// (app/run/reference_model.h).
enum class ReferenceSide { none, source, target };

/// How the values of a stream came about: attributes of its group in the result.
struct StreamOrigin {
  Stream stream = Stream::k;
  std::optional<CapturePoint> capture;   ///< none: the user's own activations
  Dtype forward_dtype = Dtype::float32;  ///< of the values when captured
  Precision precision = Precision::float64;
  std::int64_t skip_first = 0;
  std::optional<Stream> target{};  ///< if its heads are predicted by those of `stream`; both are captured
  ReferenceSide reference = ReferenceSide::none;  ///< else `target` is the same stream of another model

  /// Return the words that files and messages use; of two streams, SOURCE-TARGET, of which a stream of the
  /// reference is called `reference`.
  std::string name() const;
  std::string capture_name() const;
};

/// Returns what a Gram file says about a stream.
GramStream gram_stream(const StreamOrigin& origin, const HeadLayout& layout, bool heldout);

/// Returns the origin that a Gram file states for a stream. Its words must be known.
StreamOrigin stream_origin(const GramStream& stream);

/// Reads the streams of a Gram file as read_gram_streams does. Throws InputError also for unknown words of
/// capture, forward_dtype and precision, which decide how fits are judged.
std::vector<GramStream> read_known_streams(const H5File& file);

}  // namespace headspan
