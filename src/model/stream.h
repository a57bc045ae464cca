// The streams of an attention layer.
#pragma once

#include <string>

namespace headspan {

enum class Stream { k, q, v };

/// The stream called "k", "q" or "v".
Stream stream_named(const std::string& name);

}  // namespace headspan
