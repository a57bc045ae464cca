// How the numbers of a stream came about, and what a Gram file says of that.
#pragma once

#include <string>
#include <vector>

#include "io/outputs/gram_file.h"
#include "io/stream.h"
#include "model/core/dtype.h"
#include "stats/gram/panel_values.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// How the numbers of a stream came about: attributes of its group in the result.
struct StreamOrigin {
  Stream stream = Stream::k;
  std::optional<CapturePoint> capture;   ///< nothing: the user's own activations
  Dtype forward_dtype = Dtype::float32;  ///< of the values as they came
  Precision precision = Precision::float64;
  std::int64_t skip_first = 0;

  /// As files and messages spell them.
  const std::string& name() const { return word_of(stream_words(), stream); }
  std::string capture_name() const;
};

/// What Gram files say of a stream.
GramStream gram_stream(const StreamOrigin& origin, const HeadLayout& layout, bool heldout);

/// What a stream of a Gram file, of words that are known, says of that.
StreamOrigin stream_origin(const GramStream& stream);

/// The streams of a Gram file, as read_gram_streams. What they were captured and formed in decides how their
/// fits are judged: unknown words are refused, by InputError.
std::vector<GramStream> read_known_streams(const H5File& file);

}  // namespace headspan
