#include "app/sources/stream_origin.h"

#include "base/printable.h"

namespace headspan {
namespace {

constexpr const char* kGiven = "given";  // by the user, who does not say where it was captured

void check_words(const std::string& path, const GramStream& stream) {
  const auto refuse = [&](const char* field, const std::string& word, const std::string& known) {
    throw InputError(path, stream.name + " " + field, printable(word), "is not known", known);
  };
  if (stream.capture != kGiven && !value_of(capture_words(), stream.capture))
    refuse("capture", stream.capture, joined(capture_words()) + "|" + kGiven);
  if (!value_of(dtype_words(), stream.forward_dtype))
    refuse("forward_dtype", stream.forward_dtype, joined(dtype_words()));
  if (!value_of(precision_words(), stream.precision))
    refuse("precision", stream.precision, joined(precision_words()));
}

}  // namespace

std::string StreamOrigin::name() const {
  const std::string word = word_of(stream_words(), stream);
  switch (reference) {
    case ReferenceSide::source:
      return "reference-" + word;
    case ReferenceSide::target:
      return word + "-reference";
    case ReferenceSide::none:
      break;
  }
  return target ? name_of({stream, *target}) : word;
}

std::string StreamOrigin::capture_name() const {
  return capture ? word_of(capture_words(), *capture) : kGiven;
}

GramStream gram_stream(const StreamOrigin& origin, const HeadLayout& layout, bool heldout) {
  return {origin.name(),
          layout.layer,
          layout.head,
          layout.head_size,
          layout.hidden_size,
          origin.capture_name(),
          dtype_name(origin.forward_dtype),
          word_of(precision_words(), origin.precision),
          origin.skip_first,
          heldout};
}

StreamOrigin stream_origin(const GramStream& stream) {
  return {*value_of(stream_words(), stream.name),
          value_of(capture_words(), stream.capture),
          *value_of(dtype_words(), stream.forward_dtype),
          *value_of(precision_words(), stream.precision),
          stream.skip_first,
          std::nullopt,
          ReferenceSide::none};
}

std::vector<GramStream> read_known_streams(const H5File& file) {
  std::vector<GramStream> streams = read_gram_streams(file);
  check_same_tokens(file, streams);
  for (const GramStream& stream : streams) check_words(file.path(), stream);
  return streams;
}

}  // namespace headspan
