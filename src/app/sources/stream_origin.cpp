#include "app/sources/stream_origin.h"

#include "base/printable.h"
#include "model/core/dtype.h"
#include "model/core/stream.h"
#include "stats/gram/panel_values.h"

namespace headspan {
namespace {

void check_words(const std::string& path, const GramStream& stream) {
  const auto refuse = [&](const char* field, const std::string& word, const std::string& known) {
    throw InputError(path, stream.name + " " + field, printable(word), "is not known", known);
  };
  if (stream.capture != "given" && !value_of(capture_words(), stream.capture))
    refuse("capture", stream.capture, joined(capture_words()) + "|given");
  if (!value_of(dtype_words(), stream.forward_dtype))
    refuse("forward_dtype", stream.forward_dtype, joined(dtype_words()));
  if (!value_of(precision_words(), stream.precision))
    refuse("precision", stream.precision, joined(precision_words()));
}

}  // namespace

GramStream gram_stream(const StreamOrigin& origin, const HeadLayout& layout, bool heldout) {
  return {origin.name,    layout.layer,         layout.head,      layout.head_size,  layout.hidden_size,
          origin.capture, origin.forward_dtype, origin.precision, origin.skip_first, heldout};
}

std::vector<GramStream> read_known_streams(const H5File& file) {
  std::vector<GramStream> streams = read_gram_streams(file);
  check_same_tokens(file, streams);
  for (const GramStream& stream : streams) check_words(file.path(), stream);
  return streams;
}

}  // namespace headspan
