// How the numbers of a stream came about, and what a Gram file says of that.
#pragma once

#include <string>
#include <vector>

#include "io/outputs/gram_file.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// How the numbers of a stream came about: attributes of its group in the result.
struct StreamOrigin {
  std::string name;  ///< k, q or v
  std::string capture;
  std::string forward_dtype;
  std::string precision;
  std::int64_t skip_first = 0;
};

/// What Gram files say of a stream.
GramStream gram_stream(const StreamOrigin& origin, const HeadLayout& layout, bool heldout);

/// The streams of a Gram file, as read_gram_streams. What they were captured and formed in decides how their
/// fits are judged: unknown words are refused, by InputError.
std::vector<GramStream> read_known_streams(const H5File& file);

}  // namespace headspan
