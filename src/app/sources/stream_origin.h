// How the values of a stream came about, and what a Gram file says of that.
#pragma once

#include <string>
#include <vector>

#include "io/outputs/gram_file.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// How the values of a stream came about: attributes of its group in the result.
struct StreamOrigin {
  std::string name;  ///< k, q or v
  std::string capture;
  std::string forward_dtype;
  std::string precision;
  std::int64_t skip_first = 0;
};

/// Returns what a Gram file says of a stream.
GramStream gram_stream(const StreamOrigin& origin, const HeadLayout& layout, bool heldout);

/// Reads the streams of a Gram file as read_gram_streams does, and refuses unknown words for what they were
/// captured and formed in, which decide how fits are judged. Throws InputError.
std::vector<GramStream> read_known_streams(const H5File& file);

}  // namespace headspan
