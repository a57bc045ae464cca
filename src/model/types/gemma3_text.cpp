// Gemma 3, text only: Gemma 2 without caps, with norms of each head of queries and keys; five of six layers
// have a window and rotate by frequencies of their own.
#include "model/types/model_type.h"

namespace headspan {

void describe_gemma3_text(const ConfigFields& fields, ModelConfig& config) {
  RopeFields all, near;
  all.default_theta = 1e6;
  near.theta = "rope_local_base_freq";
  near.default_theta = 1e4;
  config.rope = read_rope(fields, config, all);
  config.window_rope = read_window_rope(fields, config, near);
  describe_gemma(fields, config);
  config.qk_norm = QkNorm::per_head;
  config.attention = read_windows(
      fields, config, fields.has("sliding_window_pattern") ? fields.size("sliding_window_pattern") : 6);
}

}  // namespace headspan
