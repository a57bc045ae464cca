// The streams of an attention layer, and where in the layer they are captured: the words that job files,
// Grams, results and plans have for them.
#pragma once

#include "base/word_list.h"

namespace headspan {

/// Keys, queries, values, and z: what a query head gathers, before the output projection.
enum class Stream { k, q, v, z };

inline const WordList<Stream>& stream_words() {
  static const WordList<Stream> words{{"k", Stream::k}, {"q", Stream::q}, {"v", Stream::v}, {"z", Stream::z}};
  return words;
}

/// Two different streams, of which the heads of the first predict those of the second.
struct StreamPair {
  Stream source, target;

  bool operator==(const StreamPair& other) const { return source == other.source && target == other.target; }
};

/// Returns the name of a pair in files: SOURCE-TARGET.
inline std::string name_of(const StreamPair& pair) {
  return word_of(stream_words(), pair.source) + "-" + word_of(stream_words(), pair.target);
}

/// The streams that a projection of its own gives.
inline const WordList<Stream>& projected_stream_words() {
  static const WordList<Stream> words{{"k", Stream::k}, {"q", Stream::q}, {"v", Stream::v}};
  return words;
}

/// The streams that a KV cache holds.
inline const WordList<Stream>& cached_stream_words() {
  static const WordList<Stream> words{{"k", Stream::k}, {"v", Stream::v}};
  return words;
}

/// proj: what the projection gives. normed: after the norm of queries and keys. roped: after the rotary
/// embedding. If a model lacks a step, the value before that step is captured; for v it is always proj. It
/// says nothing of z.
enum class CapturePoint { proj, normed, roped };

inline const WordList<CapturePoint>& capture_words() {
  static const WordList<CapturePoint> words{
      {"proj", CapturePoint::proj}, {"normed", CapturePoint::normed}, {"roped", CapturePoint::roped}};
  return words;
}

}  // namespace headspan
