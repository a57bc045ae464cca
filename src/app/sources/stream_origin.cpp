#include "app/sources/stream_origin.h"

namespace headspan {

GramStream gram_stream(const StreamOrigin& origin, const HeadLayout& layout, bool heldout) {
  return {origin.name,    layout.layer,         layout.head,      layout.head_size,  layout.hidden_size,
          origin.capture, origin.forward_dtype, origin.precision, origin.skip_first, heldout};
}

}  // namespace headspan
